"""Train an environment that steps many worlds at once in NumPy and writes its results in place, as PufferLib 3.0's do.

    python own_puffer_env.py

Or from the command line, in this folder:

    puffer train own_puffer_env:Target --vec.num-envs 256 --train.total-timesteps 500000
"""

import sys

import gymnasium
import numpy as np

import puffer_vector
from puffer_spaces import PufferEnv
from puffer_train import PuffeRL


class Target(PufferEnv):
    """Walk on a line to a target; the walk is cut after 32 steps."""

    has_final_observations = True  # else the last step of a walk that is cut teaches nothing

    def __init__(self, num_envs=1, width=10, buf=None, seed=0):
        self.single_observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.num_agents = self.num_envs = num_envs
        self.width = width
        super().__init__(buf)
        self.place, self.goal, self.num_steps = np.zeros((3, num_envs), np.int64)

    def reset(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.start(np.arange(self.num_envs))
        return self.observations, []

    def start(self, rows):
        self.place[rows] = self.num_steps[rows] = 0
        self.goal[rows] = self.rng.choice([-1, 1], len(rows)) * self.rng.integers(2, self.width, len(rows))
        self.observations[:] = np.stack([self.place, self.goal], 1).clip(-self.width, self.width) / self.width

    def step(self, actions):  # rewards, terminals and truncations are zero when it is called
        self.place += 2 * actions - 1
        self.num_steps += 1
        self.terminals[:] = self.rewards[:] = self.place == self.goal
        self.truncations[:] = ~self.terminals & (self.num_steps >= 32)
        rows = np.flatnonzero(self.terminals | self.truncations)
        self.observations[:, 0] = (self.place / self.width).clip(-1, 1)
        self.final_observations[rows] = self.observations[rows]
        infos = [{"arrived": self.terminals[rows].mean(), "walked": self.num_steps[rows].mean()}] if len(rows) else []
        self.start(rows)
        return self.observations, self.rewards, self.terminals, self.truncations, infos


if __name__ == "__main__":
    total_timesteps = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    vec = puffer_vector.make(Target, num_envs=64, width=8)
    with PuffeRL(vec, total_timesteps=total_timesteps, learning_rate=3e-3, cpu_threads=1) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            row = trainer.mean_and_log()
            print(f"{row['agent_steps']:7.0f} steps", {k: v for k, v in row.items() if k.startswith("environment/")})
