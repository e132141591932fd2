"""Envs whose seeds, generators or snapshots break the contract are named."""

import pickle
import random

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import PufferEnv, check_env, world_seed


class Dice(PufferEnv):
    """num_envs worlds of one agent that throws a die on each step, each world with a generator of its own."""

    has_state = True

    def __init__(self, num_envs=3, buf=None):
        self.num_envs = self.num_agents = num_envs
        self.single_observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(6)
        super().__init__(buf)
        self.rngs = [np.random.default_rng(world) for world in range(num_envs)]

    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            self.rngs = [np.random.default_rng(world_seed(seed, first_world + w)) for w in range(self.num_envs)]
        self.throw()
        return self.observations, []

    def step(self, actions):
        self.throw()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def throw(self):
        for world, rng in enumerate(self.rngs):
            self.observations[world] = rng.random(2)

    def get_state(self):
        return pickle.dumps(self.rngs)

    def set_state(self, state):
        self.rngs = pickle.loads(state)


class GlobalNumPy(Dice):
    def throw(self):
        super().throw()
        self.observations[:, 1] = np.random.random()


class GlobalSeed(Dice):
    def reset(self, seed=None, first_world=0, options=None):
        random.seed(42)
        return super().reset(seed, first_world)


class KeptState(Dice):
    resets = 0

    def reset(self, seed=None, first_world=0, options=None):
        result = super().reset(seed, first_world)
        self.resets += 1
        self.observations[0, 0] = 1 / self.resets
        return result


class Unseeded(Dice):
    def reset(self, seed=None, first_world=0, options=None):
        super().reset(seed, first_world)
        self.rngs = [np.random.default_rng() for _ in range(self.num_envs)]
        return self.observations, []


class OneSeed(Dice):
    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            self.rngs = [np.random.default_rng(seed) for _ in range(self.num_envs)]
        return super().reset(None)


class NoNone(Dice):
    def reset(self, seed=0, first_world=0, options=None):
        return super().reset(seed + 0, first_world)


class LocalWorlds(Dice):
    def reset(self, seed=None, first_world=0, options=None):
        return super().reset(None if seed is None else seed + first_world, 0)


class ForgetsState(Dice):
    def set_state(self, state):
        rngs = self.rngs
        super().set_state(state)
        self.rngs = rngs


class HidesState(Dice):
    has_state = False


@pytest.mark.parametrize(
    ("env", "check", "severity", "words"),
    [
        (GlobalNumPy, "global_random_state", "error", "numpy.random"),
        (GlobalSeed, "global_random_state", "error", "random"),
        (KeptState, "determinism", "error", "from the reset on"),
        (Unseeded, "determinism", "error", "seed"),
        (OneSeed, "seeds_differ", "error", "world_seed"),
        (NoNone, "unseeded_reset", "error", "TypeError"),
        (LocalWorlds, "world_numbers", "error", "first_world"),
        (ForgetsState, "snapshots", "error", "random generators"),
        (HidesState, "snapshots", "warning", "has_state = True"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_broken_env_is_diagnosed(assert_diagnosed, env, check, severity, words):
    assert_diagnosed(env, check, severity, words)


def test_global_random_state_is_left_as_it_was():
    np.random.seed(3)
    random.seed(3)
    expected = np.random.get_state()[1].tolist(), random.getstate()

    check_env(GlobalNumPy, raise_errors=False)

    assert (np.random.get_state()[1].tolist(), random.getstate()) == expected
