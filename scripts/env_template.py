"""The smallest environment, to copy: one agent, resets left to the caller.

    python env_template.py
    puffer train env_template:Corridor --train.total-timesteps 100000

An environment that steps many worlds at once in NumPy, and is much faster, is own_puffer_env.py of the examples.
"""

import puffer_vector
from puffer_spaces import PufferEnv, check_env


class Corridor(PufferEnv):
    """Find the open door of a corridor: the left one or the right one, as a lamp says."""

    def __init__(self, length=9, buf=None, seed=None):
        super().__init__(buf, seed)
        self.observation_space = self.make_space(2, low=-1.0, high=1.0)
        self.action_space = self.make_discrete(2)
        self.length = length

    def reset(self, seed=None):  # np_random is already seeded, for each world differently
        self.place, self.num_steps = 0, 0
        self.door = int(self.np_random.choice([-1, 1]))
        return self.observe(), {}

    def step(self, action):
        self.place += 2 * int(action) - 1
        self.num_steps += 1
        terminated = abs(self.place) == self.length // 2  # a door was reached
        truncated = self.num_steps >= 4 * self.length  # the time is over
        reward = float(terminated and self.place * self.door > 0)
        return self.observe(), reward, terminated, truncated, {}

    def observe(self):
        return [self.place / (self.length // 2), self.door]


if __name__ == "__main__":
    check_env(Corridor)
    with puffer_vector.make(Corridor, num_envs=4, seed=1) as vec:
        vec.reset()
        for _ in range(1000):
            vec.step(vec.action_space.sample())
        episodes = vec.episodes()
    print(f"{len(episodes)} episodes of random steps, mean return {episodes['episode_return'].mean():.2f}")
