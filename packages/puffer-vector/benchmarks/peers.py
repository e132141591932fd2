"""CartPole-v1 under this package, Gymnasium's vector envs and Stable-Baselines3's, in one run.

Needs puffer-emulate and gymnasium; Stable-Baselines3 is measured where it is installed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import puffer_vector
from puffer_vector.autotune import machine


def make_env() -> gym.Env:
    return gym.make("CartPole-v1")


def ours(num_envs: int, backend: str, workers: int | None) -> tuple[Callable[[Any], Any], Callable[[], None]]:
    vector = puffer_vector.make("gym-CartPole-v1", num_envs, backend, workers)
    vector.reset(seed=0)
    return vector.step, vector.close


def gymnasium(num_envs: int, processes: bool) -> tuple[Callable[[Any], Any], Callable[[], None]]:
    if processes:
        vector: Any = gym.vector.AsyncVectorEnv([make_env] * num_envs, shared_memory=True)
    else:
        vector = gym.vector.SyncVectorEnv([make_env] * num_envs)
    vector.reset(seed=0)
    return vector.step, vector.close


def sb3(num_envs: int, processes: bool) -> tuple[Callable[[Any], Any], Callable[[], None]]:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    vector = (SubprocVecEnv if processes else DummyVecEnv)([make_env] * num_envs)
    vector.reset()
    return vector.step, vector.close


def bare(num_envs: int) -> tuple[Callable[[Any], Any], Callable[[], None]]:
    """Step the envs and do nothing else: what a vector env in one process could reach at most."""
    envs = [make_env() for _ in range(num_envs)]
    for env in envs:
        env.reset(seed=0)

    def step(actions: Any) -> None:
        for env, action in zip(envs, actions.tolist(), strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return step, lambda: None


def rate(step: Callable[[Any], Any], num_envs: int, seconds: float) -> float:
    """Return env steps per second with random actions."""
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, num_envs) for _ in range(16)]
    for number in range(5):
        step(actions[number])
    steps, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        step(actions[steps % 16])
        steps += 1
    return steps * num_envs / (now - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    cpus = puffer_vector.available_cpus()
    print(machine())
    for num_envs in arguments.num_envs:
        cases: dict[str, Callable[[], tuple[Callable[[Any], Any], Callable[[], None]]]] = {
            "bare envs, no vector env": lambda n=num_envs: bare(n),
            "puffer-vector serial": lambda n=num_envs: ours(n, "serial", None),
            f"puffer-vector processes, {cpus} workers": lambda n=num_envs: ours(n, "processes", cpus),
            "gymnasium SyncVectorEnv": lambda n=num_envs: gymnasium(n, False),
            "gymnasium AsyncVectorEnv, shared memory": lambda n=num_envs: gymnasium(n, True),
            "Stable-Baselines3 DummyVecEnv": lambda n=num_envs: sb3(n, False),
            "Stable-Baselines3 SubprocVecEnv": lambda n=num_envs: sb3(n, True),
        }
        for name, open_case in cases.items():
            try:
                step, close = open_case()
            except ImportError as error:
                print(f"{num_envs:4d} envs, {name:42s} not measured: {error}")
                continue
            rates = sorted(rate(step, num_envs, arguments.seconds) for _ in range(arguments.repeats))
            close()
            median = statistics.median(rates)
            print(f"{num_envs:4d} envs, {name:42s} {median:12,.0f} steps/s ({rates[0]:,.0f}..{rates[-1]:,.0f})")


if __name__ == "__main__":
    main()
