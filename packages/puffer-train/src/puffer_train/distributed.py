"""The processes of one run. Alone, everything here does nothing.

Rank r owns worlds [r N / W, (r + 1) N / W) and block r of the segments. Sums of counts, moments and gradients over all
ranks make each update that of one process which has all segments in W blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed


@dataclass(frozen=True)
class Ranks:
    """This process among the processes of the run.

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

    @property
    def is_first(self) -> bool:
        """Whether this is the process that logs and writes."""
        return self.rank == 0

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace `tensor` by its sum over all processes and return it."""
        if self.world_size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def sum_gradients_(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes, in one message."""
        if self.world_size == 1:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        torch.distributed.all_reduce(flat)
        offset = 0
        for parameter, gradient in zip(parameters, gradients, strict=True):
            part = flat[offset : offset + gradient.numel()].view_as(gradient)
            parameter.grad = part.clone()
            offset += gradient.numel()

    def broadcast_(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        if self.world_size > 1:
            for tensor in tensors:
                torch.distributed.broadcast(tensor.detach(), 0)
