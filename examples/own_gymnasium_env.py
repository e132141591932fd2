"""Train a Gymnasium environment of your own, with a memory.

    python own_gymnasium_env.py

Or from the command line, in this folder:

    puffer train own_gymnasium_env:Corridor --env.length 8 --policy.rnn lstm --train.total-timesteps 50000
    puffer eval own_gymnasium_env:Corridor
"""

import sys

import gymnasium
import numpy as np

import puffer_vector
from puffer_policies import default_policy
from puffer_train import PuffeRL, evaluate_policy


class Corridor(gymnasium.Env):
    """A light at the entrance tells which of two doors at the far end is open. Only memory finds it."""

    def __init__(self, length: int = 6) -> None:
        self.length = length
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)  # light, position
        self.action_space = gymnasium.spaces.Discrete(3)  # left door, walk, right door

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.light = 0, int(self.np_random.choice([-1, 1]))
        return np.array([self.light, 0], np.float32), {}

    def step(self, action):
        at_doors = self.position == self.length
        right = action == self.light + 1 if at_doors else action == 1
        self.position += 1
        observation = np.array([0, min(self.position / self.length, 1)], np.float32)
        return observation, float(right), bool(at_doors or not right), False, {}


if __name__ == "__main__":
    total_timesteps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    vec = puffer_vector.make(Corridor, num_envs=16, length=4)
    policy = default_policy(vec, hidden_size=64, recurrent="lstm")
    with PuffeRL(vec, policy, total_timesteps=total_timesteps, learning_rate=3e-3, cpu_threads=1) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            row = trainer.mean_and_log()
            print(f"{row['agent_steps']:7.0f} steps, return {row.get('environment/episode_return', 0):.2f} of 5")
        # The environments of an evaluation are made anew, here with their defaults: a longer corridor.
        print(evaluate_policy(policy, Corridor, num_episodes=32, normalizer=trainer.normalizer).to_dict())
