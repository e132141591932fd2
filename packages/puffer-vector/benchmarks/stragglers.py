"""One slow env of eight, in synchronous and in first-come batches; and the CPU time of a vector env that waits."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import gymnasium as gym
import numpy as np

import puffer_vector
from puffer_spaces import PufferEnv
from puffer_vector.autotune import machine


class Sleeper(PufferEnv):
    """An env whose step sleeps."""

    rebinds_buffers = True

    def __init__(self, delay_s: float = 0.0, buf: Any = None) -> None:
        self.single_observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.num_agents, self.delay_s = 1, delay_s
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> tuple[Any, list[dict[str, Any]]]:  # noqa: ARG002
        return self.observations, []

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[dict[str, Any]]]:  # noqa: ARG002
        time.sleep(self.delay_s)
        return self.observations, self.rewards, self.terminals, self.truncations, []


def rate(seconds: float, **settings: Any) -> float:
    """Return env steps per second of eight envs of which the first sleeps 10 ms and the others 1 ms."""
    delays = [{"delay_s": 0.01 if number == 0 else 0.001} for number in range(8)]
    with puffer_vector.make(Sleeper, 8, env_kwargs=delays, num_workers=8, **settings) as vector:
        actions = np.zeros(vector.agents_per_batch, np.int32)
        vector.reset(seed=0)
        steps, start = 0, time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            vector.step(actions)
            steps += vector.batch_size
        return steps / (now - start)


def idle_share(seconds: float) -> float:
    """Return the share of one CPU that two workers and their caller use while nothing is asked of them."""
    with puffer_vector.make(Sleeper, 2, "processes", 2) as vector:
        vector.reset(seed=0)
        pids = [os.getpid(), *(process.pid for process in vector._processes)]
        time.sleep(0.2)
        before = [_ticks(pid) for pid in pids]
        time.sleep(seconds)
        used = sum(_ticks(pid) - ticks for pid, ticks in zip(pids, before, strict=True))
        return used / os.sysconf("SC_CLK_TCK") / seconds


def _ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    print(machine())
    for backend in ("threads", "processes"):
        sync = rate(arguments.seconds, backend=backend)
        first = rate(arguments.seconds, backend=backend, batch_size=4, order="first_come")
        print(f"{backend}: sync {sync:,.0f} steps/s, first come {first:,.0f} steps/s, ratio {first / sync:.1f}")
    print(f"idle: {idle_share(arguments.idle_seconds) * 100:.2f} % of one CPU")


if __name__ == "__main__":
    main()
