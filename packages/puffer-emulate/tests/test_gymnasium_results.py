"""What a Gymnasium environment may return, and what names its faults."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import GymnasiumPufferEnv, emulate


class Constant(gymnasium.Env):
    """Returns what it is told to return."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, observation, reward=0.0, terminated=False, truncated=False):
        self.observation_space = space
        self.result = (observation, reward, terminated, truncated, {})

    def reset(self, *, seed=None, options=None):
        return self.result[0], {}

    def step(self, action):
        return self.result


@pytest.mark.parametrize("reward", [1, True, 1.5, np.float32(1.5), np.array(1.5), np.array([1.5]), np.int64(2)])
@pytest.mark.parametrize("flag", [True, 1, np.True_, np.array(True), np.array([True])])
def test_scalars_of_every_kind_are_taken(zeros, reward, flag):
    space = spaces.Box(0, 1, (1,), np.float32)
    env = emulate(lambda: Constant(space, np.zeros(1, np.float32), reward, flag))
    env.reset(seed=0)
    _, rewards, terminals, _, _ = env.step(zeros(env))

    assert rewards.item() == float(np.asarray(reward).item())
    assert rewards.dtype == np.float32
    assert terminals.item() is True


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((np.zeros(1), np.zeros(2), False, False, {}), r"reward of Told, world 0, must be one number.*\(2,\)"),
        ((np.zeros(1), 0.0, np.zeros(2, bool), False, {}), "terminated and truncated of Told must be one bool"),
        ((np.zeros(1), 0.0, True, np.zeros(2, bool), {}), "truncated of Told, world 0, must be one"),
        ((np.zeros(1), 0.0, False, {}), "must return .* got a tuple of 4"),
        (None, "step of Told must return"),
        ((np.zeros(3), 0.0, False, False, {}), r"observation of Told, world 0: .*shape \(1,\).*\(3,\)"),
        ((np.zeros(3), 0.0, True, False, {}), r"observation of Told, world 0: .*shape \(1,\).*\(3,\)"),
    ],
)
def test_a_bad_result_names_the_env_and_the_fault(zeros, result, message):
    class Told(Constant):
        def step(self, action):
            return result

    env = emulate(lambda: Told(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)))
    env.reset(seed=0)

    with pytest.raises((TypeError, ValueError), match=message):
        env.step(zeros(env))


@pytest.mark.parametrize("info", [[1], "score", 5])
@pytest.mark.parametrize("is_over", [False, True])
def test_infos_that_are_no_dicts_are_refused(info, is_over):
    env = GymnasiumPufferEnv(Constant(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)))
    env.reset()
    env.env.result = (np.zeros(1, np.float32), 1.0, is_over, False, info)

    with pytest.raises(TypeError, match=r"info of Constant, world 0, must be a dict; got"):
        env.step([0])


def test_a_flag_of_nan_and_a_reward_beyond_floats_are_refused():
    for reward, flag, words in ((0.0, np.nan, "terminated of .* got nan"), (10**400, False, "reward of .* must fit")):
        env = GymnasiumPufferEnv(Constant(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32), reward, flag))
        env.reset()
        with pytest.raises(ValueError, match=words):
            env.step([0])


def test_an_old_reset_is_refused_with_what_it_must_return():
    class Old(Constant):
        def reset(self, *, seed=None, options=None):
            return np.zeros(1)

    env = emulate(lambda: Old(spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)))

    with pytest.raises(TypeError, match=r"reset of Old must return \(observation, info\)"):
        env.reset(seed=0)


def test_a_bad_leaf_is_named():
    space = spaces.Dict(counts=spaces.MultiDiscrete([4, 11]), image=spaces.Box(0, 255, (2, 2), np.uint8))
    image = np.zeros((2, 2), np.uint8)
    good = emulate(lambda: Constant(space, {"counts": [1, 3], "image": image}))
    bad = emulate(lambda: Constant(space, {"counts": [1, 3, 0], "image": image}))
    missing = emulate(lambda: Constant(space, {"image": image}))

    observations, _ = good.reset(seed=0)
    assert good.observation_layout.unflatten(observations[0])["counts"].tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"observation of Constant, world 0: leaf 'counts' must have shape \(2,\)"):
        bad.reset(seed=0)
    with pytest.raises(KeyError, match="leaf 'counts' must be given"):
        missing.reset(seed=0)


def test_an_error_of_the_env_keeps_its_type_and_names_the_world(counter, zeros):
    class Failing(counter):
        def step(self, action):
            raise ArithmeticError("boom")

    env = emulate(Failing, 2)
    env.reset(seed=0)

    with pytest.raises(ArithmeticError, match="boom") as caught:
        env.step(zeros(env))
    assert caught.value.__notes__ == ["raised by step of world 0 of Failing"]
