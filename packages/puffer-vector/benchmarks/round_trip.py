"""Time of one vector step of an env that does nothing, for each backend: what the hand-over alone costs."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import gymnasium as gym
import numpy as np

import puffer_vector
from puffer_spaces import PufferEnv


class Nothing(PufferEnv):
    """An env of any number of agents whose step costs as little as a Python step can."""

    clears_flags = True
    rebinds_buffers = True

    def __init__(self, agents: int = 1, buf: Any = None) -> None:
        self.single_observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.num_agents = agents
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> tuple[Any, list[dict[str, Any]]]:  # noqa: ARG002
        return self.observations, []

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[dict[str, Any]]]:  # noqa: ARG002
        return self.observations, self.rewards, self.terminals, self.truncations, []


def step_us(env: Any, actions: Any, repeats: int, seconds: float = 0.2) -> dict[str, float]:
    """Return the median, smallest and largest microseconds of a step over `repeats` runs."""
    for _ in range(100):
        env.step(actions)
    times = []
    for _ in range(repeats):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(50):
                env.step(actions)
            count += 50
        times.append((time.perf_counter() - start) / count * 1e6)
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {}
    for agents in arguments.agents:
        bare = Nothing(agents)
        bare.reset()
        results[f"bare, {agents} agents"] = step_us(bare, np.zeros(agents, np.int32), arguments.repeats)
        cases = [("serial", 1)] + [(b, w) for b in ("threads", "processes") for w in arguments.workers]
        for backend, workers in cases:
            with puffer_vector.make(
                Nothing, num_envs=workers, backend=backend, num_workers=workers, agents=agents
            ) as vector:
                vector.reset(seed=0)
                actions = np.zeros(vector.agents_per_batch, np.int32)
                name = f"{backend}, {workers} workers, {agents} agents each"
                results[name] = step_us(vector, actions, arguments.repeats)
    if arguments.json:
        print(json.dumps(results, indent=1))
        return
    for name, result in results.items():
        print(f"{name:45s} {result['median']:8.2f} us  ({result['min']:.2f}..{result['max']:.2f})")


if __name__ == "__main__":
    main()
