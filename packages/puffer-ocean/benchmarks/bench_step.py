"""Steps per second of native environments on one core, action copy and the whole contract included.

python packages/puffer-ocean/benchmarks/bench_step.py [NAME ...] [--num-envs 4096] [--seconds 1] [--repeats 5]

Each repeat steps through precomputed sets of random actions. The figure is the median over the repeats, with the
smallest and largest; a step of an agent counts. The last column is the time of one step() call with one world.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from puffer_ocean import OceanEnv, env_specs

NUM_SETS = 16


def seconds_per_step(name: str, num_envs: int, seconds: float) -> float:
    """Return the time of one step() call with num_envs worlds."""
    env = OceanEnv(name, num_envs, seed=0)
    env.reset()
    rng = np.random.default_rng(0)
    space = env.single_action_space
    if env.actions.dtype == np.int32:
        high = getattr(space, "n", None) or space.nvec
        sets = [rng.integers(0, high, env.actions.shape).astype(np.int32) for _ in range(NUM_SETS)]
    else:
        sets = [rng.uniform(-1, 1, env.actions.shape).astype(np.float32) for _ in range(NUM_SETS)]
    step, drain = env.step, env.episodes
    for _ in range(max(4, 20_000 // num_envs)):  # past the first episodes
        for actions in sets:
            step(actions)
    drain()
    calls, elapsed = 0, 0.0
    while elapsed < seconds:
        start = time.perf_counter()
        for _ in range(max(1, 4096 // num_envs)):
            for actions in sets:
                step(actions)
        drain()
        elapsed += time.perf_counter() - start
        calls += max(1, 4096 // num_envs) * NUM_SETS
    env.close()
    return elapsed / calls


def main() -> None:
    names = [spec.kwargs["name"] for spec in env_specs() if "name" in spec.kwargs]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=names, metavar="NAME")
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"{'environment':<16}{'million steps/s':>16}{'min':>9}{'max':>9}{'1 world, us':>13}")
    for name in args.names:
        env = OceanEnv(name, args.num_envs)
        rows = env.num_agents
        env.close()
        rates = [rows / seconds_per_step(name, args.num_envs, args.seconds) / 1e6 for _ in range(args.repeats)]
        single = statistics.median(seconds_per_step(name, 1, args.seconds) for _ in range(args.repeats)) * 1e6
        print(f"{name:<16}{statistics.median(rates):>16.1f}{min(rates):>9.1f}{max(rates):>9.1f}{single:>13.2f}")


if __name__ == "__main__":
    main()
