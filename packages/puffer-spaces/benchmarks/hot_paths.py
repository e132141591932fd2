"""Time what runs at every step of an environment: writing and reading rows, the base class, the short form.

Run: python packages/puffer-spaces/benchmarks/hot_paths.py
"""

import timeit

import numpy as np
from gymnasium import spaces

from puffer_spaces import ActionLayout, Layout, PufferEnv, as_puffer_env, reset_env

NESTED = spaces.Dict(
    first=spaces.Discrete(5),
    second=spaces.Discrete(5),
    third=spaces.Discrete(5),
    position=spaces.Box(0, 1, (3,), np.float32),
    image=spaces.Box(0, 255, (16, 16), np.uint8),
    pair=spaces.MultiDiscrete([3, 4]),
    deep=spaces.Dict(bits=spaces.MultiBinary(4), speed=spaces.Box(-1, 1, (7,), np.float64)),
)


class Short(PufferEnv):
    def __init__(self):
        super().__init__()
        self.observation_space = self.make_space(4)
        self.action_space = self.make_discrete(3)
        self.observation = np.zeros(4, np.float32)

    def reset(self):
        self.tick = 0
        return self.observation

    def step(self, _action):
        self.tick += 1
        return self.observation, 1.0, self.tick == 200, {}


class Batch(PufferEnv):
    def __init__(self):
        self.num_agents = 4
        self.single_observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        super().__init__()

    def reset(self):
        return self.observations, []

    def step(self, _actions):
        return self.observations, self.rewards, self.terminals, self.truncations, []


def microseconds(call, number=5000):
    """Return the best of five mean times of a call, in microseconds."""
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def main():
    """Print one line per path."""
    layout = Layout(NESTED)
    row = np.zeros(layout.row_shape, layout.dtype)
    bound = layout.bind(row)
    value = NESTED.sample()
    choice = ActionLayout(spaces.Discrete(4)).bind(np.zeros(1, np.int32))
    short = as_puffer_env(Short)
    reset_env(short, 0)
    batch = Batch()
    cases = {
        "write an 8-leaf dict to a bound row": lambda: bound.write(value),
        "read it": bound.read,
        "flatten_into any row": lambda: layout.flatten_into(value, row),
        "unflatten any row": lambda: layout.unflatten(row),
        "read one discrete action": choice.read,
        "step of the short form": lambda: short.step(short.actions),
        "  of which its env": lambda: short.env.step(1),
        "step through the base class": lambda: batch.step(batch.actions),
        "  of which the class itself": lambda: Batch.step.__wrapped__(batch, batch.actions),
        "reset_env": lambda: reset_env(batch, 0),
    }
    for name, call in cases.items():
        print(f"{name:40s} {microseconds(call):7.2f} us")


if __name__ == "__main__":
    main()
