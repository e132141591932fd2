"""What a launcher such as torchrun tells a process of its place among the others. Nothing here needs torch."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from puffer_train.validation import ConfigError

_PR_SET_PDEATHSIG = 1
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """This process among those that a launcher started; the defaults are those of a process alone.

    Attributes:
        rank: Number of this process, from 0.
        world_size: Number of processes, on all machines.
        local_rank: Number of this process on its machine, which picks the GPU.
        local_world_size: Number of processes on this machine.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read what torchrun sets; without all of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT a process is alone.

        Raises:
            ConfigError: If a number is none, or the rank is none of the processes.
        """
        if not all(environment.get(name) for name in _VARIABLES):
            return cls()
        rank, world_size = (_number(environment, name) for name in ("RANK", "WORLD_SIZE"))
        if not 0 <= rank < world_size:
            raise ConfigError(
                f"RANK must be below WORLD_SIZE; got RANK={rank}, WORLD_SIZE={world_size}. "
                "Start with torchrun, or unset them."
            )
        local_rank = _number(environment, "LOCAL_RANK", rank)
        return cls(rank, world_size, local_rank, _number(environment, "LOCAL_WORLD_SIZE", world_size))

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process."""
        return self.world_size == 1


def _number(environment: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal():
        raise ConfigError(f"{name} must be a whole number; got {text!r}. Start with torchrun, or unset it.")
    return int(text)


def end_with_launcher() -> None:
    """Have the system send SIGTERM to this process when its launcher is killed, where it can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def share_of_worlds(rank: int, world_size: int, num_envs: int) -> dict[str, int]:
    """Return which worlds a process owns, as arguments of `puffer_vector.make`: `num_envs` and `first_world`.

    Args:
        rank: Number of the process.
        world_size: Number of processes.
        num_envs: Worlds of all processes.

    Raises:
        ConfigError: If the worlds cannot be shared equally.
    """
    if num_envs < 1 or num_envs % world_size:
        nearest = max(1, round(num_envs / world_size)) * world_size
        raise ConfigError(
            f"num_envs must be a multiple of the number of processes; got num_envs={num_envs}, "
            f"{world_size} processes. Use {nearest} envs."
        )
    own = num_envs // world_size
    return {"num_envs": own, "first_world": rank * own}


def share_of_vector(launch: Launch, vec: Mapping[str, Any]) -> dict[str, Any]:
    """Return one process's part of the vector env that the fields of `VecConfig` describe for all processes.

    Worlds and the worlds of a batch are divided by the number of processes, and each machine's CPUs among its own.

    Raises:
        ConfigError: If the sizes cannot be shared equally.
    """
    if launch.is_alone:
        return dict(vec)
    own = {**vec, **share_of_worlds(launch.rank, launch.world_size, vec["num_envs"])}
    if vec["batch_size"] is not None:
        if vec["batch_size"] % launch.world_size:
            raise ConfigError(
                "the vector env's batch_size must be a multiple of the number of processes; "
                f"got batch_size={vec['batch_size']}, {launch.world_size} processes."
            )
        own["batch_size"] = vec["batch_size"] // launch.world_size
    if vec["num_workers"] is None and vec["backend"] != "serial":
        own["num_workers"] = _workers_that_fit(own, _available_cpus() // launch.local_world_size)
    return own


def _workers_that_fit(vec: Mapping[str, Any], cpus: int) -> int | None:
    """Return the largest number of workers up to `cpus` that divides the worlds into whole batches, if there is one."""
    num_envs = vec["num_envs"]
    batch_size = vec["batch_size"] or (num_envs // 2 if vec["mode"] == "async" else num_envs)
    for workers in range(min(max(cpus, 1), num_envs), 0, -1):
        if num_envs % workers == 0 and batch_size % (num_envs // workers) == 0:
            return workers
    return None


def _available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
