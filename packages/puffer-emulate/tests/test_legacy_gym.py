"""Environments of the old gym API, written as doubles of its generations."""

import logging

import numpy as np
import pytest
from gymnasium import spaces

from puffer_emulate import LegacyGymPufferEnv, creator_of, emulate
from puffer_spaces import MissingAdapter, as_puffer_env, world_seed


class OldBox:
    """A space of a foreign library."""

    def __init__(self, low, high, shape, dtype):
        self.low, self.high, self.shape, self.dtype = low, high, shape, np.dtype(dtype)

    def contains(self, value):
        return np.shape(value) == self.shape


class OldDiscrete:
    """A space of a foreign library, without equality."""

    def __init__(self, n):
        self.n = n


class Gym21:
    """reset() -> observation; step -> 4 values; seed(); render(mode)."""

    metadata = {"render.modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, length=4, cut=False):
        self.observation_space = OldBox(-1.0, 1.0, (3,), np.float32)
        self.action_space = OldDiscrete(2)
        self.length, self.cut = length, cut
        self.rng = np.random.default_rng()
        self.seeds = []
        self.unwrapped = self

    def seed(self, seed=None):
        self.seeds.append(seed)
        self.rng = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        self.count = 0
        return self.rng.uniform(-1, 1, 3)

    def step(self, action):
        self.count += 1
        done = self.count == self.length
        info = {"TimeLimit.truncated": True} if done and self.cut else {}
        return self.rng.uniform(-1, 1, 3), 1, done, info

    def render(self, mode="human"):
        return mode

    def close(self): ...


class Wrapped:
    """Passes any arguments on, as old wrappers do."""

    def __init__(self, env):
        self.env = env
        self.unwrapped = env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        return self.env.step(action)

    def seed(self, seed=None):
        return self.env.seed(seed)


class Gym26(Gym21):
    """reset(seed, options) -> (observation, info); step -> 5 values."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.seed(seed)
        return super().reset(), {"options": options}

    def step(self, action):
        observation, reward, done, _info = super().step(action)
        return observation, reward, done and not self.cut, done and self.cut, {}

    def render(self):
        return "frame"


@pytest.mark.parametrize("kind", [Gym21, Gym26, lambda **kwargs: Wrapped(Gym21(**kwargs))])
@pytest.mark.parametrize("cut", [False, True])
def test_ends_and_cuts_are_told_apart(zeros, kind, cut):
    env = emulate(kind, 2, cut=cut)
    env.reset(seed=0)
    for _ in range(4):
        _, rewards, terminals, truncations, _ = env.step(zeros(env))

    assert isinstance(env, LegacyGymPufferEnv)
    assert terminals.tolist() == [not cut] * 2
    assert truncations.tolist() == [cut] * 2
    assert rewards.tolist() == [1, 1]
    assert env.episodes()["episode_length"].tolist() == [4, 4]


@pytest.mark.parametrize("kind", [Gym21, Gym26, lambda: Wrapped(Gym21())])
def test_worlds_are_seeded_once_and_go_on_by_themselves(zeros, kind):
    env = emulate(kind, 2)
    first = env.reset(seed=7)[0].copy()
    for _ in range(9):
        env.step(zeros(env))

    assert (env.reset(seed=7)[0] == first).all()
    assert [getattr(made, "env", made).seeds for made in env.envs] == [[world_seed(7, index)] * 2 for index in range(2)]


@pytest.mark.parametrize("kind", [Gym21, Gym26])
def test_the_contract_holds(errors, kind):
    assert errors(emulate(kind, 2)) == []


def test_an_env_without_a_seed_says_so_once(caplog):
    class Seedless(Gym21):
        seed = None

    with caplog.at_level(logging.WARNING):
        emulate(Seedless, 2).reset(seed=1)

    assert [record.getMessage() for record in caplog.records] == [
        "Seedless has no way to be seeded: it draws as its constructor seeded it (said once)."
    ]


def test_an_observation_that_looks_like_a_result_stays_one():
    class Paired(Gym21):
        def __init__(self):
            super().__init__()
            self.observation_space = (OldBox(-1.0, 1.0, (3,), np.float64), {"n": OldDiscrete(4)})

        def reset(self):
            return super().reset(), {"n": 2}

    env = emulate(Paired)

    assert isinstance(env.original_observation_space, spaces.Tuple)
    assert env.observation_layout.unflatten(env.reset(seed=0)[0][0])[1] == {"n": 2}


def test_options_need_a_reset_that_takes_them():
    assert emulate(Gym26).reset(seed=0, options={"a": 1})[1] == [{"options": {"a": 1}, "agent_index": 0}]
    with pytest.raises(TypeError, match="reset of Gym21 must take options to be given any"):
        emulate(Gym21).reset(seed=0, options={"a": 1})


def test_both_ways_of_rendering_work():
    for kind, frame in ((Gym21, "rgb_array"), (Gym26, "frame")):
        env = emulate(kind)
        env.reset(seed=0)
        assert env.render() == frame


def test_as_puffer_env_takes_them_but_no_batches():
    assert isinstance(as_puffer_env(Gym21()), LegacyGymPufferEnv)
    batch = Gym21()
    batch.num_envs = 4
    with pytest.raises(MissingAdapter):
        as_puffer_env(batch)
    with pytest.raises(ValueError, match="an env object can be one world"):
        creator_of(Gym21())


class Returns(Gym21):
    """Returns what it is told to return."""

    def __init__(self, result):
        super().__init__()
        self.result = result

    def step(self, action):
        return self.result


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (None, TypeError, r"step of Returns must return \(observation, reward, done, info\)"),
        (5, TypeError, "step of Returns must return"),
        ((np.zeros(3), 1.0, True, [1]), TypeError, "info of Returns must be a dict; got"),
        ((np.zeros(3), 1.0, "False", {}), TypeError, "done of Returns must be one number; got 'False'"),
        ((np.zeros(3), 1.0, None, {}), TypeError, "done of Returns must be one number; got None"),
        ((np.zeros(3), 1.0, np.nan, {}), ValueError, "done of Returns must be true or false; got nan"),
        ((np.zeros(3), 1.0, np.zeros(2), {}), ValueError, "done of Returns must be one number; got an array"),
    ],
)
def test_what_an_old_step_may_not_return_is_named(result, error, words):
    env = emulate(lambda: Returns(result))
    env.reset()

    with pytest.raises(error, match=words):
        env.step([0])
