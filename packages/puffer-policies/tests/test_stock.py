import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_policies import Convolutional, Default, LSTMWrapper, ProcgenResnet

LAST, FIRST = spaces.Box(0, 255, (84, 84, 3), np.uint8), spaces.Box(0, 255, (4, 84, 84), np.uint8)
ACTIONS = spaces.Discrete(5)


@pytest.mark.parametrize("with_memory", [False, True])
@pytest.mark.parametrize(
    ("build", "space"),
    [
        (lambda env: Default(env, hidden_size=32), spaces.Box(-1, 1, (6,))),
        (lambda env: Convolutional(env, framestack=4, flat_size=3136), FIRST),
        (lambda env: Convolutional(env, framestack=3, channels_last=True, downsample=2), LAST),
        (lambda env: ProcgenResnet(env, cnn_width=4, mlp_width=32), spaces.Box(0, 255, (64, 64, 3), np.uint8)),
    ],
)
def test_stock_policies_work_alone_and_wrapped(build, space, with_memory, make_env, sample_rows):
    env = make_env(space, ACTIONS)
    policy = build(env)
    if with_memory:
        policy = LSTMWrapper(env, policy, policy.hidden_size, policy.hidden_size)
    observations = sample_rows(env.observation_layout, 4).reshape(2, 2, *space.shape)

    parameters, values = policy.forward_sequence(observations)
    (parameters.sum() + values.sum()).backward()

    assert parameters.shape == (4, 5)
    assert values.shape == (2, 2)
    assert policy.forward_eval(observations[:, 0], policy.initial_state(2))[0].shape == (2, 5)


def test_default_has_one_layer(make_env):
    layers = Default(make_env(spaces.Box(-1, 1, (6,)), ACTIONS)).encoder.layers

    assert [type(layer).__name__ for layer in layers] == ["Linear", "GELU"]


def test_downsampling_sees_every_second_pixel(make_env):
    policy = Convolutional(make_env(LAST, ACTIONS), framestack=3, channels_last=True, downsample=2)
    images = torch.randint(0, 256, (1, 84, 84, 3), dtype=torch.uint8)
    other = images.clone()
    other[:, 1::2] = 0
    other[:, :, 1::2] = 0

    assert torch.equal(policy(images)[1], policy(other)[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"framestack": 4}, "with framestack=4 channels; got shape"),
        ({"framestack": 3}, r"\(channels, height, width\)"),
        ({"framestack": 3, "channels_last": True, "hidden_size": 64}, "must be equal; got 512, 64, 512"),
    ],
)
def test_convolutional_explains_what_does_not_fit(options, message, make_env):
    with pytest.raises(ValueError, match=message):
        Convolutional(make_env(LAST, ACTIONS), **options)
