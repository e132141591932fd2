"""A snapshot is exact, or the env says that it has none."""

import pickle
import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.wrappers import TransformReward

from puffer_emulate import emulate
from puffer_emulate.snapshots import layers_of, restore_snapshot, take_snapshot


class Walk(gymnasium.Env):
    """A walk with a partner that points back at the env."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.partner = {"env": self, "move": self.move, "visited": []}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=1)
        return self.position, {}

    def move(self):
        self.position = self.position + self.np_random.normal(size=1)

    def step(self, action):
        self.partner["move"]()
        self.partner["visited"].append(action)
        return self.position, float(len(self.partner["visited"])), bool(self.np_random.random() < 0.1), False, {}


class Outside(Walk):
    """Keeps its position where no snapshot sees it."""

    positions = np.zeros(1)

    def step(self, action):
        Outside.positions += 1
        return Outside.positions, 0.0, False, False, {}


class GlobalRandom(Walk):
    """Draws from the global stream."""

    def step(self, action):
        return np.array([random.random()]), 0.0, False, False, {}


class Releasing(Walk):
    """Releases something when a copy is let go."""

    def __del__(self): ...


class Holding(Walk):
    """Has an object that only pickles its constructor's arguments."""

    class Simulator(EzPickle):
        pass

    def __init__(self):
        super().__init__()
        self.simulator = self.Simulator()


class Slotted(Walk):
    """Has state beside its dictionary."""

    __slots__ = ("hidden",)


class Unpicklable(Walk):
    """Has a function that cannot be pickled."""

    def __init__(self):
        super().__init__()
        self.reward = lambda: 1.0


class EzWalk(Walk, EzPickle):
    """Its own pickling would forget the position."""

    def __init__(self):
        Walk.__init__(self)
        EzPickle.__init__(self)


def rollout(env, num_steps=40):
    rows = []
    for _ in range(num_steps):
        observations, rewards, terminals, truncations, _ = env.step(np.zeros_like(env.actions))
        final = env.final_observations[terminals | truncations]
        rows.append(b"".join(array.tobytes() for array in (observations, final, rewards, terminals, truncations)))
    return rows, env.episodes().tobytes()


def wrapped():
    return TransformReward(Walk(), np.tanh)


@pytest.mark.parametrize("creator", [Walk, EzWalk, wrapped, lambda: gymnasium.make("CartPole-v1", max_episode_steps=9)])
def test_a_run_goes_on_from_a_snapshot_as_if_never_stopped(creator):
    env = emulate(creator, 3)
    env.reset(seed=4)
    rollout(env, 13)
    assert env.has_state
    state = env.get_state()
    observations = env.observations.copy()
    expected = rollout(env)

    other = emulate(creator, 3)
    other.set_state(state)
    other.observations[...] = observations
    assert rollout(other) == expected
    env.set_state(state)
    env.observations[...] = observations
    assert rollout(env) == expected


def test_a_snapshot_before_the_first_reset_is_exact_too():
    env = emulate(Walk, 2)
    state = env.get_state()
    env.reset(seed=1)
    expected = rollout(env)

    env.set_state(state)
    env.reset(seed=1)
    rollout(env)
    env.set_state(state)
    env.reset(seed=1)
    assert rollout(env)[1] == expected[1]


def test_undrained_records_are_part_of_the_state():
    env = emulate(Walk, 2)
    env.reset(seed=1)
    for _ in range(60):
        env.step(np.zeros_like(env.actions))
    state = env.get_state()
    records = env.episodes()

    other = emulate(Walk, 2)
    other.set_state(state)
    assert len(records)
    assert other.episodes().tobytes() == records.tobytes()


@pytest.mark.parametrize("creator", [Outside, GlobalRandom, Releasing, Holding, Slotted, Unpicklable])
def test_an_env_with_state_elsewhere_has_no_snapshot(creator):
    env = emulate(creator)
    env.reset(seed=0)

    assert not env.has_state
    with pytest.raises(NotImplementedError, match=f"{creator.__name__} must keep its state in picklable attributes"):
        env.get_state()


def test_asking_for_the_state_does_not_touch_the_env():
    env, other = emulate(Walk), emulate(Walk)
    env.reset(seed=2)
    other.reset(seed=2)

    assert env.has_state
    assert len(env.env.partner["visited"]) == 0
    assert rollout(env) == rollout(other)


def test_a_snapshot_cannot_run_code(tmp_path):
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self):
            return (open, (str(marker), "w"))

    env = emulate(Walk)
    env.reset(seed=0)
    evil = pickle.dumps([{"position": Evil()}])
    with pytest.raises(pickle.UnpicklingError, match=r"plain data and classes of .*got (_io|io).open"):
        restore_snapshot(layers_of(env.env), evil)
    with pytest.raises(pickle.UnpicklingError, match="plain values only"):
        env.set_state(pickle.dumps({"worlds": [Evil()]}))

    assert not marker.exists()


def test_a_state_of_another_env_is_refused():
    env = emulate(Walk, 2)
    state = env.get_state()

    with pytest.raises(ValueError, match="state must be of Walk with 1 worlds; got one of Walk with 2"):
        emulate(Walk).set_state(state)
    with pytest.raises(ValueError, match="must come from get_state"):
        env.set_state(pickle.dumps({}))


def test_references_back_to_the_env_lead_to_the_live_one():
    env = Walk()
    env.reset(seed=0)
    snapshot = take_snapshot(layers_of(env))
    restore_snapshot(layers_of(env), snapshot)

    assert env.partner["env"] is env
    assert env.partner["move"].__self__ is env
