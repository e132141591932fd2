from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies import GRU, LSTMWrapper, RecurrentPolicy, default_policy

ENV = SimpleNamespace(single_observation_space=spaces.Box(-1, 1, (5,)), single_action_space=spaces.Discrete(3))


class Halves(nn.Module):
    """PufferLib 3.0's policy to wrap."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(5, 8)
        self.decoder = nn.Linear(6, 3)
        self.value = nn.Linear(6, 1)
        self.is_continuous = False

    def encode_observations(self, observations, state=None):
        return torch.tanh(self.encoder(observations.float()))

    def decode_actions(self, hidden):
        return self.decoder(hidden), self.value(hidden)


def test_wrapper_gives_any_two_halves_a_memory():
    policy = LSTMWrapper(ENV, Halves(), input_size=8, hidden_size=6)
    x, resets = torch.randn(3, 4, 5), torch.rand(3, 4) < 0.3

    parameters, values = policy.forward_sequence(x, policy.initial_state(3), resets)

    assert parameters.shape == (12, 3)
    assert values.shape == (3, 4)
    assert policy.is_recurrent
    assert policy.is_continuous is False
    assert [part.shape for part in policy.initial_state(3)] == [(3, 6), (3, 6)]


def test_wrapper_steps_with_a_dict_as_state():
    policy = LSTMWrapper(ENV, Halves(), input_size=8, hidden_size=6)
    x = torch.randn(3, 4, 5)
    expected, expected_values = policy.forward_sequence(x)
    state = {"lstm_h": None, "lstm_c": None}

    for t in range(4):
        logits, values = policy.forward_eval(x[:, t], state)
        torch.testing.assert_close(logits, expected.view(3, 4, 3)[:, t], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(values, expected_values[:, t : t + 1], atol=1e-5, rtol=1e-5)

    assert state["lstm_h"].shape == state["lstm_c"].shape == (3, 6)
    assert state["hidden"] is state["lstm_h"]


def test_wrapper_runs_segments_with_a_dict_as_state():
    policy = LSTMWrapper(ENV, Halves(), input_size=8, hidden_size=6)
    x = torch.randn(3, 4, 5)
    state = {}

    logits, values = policy(x, state)

    expected, expected_values = policy.forward_sequence(x)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(values, expected_values)
    assert torch.equal(
        policy(x[:, 0], {"lstm_h": state["lstm_h"][None], "lstm_c": state["lstm_c"][None]})[0],
        policy(x[:, 0], state)[0],
    )


def test_wrapper_runs_both_shapes_with_a_tuple_as_state():
    policy = LSTMWrapper(ENV, Halves(), input_size=8, hidden_size=6)
    x = torch.randn(3, 4, 5)

    logits, values, state = policy(x[:, 0])
    assert (logits.shape, values.shape, len(state)) == ((3, 3), (3, 1), 2)
    logits, values, state = policy(x, state)
    assert (logits.shape, values.shape, len(state)) == ((12, 3), (3, 4), 2)


def test_lstm_and_cell_share_their_weights():
    policy = LSTMWrapper(ENV, Halves(), input_size=8, hidden_size=6)
    random_state = torch.get_rng_state()
    features, h, c = torch.randn(3, 8), torch.randn(3, 6), torch.randn(3, 6)
    random_after = torch.get_rng_state()

    new_h, new_c = policy.cell(features, (h, c))

    torch.testing.assert_close(new_h, policy.lstm.step(features, (h, c))[0])
    torch.testing.assert_close(new_c, policy.lstm.step(features, (h, c))[1][1])
    assert policy.cell.weight_ih is policy.lstm.weight_ih_l0
    assert not any("cell" in name for name in policy.state_dict())
    assert torch.equal(random_after, torch.get_rng_state())
    assert not torch.equal(random_state, random_after)


def test_state_enters_a_segment_as_it_left_the_last_one():
    policy = default_policy(ENV, hidden_size=8, recurrent="lstm")
    x = torch.randn(2, 8, 5)
    whole, _ = policy.forward_sequence(x)

    _, _, state = policy._run(x[:, :4], (), None)
    second, _ = policy.forward_sequence(x[:, 4:], state)

    torch.testing.assert_close(second, whole.view(2, 8, -1)[:, 4:].flatten(0, 1), atol=1e-5, rtol=1e-5)


def test_encoder_without_state_argument_is_called_without():
    class NoState(Halves):
        def encode_observations(self, observations):
            return torch.tanh(self.encoder(observations))

    policy = RecurrentPolicy(NoState(), GRU(8, 6), default_policy(ENV).action_head)

    assert policy.forward_eval(torch.randn(3, 5))[0].shape == (3, 3)


def test_policy_without_head_is_refused():
    with pytest.raises(TypeError, match="action_head must be given for a policy that has none; got Halves"):
        RecurrentPolicy(Halves(), GRU(8, 6))


def test_policy_without_halves_is_refused():
    with pytest.raises(TypeError, match=r"Linear has no encode_observations\. Split its forward into the two"):
        RecurrentPolicy(nn.Linear(5, 3), GRU(3, 3))


def test_wrapper_takes_the_head_of_the_spaces():
    env = SimpleNamespace(
        single_observation_space=spaces.Box(-1, 1, (5,)), single_action_space=spaces.MultiDiscrete([2, 1])
    )

    assert LSTMWrapper(env, Halves(), 8, 6).action_head.num_parameters == 3


def test_memory_that_does_not_fit_is_explained(make_env):
    policy = default_policy(make_env(spaces.Box(-1, 1, (5,)), spaces.Discrete(3)), hidden_size=16)

    for memory in (nn.LSTM(16, 16), GRU):
        with pytest.raises(TypeError, match="memory must have initial_state, step and sequence; got"):
            RecurrentPolicy(policy, memory)
    with pytest.raises(ValueError, match="must be the policy's hidden_size=16; got 128 and 128"):
        LSTMWrapper(ENV, policy)


def test_wrapper_takes_a_plain_env():
    env = SimpleNamespace(observation_space=spaces.Box(-1, 1, (5,)), action_space=spaces.Discrete(3))

    policy = LSTMWrapper(env, Halves(), input_size=8, hidden_size=6)

    assert policy.obs_shape == (5,)
    with pytest.raises(TypeError, match="env must have single_observation_space"):
        LSTMWrapper(object(), Halves())
