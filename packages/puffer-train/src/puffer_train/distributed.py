"""The processes of one run. Alone, everything here does nothing.

Rank r owns worlds [r N / W, (r + 1) N / W) and block r of the segments. Sums of counts, moments and gradients over all
ranks make each update that of one process which has all segments in W blocks.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed

from puffer_train.config import ConfigError, TrainConfig
from puffer_train.errors import RunError
from puffer_train.launch import Launch, end_with_launcher, share_of_worlds

_LOCAL_SETTINGS = ("device", "cpu_threads")


class RankError(RunError):
    """Another process of the run ended, or did not answer in time."""


@dataclass(frozen=True)
class Ranks:
    """This process among the processes of the run.

    Every method but `share` is a meeting: all processes have to call it, in the same order.

    Attributes:
        rank: Number of this process, from 0. Rank 0 logs and writes.
        world_size: Number of processes.
    """

    rank: int = 0
    world_size: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """Return the ranks of the process group that torch.distributed has, or those of a single process."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return cls()

    @classmethod
    def join(cls, timeout_s: float = 300.0) -> Ranks:
        """Return `current`, after making the process group where torchrun started this process and there is none yet.

        The group lasts until the process ends, and the process ends when the launcher is killed.

        Args:
            timeout_s: Seconds that a process waits for the others, here and later.

        Raises:
            RankError: If a process does not come.
        """
        launch = Launch.from_environment()
        if launch.is_alone or torch.distributed.is_initialized():
            return cls.current()
        with _lost_processes():
            torch.distributed.init_process_group(_backend(launch), timeout=datetime.timedelta(seconds=timeout_s))
        atexit.register(_leave)
        end_with_launcher()
        return cls.current()

    @property
    def is_first(self) -> bool:
        """Whether this is the process that logs and writes."""
        return self.rank == 0

    def share(self, num_envs: int) -> dict[str, int]:
        """Return which of `num_envs` worlds this process owns, as arguments of `puffer_vector.make`.

        ```text
        vec = puffer_vector.make("ocean-breakout", seed=1, **Ranks.join().share(64))
        ```

        Raises:
            ConfigError: If the worlds cannot be shared equally.
        """
        return share_of_worlds(self.rank, self.world_size, num_envs)

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace `tensor` by its sum over all processes and return it."""
        if self.world_size > 1:
            with _lost_processes():
                torch.distributed.all_reduce(tensor)
        return tensor

    def sum_gradients_(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes, in one message.

        A parameter that no process has a gradient of gets none: weight decay would move it.
        """
        if self.world_size == 1:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        is_given = gradients[0].new_tensor([p.grad is not None for p in parameters])
        flat = self.sum_(torch.cat([*(gradient.reshape(-1) for gradient in gradients), is_given]))
        offset = 0
        for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            part = flat[offset : offset + gradient.numel()].view_as(gradient)
            offset += gradient.numel()
            if parameter.grad is not None or flat[index - len(parameters)]:
                parameter.grad = part.clone()

    def broadcast_(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        if self.world_size > 1:
            with _lost_processes():
                for tensor in tensors:
                    torch.distributed.broadcast(tensor.detach(), 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.sum_(torch.zeros(1))

    def all(self, value: Any) -> list[Any]:
        """Return the values of all processes, in the order of their ranks; any value that can be pickled."""
        values = [value] * self.world_size
        if self.world_size > 1:
            with _lost_processes():
                torch.distributed.all_gather_object(values, value)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes on rank 0, and an empty list on the others."""
        if self.world_size == 1:
            return [value]
        values = [None] * self.world_size if self.is_first else None
        with _lost_processes():
            torch.distributed.gather_object(value, values)
        return values or []


def check_agreement(ranks: Ranks, vec: Any, config: TrainConfig) -> None:
    """Check that the processes have the same settings, and each its own part of one numbering of worlds.

    Raises:
        ConfigError: On all of them, if they do not.
    """
    if ranks.world_size == 1:
        return
    world_ids = getattr(vec, "world_ids", None)
    first_world = ranks.rank * vec.num_envs if world_ids is None else int(world_ids[0])
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _LOCAL_SETTINGS}
    everybody = ranks.all((first_world, vec.num_envs, vec.num_agents, settings))
    first_worlds, num_envs, num_agents, their_settings = zip(*everybody, strict=True)
    if len(set(num_envs)) > 1 or len(set(num_agents)) > 1:
        raise ConfigError(
            "all processes must have as many worlds and agents; "
            f"got num_envs={list(num_envs)}, num_agents={list(num_agents)}."
        )
    if list(first_worlds) != [rank * vec.num_envs for rank in range(ranks.world_size)]:
        raise ConfigError(
            "each process must have its own worlds, in the order of ranks; "
            f"got first_world={list(first_worlds)} with num_envs={vec.num_envs} each. "
            f"Make the vector env with **Ranks.join().share({vec.num_envs * ranks.world_size})."
        )
    for name, value in settings.items():
        values = [theirs[name] for theirs in their_settings]
        if any(other != value for other in values):
            raise ConfigError(f"all processes must have the same settings; got {name}={values}.")


def _backend(launch: Launch) -> str:
    """Return gloo for tensors on the CPU, with NCCL for those on CUDA where each process has a GPU of its own."""
    has_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= launch.local_world_size
    return "cpu:gloo,cuda:nccl" if has_gpus and torch.distributed.is_nccl_available() else "gloo"


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _lost_processes() -> Iterator[None]:
    """Say in one sentence that a process is gone, where torch says that a connection is."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise RankError(
            f"all processes of a run must live until its end; one ended or did not answer in time ({reason}). "
            "Its own message says why. Go on from the last checkpoint with --resume."
        ) from error
