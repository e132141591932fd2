from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from puffer_policies import MLP, DefaultPolicy, NatureCNN, Policy, RecurrentPolicy, default_policy, env_spaces
from puffer_spaces import PufferEnv


class Corridor(PufferEnv):
    """A PufferEnv that never runs: only its spaces are read."""

    def __init__(self, buf=None):
        self.single_observation_space = spaces.Box(-1, 1, (7,))
        self.single_action_space = spaces.Discrete(3)
        self.num_agents = 2
        super().__init__(buf)


def test_policy_of_a_puffer_env():
    policy = default_policy(Corridor(), hidden_size=32, num_layers=1)

    assert isinstance(policy, Policy)
    assert isinstance(policy.encoder, MLP)
    assert policy.encoder.layers[0].weight.shape == (32, 7)
    assert policy.action_head.num_parameters == 3


def test_policy_of_a_gymnasium_env():
    env = gymnasium.make("CartPole-v1")

    policy = default_policy(env, recurrent="lstm", hidden_size=8)

    assert isinstance(policy, RecurrentPolicy)
    assert policy.memory.hidden_size == 8
    env.close()


def test_options_reach_the_encoder(make_env):
    env = make_env(spaces.Box(-1, 1, (7,)), spaces.Discrete(3))

    policy = DefaultPolicy(env, hidden_size=16, num_layers=3, activation="tanh", layer_norm=True)

    names = [type(layer).__name__ for layer in policy.encoder.layers]
    assert names == ["Linear", "LayerNorm", "Tanh"] * 3


@pytest.mark.parametrize("shape", [(84, 84, 4), (4, 84, 84, 3)])
def test_image_and_stack_of_images_get_a_cnn(shape, make_env):
    env = make_env(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(3))

    assert isinstance(default_policy(env).encoder, NatureCNN)


def test_space_without_layout_is_enough():
    env = SimpleNamespace(single_observation_space=spaces.Discrete(5), single_action_space=spaces.Box(-1, 1, ()))

    assert default_policy(env).action_head.action_shape == ()
    assert env_spaces(env)[3] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recurrent": "rnn"}, "recurrent must be None or one of lstm, gru, mingru, attention; got 'rnn'"),
        ({"cnn": "vgg"}, "cnn must be one of nature, impala"),
        ({"activation": "step"}, "activation must be one of"),
        ({"action_distribution": "cauchy"}, "distribution must be one of"),
    ],
)
def test_unknown_options_are_refused(options, message, make_env):
    with pytest.raises(ValueError, match=message):
        default_policy(make_env(spaces.Box(-1, 1, (7,)), spaces.Discrete(3)), **options)


def test_object_without_spaces_is_refused():
    with pytest.raises(TypeError, match="env must have single_observation_space and single_action_space; got dict"):
        default_policy({})
