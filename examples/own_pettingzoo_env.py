"""Train several agents in a PettingZoo environment of your own; `pettingzoo` itself need not be installed.

    python own_pettingzoo_env.py

Or from the command line, in this folder:

    puffer train own_pettingzoo_env:Meeting --train.total-timesteps 50000
"""

import sys

import numpy as np
from gymnasium import spaces

import puffer_vector
from puffer_train import PuffeRL


class Meeting:  # or class Meeting(pettingzoo.ParallelEnv)
    """Two walkers on a line each earn a point when they meet; who steps off the line is out."""

    metadata = {"name": "meeting"}
    possible_agents = ["red", "blue"]

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (2,), np.float32)  # own place, the other's place

    def action_space(self, agent):
        return spaces.Discrete(3)  # left, stay, right

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.num_steps = list(self.possible_agents), 0
        self.places = dict(zip(self.agents, (int(place) for place in self.rng.integers(-8, 9, 2)), strict=True))
        return self.observations(), {agent: {} for agent in self.agents}

    def observations(self):
        red, blue = (self.places[agent] / 9 for agent in self.possible_agents)
        rows = {"red": np.array([red, blue], np.float32), "blue": np.array([blue, red], np.float32)}
        return {agent: rows[agent] for agent in self.agents}

    def step(self, actions):
        self.num_steps += 1
        for agent, action in actions.items():
            self.places[agent] += int(action) - 1
        met = abs(self.places["red"] - self.places["blue"]) <= 1 and len(self.agents) == 2
        ended = {agent: met or abs(self.places[agent]) > 8 for agent in self.agents}
        cut = {agent: self.num_steps >= 30 and not ended[agent] for agent in self.agents}
        rewards = dict.fromkeys(self.agents, 1.0 if met else -0.01)
        result = self.observations(), rewards, ended, cut, {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not ended[agent] and not cut[agent]]
        return result

    def close(self): ...


if __name__ == "__main__":
    total_timesteps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    vec = puffer_vector.make(Meeting, num_envs=16)  # 32 rows: two agents in each of 16 worlds
    with PuffeRL(vec, total_timesteps=total_timesteps, learning_rate=3e-3, cpu_threads=1) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            row = trainer.mean_and_log()
            print(f"{row['agent_steps']:7.0f} steps, return {row.get('environment/episode_return', 0):.2f}")
