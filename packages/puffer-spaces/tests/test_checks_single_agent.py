"""Envs in the short form are checked like any other."""

import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import CheckError, PufferEnv, check_env


def test_the_short_form_passes():
    class Walk(PufferEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Dict(
                x=spaces.Box(-100, 100, (1,), np.float32), goal=spaces.Discrete(4, start=2)
            )
            self.action_space = self.make_discrete(2)

        def reset(self):
            self.goal = int(self.np_random.integers(2, 6))
            self.x = np.zeros(1, np.float32)
            return {"x": self.x, "goal": self.goal}

        def step(self, action):
            self.x += 2 * float(action) - 1
            done = abs(self.x[0]) >= self.goal
            return {"x": self.x, "goal": self.goal}, float(done), done, {}

    assert check_env(Walk) == []


def test_bounds_of_mixed_rows_are_checked_leaf_by_leaf():
    class Far(PufferEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = self.make_space({"near": (2,), "far": (2,)}, low=-1, high=1)
            self.observation_space["flag"] = spaces.MultiBinary(1)
            self.action_space = self.make_discrete(2)

        def reset(self, seed=None):
            return {"near": [0.0, 0.0], "far": [0.0, 2.0], "flag": [1]}

        def step(self, action):
            return self.reset(), 0.0, False, {}

    with pytest.raises(CheckError, match=r"got 2.0 at index \(1,\) of leaf 'far', declared \[-1.0, 1.0\]"):
        check_env(Far)
