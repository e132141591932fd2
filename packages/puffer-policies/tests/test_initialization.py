import math

import pytest
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies import LSTM, LSTMWrapper, default_policy, layer_init


@pytest.mark.parametrize("layer", [nn.Linear(8, 8), nn.Linear(4, 9), nn.Conv2d(3, 8, 2)])
@pytest.mark.parametrize("std", [math.sqrt(2), 0.01])
def test_layer_init_is_orthogonal_with_the_gain(layer, std):
    assert layer_init(layer, std=std, bias_const=0.5) is layer

    matrix = layer.weight.flatten(1)
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    torch.testing.assert_close(gram, std**2 * torch.eye(len(gram)), atol=1e-5, rtol=1e-5)
    assert torch.equal(layer.bias, torch.full_like(layer.bias, 0.5))


def test_layer_init_accepts_a_layer_without_bias():
    assert layer_init(nn.Linear(3, 3, bias=False)).bias is None


def test_layer_init_names_what_it_got():
    with pytest.raises(TypeError, match="weight of two or more dimensions; got ReLU"):
        layer_init(nn.ReLU())


def test_default_policy_starts_near_uniform_with_value_gain_one(make_env):
    policy = default_policy(make_env(spaces.Box(-1, 1, (6,)), spaces.Discrete(5)), hidden_size=64)

    torch.testing.assert_close(policy.actor.weight.norm(dim=1), torch.full((5,), 0.01))
    torch.testing.assert_close(policy.critic.weight.norm(), torch.tensor(1.0))
    first = policy.encoder.layers[0].weight
    torch.testing.assert_close(first.T @ first, 2.0 * torch.eye(6), atol=1e-5, rtol=1e-5)
    entropy = policy.action_head.entropy(policy(torch.randn(100, 6))[0])
    assert float(entropy.detach().min()) > 0.999 * math.log(5)


def test_lstm_wrapper_keeps_the_weights_of_the_policy(make_env):
    env = make_env(spaces.Box(-1, 1, (6,)), spaces.Discrete(5))
    policy = default_policy(env, hidden_size=32)
    before = {name: value.clone() for name, value in policy.state_dict().items()}

    wrapped = LSTMWrapper(env, policy, input_size=32, hidden_size=32)

    assert all(torch.equal(before[name], value) for name, value in wrapped.policy.state_dict().items())
    torch.testing.assert_close(wrapped.policy.actor.weight.norm(dim=1), torch.full((5,), 0.01))


def test_lstm_is_orthogonal_with_zero_biases():
    memory = LSTM(16, 8)

    for weight in (memory.weight_ih_l0, memory.weight_hh_l0):
        gram = weight.T @ weight if weight.shape[1] <= weight.shape[0] else weight @ weight.T
        torch.testing.assert_close(gram, torch.eye(len(gram)), atol=1e-5, rtol=1e-5)
    assert not memory.bias_ih_l0.any()
    assert not memory.bias_hh_l0.any()
