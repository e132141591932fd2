"""Steps per second of emulated Gymnasium environments in one process, beside Gymnasium's own vector env.

Run: python packages/puffer-emulate/benchmarks/bench_gymnasium.py
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from puffer_emulate import emulate

ROUNDS = 7
SECONDS_PER_ROUND = 0.3


class DictEnv(gymnasium.Env):
    """Costs nothing itself: it returns one observation again and again."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (84, 84, 3), np.uint8),
        vector=spaces.Box(-1, 1, (10,), np.float32),
        choice=spaces.Discrete(5),
    )
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.observation = {"image": np.ones((84, 84, 3), np.uint8), "vector": np.ones(10, np.float32), "choice": 3}

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - the API's arguments
        return self.observation, {}

    def step(self, action):  # noqa: ARG002
        return self.observation, 0.0, False, False, {}


def cartpole():
    return gymnasium.make("CartPole-v1")


def time_of(step: Callable[[], object]) -> float:
    """Return the seconds of one call, over about SECONDS_PER_ROUND."""
    num_calls = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < SECONDS_PER_ROUND:
        for _ in range(16):
            step()
        num_calls += 16
    return elapsed / num_calls


def stepper(env, num_envs: int, dtype: type) -> Callable[[], object]:
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (1024, num_envs)).astype(dtype)
    at = iter(range(1 << 62))
    return lambda: env.step(actions[next(at) % 1024])


def bare(creator, num_envs: int) -> Callable[[], object]:
    """Step the envs alone, without wrappers, buffers or a contract: what no vector env can be faster than."""
    envs = [creator().unwrapped for _ in range(num_envs)]
    for env in envs:
        env.reset(seed=0)
    actions = [np.int64(action) for action in np.random.default_rng(0).integers(0, 2, 1024)]
    at = iter(range(1 << 62))

    def step() -> None:
        for env in envs:
            _, _, terminated, truncated, _ = env.step(actions[next(at) % 1024])
            if terminated or truncated:
                env.reset()

    return step


def compare(title: str, creator, num_envs: int) -> None:
    steppers = {
        "bare envs": bare(creator, num_envs),
        "puffer_emulate": stepper(emulate(creator, num_envs), num_envs, np.int32),
        "SyncVectorEnv": stepper(SyncVectorEnv([creator] * num_envs), num_envs, np.int64),
    }
    times: dict[str, list[float]] = {name: [] for name in steppers}
    for _ in range(ROUNDS):
        for name, step in steppers.items():
            times[name].append(time_of(step))
    print(f"\n{title}, {num_envs} envs")
    reference = statistics.median(times["SyncVectorEnv"])
    for name, values in times.items():
        median = statistics.median(values)
        low, middle, high = (value / num_envs * 1e6 for value in (min(values), median, max(values)))
        print(
            f"  {name:16s} {num_envs / median:12,.0f} steps/s   {middle:7.2f} us per env ({low:.2f}..{high:.2f})   "
            f"{reference / median:5.2f} x SyncVectorEnv"
        )


def main() -> None:
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, Gymnasium {gymnasium.__version__}")
    for num_envs in (64, 8, 1):
        compare("CartPole-v1", cartpole, num_envs)
    for num_envs in (1, 8):
        compare("Dict of image 84x84x3, vector, choice", DictEnv, num_envs)


if __name__ == "__main__":
    main()
