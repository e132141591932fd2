"""Seeds of Gymnasium environments and of their worlds."""

import gymnasium
import numpy as np
from gymnasium import spaces

from puffer_emulate import GymnasiumPufferEnv, emulate
from puffer_spaces import world_seed


class Walk(gymnasium.Env):
    """A random walk of its own generator."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=1)
        return self.position, {}

    def step(self, action):
        self.position = self.position + self.np_random.normal(size=1)
        return self.position, 0.0, bool(self.np_random.random() < 0.2), False, {}


def test_worlds_get_their_own_seeds_and_only_on_a_seeded_reset(counter, zeros):
    env = emulate(counter, 3)
    env.reset(seed=5, first_world=10)
    for _ in range(3):
        env.step(zeros(env))
    env.reset()

    expected = [[(world_seed(5, 10 + world), None), (None, None), (None, None)] for world in range(3)]
    assert [made.calls for made in env.envs] == expected


def test_the_same_seed_repeats_a_run_and_continues_the_random_sequence(zeros):
    def rollout(env, seed):
        rows = [env.reset(seed=seed)[0].copy()]
        rows.extend(env.step(zeros(env))[0].copy() for _ in range(30))
        return np.stack(rows)

    first = rollout(emulate(Walk, 4), 10)
    again = emulate(Walk, 4)
    rollout(again, 11)

    assert (rollout(again, 10) == first).all()
    assert len(np.unique(first[0])) == 4
    assert len(np.unique(first)) == first.size


def test_worlds_without_a_seed_differ():
    observations, _ = emulate(Walk, 4).reset()

    assert len(np.unique(observations)) == 4


def test_a_seed_of_the_constructor_counts_for_a_first_reset_without_one():
    first = GymnasiumPufferEnv(Walk, seed=3).reset()[0].item()
    second = GymnasiumPufferEnv(Walk, seed=4).reset(seed=3)[0].item()

    assert first == second


def test_the_joint_spaces_are_seeded_and_differ_by_row(counter):
    env = emulate(counter, 4)
    env.action_space.seed(7)
    first = [env.action_space.sample() for _ in range(20)]
    env.action_space.seed(7)
    second = [env.action_space.sample() for _ in range(20)]

    assert np.array_equal(first, second)
    assert len({tuple(column) for column in np.array(first).T}) == 4
