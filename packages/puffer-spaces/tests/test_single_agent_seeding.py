"""Seeds of an env in the short form."""

import random

import numpy as np
import pytest

from puffer_spaces import SingleAgentEnv, as_puffer_env, reset_env, world_seed


@pytest.fixture
def draws(count):
    """A class that observes numbers of its generator from the first seed on."""

    class Draws(count):
        def reset(self, seed=None):
            if seed is not None:
                self.rng = np.random.default_rng(seed)
                self.seed_seen = seed
            super().reset()
            return self.rng.normal(size=2).astype(np.float32) if hasattr(self, "rng") else self.observation

    return Draws


def test_the_seed_of_a_world_reaches_the_env_once(run, draws):
    env = as_puffer_env(draws)

    first = reset_env(env, 5, first_world=3)[0].tolist()
    assert env.env.seed_seen == world_seed(5, 3)
    run(env, 3)
    later = env.observations.tolist()
    assert later != first
    assert reset_env(env, 5, first_world=3)[0].tolist() == first
    run(env, 3)
    assert env.observations.tolist() == later
    assert reset_env(env, None)[0].tolist() not in (first, later)


def test_an_env_without_a_seed_argument_is_seeded_through_its_generator(count):
    class Draws(count):
        def reset(self):
            super().reset()
            self.observation[0] = self.np_random.normal()
            return self.observation

    one, two = as_puffer_env(Draws), as_puffer_env(Draws)
    assert one.reset()[0].tolist() != two.reset()[0].tolist()
    starts = [reset_env(env, 4, world)[0].tolist() for env in (one, two) for world in (0, 1)]

    assert starts[:2] == starts[2:]
    assert starts[0] != starts[1]


def test_an_old_env_is_seeded_through_its_seed_method(count):
    class Old(count):
        seeds = ()

        def seed(self, seed=None):
            self.seeds = (*self.seeds, seed)

    env = as_puffer_env(Old)
    reset_env(env, 4, 2)
    reset_env(env, None)

    assert env.env.seeds == (world_seed(4, 2),)


def test_a_generator_of_another_kind_is_left_alone(count):
    class OwnGenerator(count):
        def __init__(self):
            self.np_random = np.random.RandomState(0)
            super().__init__()

    env = as_puffer_env(OwnGenerator)
    reset_env(env, 4)

    assert isinstance(env.env.np_random, np.random.RandomState)


def test_global_random_state_is_not_touched(count, run, draws):
    before = np.random.get_state()[1].tolist(), random.getstate()

    for env in (as_puffer_env(count), as_puffer_env(draws)):
        reset_env(env, 4)
        run(env, 10)

    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


def test_the_seed_of_construction_serves_the_first_reset(draws):
    one = SingleAgentEnv(draws(), seed=9)
    two = as_puffer_env(draws, seed=9)

    assert one.reset()[0].tolist() == two.reset()[0].tolist()
    assert one.env.seed_seen == world_seed(9, 0)
    assert one.reset()[0].tolist() == two.reset()[0].tolist() != two.reset()[0].tolist()


def test_a_seeded_reset_restarts_the_count_of_steps(count, run):
    env = as_puffer_env(count)
    reset_env(env, 1)
    run(env, 4)
    reset_env(env, 1)
    run(env, 3)

    assert env.episodes()["step"].tolist() == [3]
    reset_env(env, None)
    run(env, 3)
    assert env.episodes()["step"].tolist() == [6]


@pytest.mark.parametrize("seed", [0, 2**70, np.int64(3), np.uint64(2**64 - 1), np.array(3)])
def test_any_integer_is_a_seed(count, seed):
    assert as_puffer_env(count).reset(seed=seed)[0].tolist() == [[0, 0]]


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.5, TypeError), ("a", TypeError), ([3], TypeError)])
def test_other_seeds_are_refused(count, seed, error):
    with pytest.raises(error, match=r"seed must be .*; got"):
        as_puffer_env(count).reset(seed=seed)
