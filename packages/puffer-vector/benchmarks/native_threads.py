"""One native env object in slices over threads against the calling thread alone, for growing batches."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import puffer_vector
from puffer_vector.autotune import machine


def random_actions(vector: Any, seed: int) -> np.ndarray:
    """Return one action for each agent."""
    vector.action_space.seed(seed)
    return np.asarray(vector.action_space.sample())


def rate(vector: Any, seconds: float) -> float:
    """Return agent steps per second."""
    batches = [random_actions(vector, seed) for seed in range(32)]
    steps, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        for actions in batches:
            vector.step(actions)
        steps += len(batches)
        vector.episodes()
    return steps * vector.agents_per_batch / (now - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", nargs="?", default="ocean-squared")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 256, 1024, 4096, 16384])
    parser.add_argument("--num-workers", type=int, default=puffer_vector.available_cpus())
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    for num_envs in arguments.num_envs:
        with (
            puffer_vector.make(arguments.env, num_envs) as alone,
            puffer_vector.make(arguments.env, num_envs, "threads", arguments.num_workers) as shared,
        ):
            alone.reset(seed=0)
            shared.reset(seed=0)
            rates = [
                (rate(alone, arguments.seconds), rate(shared, arguments.seconds)) for _ in range(arguments.repeats)
            ]
        ratios = sorted(its / mine for mine, its in rates)
        mine, its = (statistics.median(values) for values in zip(*rates, strict=True))
        print(
            f"{arguments.env}, {num_envs:6d} worlds: alone {mine / 1e6:8.2f} M/s, {arguments.num_workers} threads "
            f"{its / 1e6:8.2f} M/s, ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
