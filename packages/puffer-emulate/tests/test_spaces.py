"""Every space that a Gymnasium environment may have, as observation and as action."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import emulate


def box(dtype, shape=(3,)):
    if np.dtype(dtype).kind == "f":
        return spaces.Box(-2, 2, shape, dtype)
    if np.dtype(dtype).kind == "b":
        return spaces.Box(0, 1, shape, dtype)
    return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)


SPACES = {
    **{f"Box {dtype}": box(dtype) for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64")},
    **{f"Box {dtype}": box(dtype) for dtype in ("float16", "float32", "float64")},
    "image": box("uint8", (4, 5, 3)),
    "scalar Box": box("float32", ()),
    "Discrete": spaces.Discrete(5),
    "Discrete with start": spaces.Discrete(5, start=-2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiDiscrete with start": spaces.MultiDiscrete([3, 4], start=[-1, 5]),
    "MultiDiscrete 2-D": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary 2-D": spaces.MultiBinary((2, 3)),
    "Tuple of Discrete": spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2, start=1)]),
    "Dict of Discrete": spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(4)),
    "Tuple of Discrete and MultiBinary": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
    "Tuple of Discrete and MultiDiscrete": spaces.Tuple([spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 2])]),
    "Tuple of Box and Discrete": spaces.Tuple([box("float32"), spaces.Discrete(3, start=-1)]),
    "Dict of mixed": spaces.Dict(
        image=box("uint8", (2, 2, 3)), wide=box("float64"), small=box("int16"), bits=spaces.MultiBinary(3)
    ),
    "nested": spaces.Dict(
        x=spaces.Tuple([box("float32", (2,)), spaces.Dict(y=spaces.Discrete(4), z=box("int32", ()))]),
        w=spaces.MultiDiscrete([3, 3]),
    ),
}


class Echo(gymnasium.Env):
    """Shows samples of its observation space and keeps the actions it gets."""

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space
        self.actions = []

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        self.shown = self.observation_space.sample()
        return self.shown, {}

    def step(self, action):
        self.actions.append(action)
        self.shown = self.observation_space.sample()
        return self.shown, 0.0, False, False, {}


def assert_equal(value, expected):
    if isinstance(expected, dict):
        assert value.keys() == expected.keys()
        for key in expected:
            assert_equal(value[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(value) == len(expected)
        for part, expected_part in zip(value, expected, strict=True):
            assert_equal(part, expected_part)
    else:
        assert np.asarray(value).dtype == np.asarray(expected).dtype
        assert np.array_equal(value, expected)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_observations_come_back_exactly(space):
    env = emulate(lambda: Echo(space, spaces.Discrete(2)), 2)
    observations, _ = env.reset(seed=1)
    for _ in range(10):
        for world, row in enumerate(observations):
            value = env.observation_layout.unflatten(row)
            assert_equal(value, env.envs[world].shown)
            assert space.contains(value)
            assert env.single_observation_space.contains(row)
        observations, *_ = env.step(np.zeros(2, np.int32))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_the_env_gets_valid_actions_of_its_own_space(space):
    env = emulate(lambda: Echo(spaces.Discrete(2), space), 2)
    env.reset(seed=1)
    env.single_action_space.seed(3)
    seen = []
    for _ in range(20):
        for index in range(2):
            if env.action_layout.is_mixed:
                env.action_layout.flatten_into(space.sample(), env.actions[index])
            else:
                env.actions[index] = env.single_action_space.sample()
        env.step(env.actions)
        seen += [made.actions[-1] for made in env.envs]

    assert all(space.contains(action) for action in seen)
    assert all(not np.shares_memory(leaf, env.actions) for leaf in seen if isinstance(leaf, np.ndarray))


def test_actions_with_a_start_reach_every_value():
    env = emulate(lambda: Echo(spaces.Discrete(2), spaces.Discrete(5, start=-2)), 5)
    env.reset(seed=0)
    env.step(np.arange(5))

    assert [made.actions[0] for made in env.envs] == [-2, -1, 0, 1, 2]
    assert env.single_action_space == spaces.Discrete(5)
    assert env.original_action_space.start == -2


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.Discrete(5000)])
def test_an_action_out_of_range_or_of_another_shape_is_refused(space):
    env = emulate(lambda: Echo(spaces.Discrete(2), space), 2)
    env.reset(seed=0)
    for bad in (-1, 5000):
        env.actions[...] = bad
        with pytest.raises(ValueError, match="action of Echo"):
            env.step(env.actions)
    with pytest.raises(ValueError, match=r"actions of Echo must have shape \(2"):
        env.step(env.actions[:1])

    env.actions[...] = 0
    env.step(env.actions)


def test_values_of_other_types_are_cast_to_the_declared_ones():
    space = spaces.Dict(test=spaces.Box(-1, 1, (8, 10), np.float32), idx=spaces.Discrete(5))

    class Loose(Echo):
        def reset(self, *, seed=None, options=None):
            return {"test": np.full((8, 10), 0.5), "idx": 3}, {}

    env = emulate(lambda: Loose(space, spaces.Discrete(2)))
    value = env.observation_layout.unflatten(env.reset(seed=0)[0][0])

    assert value["test"].dtype == np.float32
    assert (value["test"] == 0.5).all()
    assert value["idx"] == 3


def test_a_space_without_a_layout_is_refused_by_name():
    space = spaces.Dict(position=box("float32"), said=spaces.Sequence(spaces.Discrete(3)))

    with pytest.raises(TypeError, match="'said'"):
        emulate(lambda: Echo(space, spaces.Discrete(2)))


@pytest.mark.parametrize(
    ("space", "action", "error"),
    [
        (spaces.Box(-5, 5, (2,), np.int32), 2**40, ValueError),
        (spaces.Box(0, 255, (2,), np.uint8), -1, ValueError),
        (spaces.Box(-5, 5, (2,), np.int32), 1.5, TypeError),
        (spaces.Box(-5, 5, (2,), np.int32), np.nan, TypeError),
        (spaces.Box(0, 1, (2,), np.bool_), 2, TypeError),
        (spaces.MultiDiscrete([3, 3]), 2**32, ValueError),
        (spaces.MultiDiscrete([3, 3]), 1.0, TypeError),
    ],
)
def test_an_action_is_never_wrapped_around_or_rounded(space, action, error):
    env = emulate(lambda: Echo(spaces.Box(-1, 1, (1,)), space))
    env.reset()

    with pytest.raises(error, match="actions of Echo must"):
        env.step(np.full((1, 2), action))


def test_wide_integers_within_the_space_are_taken():
    env = emulate(lambda: Echo(spaces.Box(-1, 1, (1,)), spaces.Box(-5, 5, (2,), np.int32)))
    env.reset()
    env.step(np.array([[3, -5]], np.int64))

    assert env.env.actions[-1].tolist() == [3, -5]
