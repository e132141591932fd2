"""A small environment whose episodes are short or long, registered as `test-walk`."""

import pickle
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from puffer_spaces import EnvSpec, Episodes, Parameter, PufferEnv, register, world_seed

SHORT, LONG = 2, 20

# Small tensors gain nothing from threads, and threads that wait for each other on a busy machine cost much.
torch.set_num_threads(1)


class Walk(PufferEnv):
    """Each step with action 1 pays 1. An episode has 2 or 20 steps, by chance, known only to the environment.

    The observation is [share of the episode walked, width]. Every second world ends by truncation.
    """

    rebinds_buffers = True
    has_final_observations = True
    has_state = True
    episode_extras = ("width",)

    made: ClassVar[list["Walk"]] = []

    def __init__(self, num_envs=1, width=5, gait="steady", buf=None):
        if gait == "broken":
            raise ValueError("gait must not be broken; got broken.")
        self.single_observation_space = Box(-1.0, 100.0, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_envs = self.num_agents = num_envs
        self.width = width
        self.num_steps = 0
        self.records = Episodes(self.episode_extras)
        self.generators = [np.random.default_rng(world) for world in range(num_envs)]
        self.walked, self.paid, self.length = (np.zeros(num_envs, np.int64) for _ in range(3))
        Walk.made.append(self)
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            seeds = [world_seed(seed, first_world + world) for world in range(self.num_envs)]
            self.generators = [np.random.default_rng(world_seed) for world_seed in seeds]
            self.num_steps = 0
        for world in range(self.num_envs):
            self._begin(world)
        return self.observations, []

    def step(self, actions):
        self.num_steps += 1
        paid = np.asarray(actions).reshape(-1) == 1
        self.rewards[:] = paid
        self.paid += paid
        self.walked += 1
        self.observations[:, 0] = self.walked / self.length
        for world in np.flatnonzero(self.walked == self.length):
            self.final_observations[world] = self.observations[world]
            (self.truncations if world % 2 else self.terminals)[world] = True
            values = float(self.paid[world]), int(self.walked[world]), float(self.length[world]), 0.5, float(self.width)
            self.records.append(self.num_steps, world, 0, *values)
            self._begin(world)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def episodes(self):
        return self.records.drain()

    def get_state(self):
        parts = (self.generators, self.walked, self.paid, self.length, self.num_steps, self.records.drain())
        return pickle.dumps(parts)

    def set_state(self, state):
        self.generators, self.walked, self.paid, self.length, self.num_steps, records = pickle.loads(state)
        self.records.extend(records)

    def _begin(self, world):
        self.length[world] = self.generators[world].choice([SHORT, LONG])
        self.walked[world] = self.paid[world] = 0
        self.observations[world] = (0.0, self.width)


@pytest.fixture
def walk_spec():
    """The spec of `test-walk`, registered."""
    Walk.made.clear()
    return register(
        EnvSpec(
            "test-walk",
            Walk,
            parameters=(
                Parameter("width", int, 5, low=1, high=9, doc="Cells in a row."),
                Parameter("gait", str, "steady", doc="How to walk."),
            ),
            batched=True,
            aliases=("puffer_walk",),
        )
    )
