"""Clipping and AdamW by compiled loops, for networks so small that torch takes longer to begin than to compute.

The loops read float32 tensors in host memory without gaps; all other tensors go torch's way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch.autograd.graph import increment_version

from puffer_train.native import kernels

MAX_PARAMETERS = 65536
"""Parameters up to which one thread's loop beats torch's vectorised operations, which take some 100 µs to begin."""


def is_small(parameters: Sequence[torch.Tensor]) -> bool:
    """Return whether the loops suit parameters: few, float32, in host memory, without gaps."""
    return sum(p.numel() for p in parameters) <= MAX_PARAMETERS and all(map(_is_plain, parameters))


def clip_gradients(parameters: Sequence[torch.nn.Parameter], max_norm: float) -> torch.Tensor | float:
    """Scale the gradients so that their common norm is at most max_norm, and return what it was."""
    native = kernels()
    gradients = [p.grad for p in parameters if p.grad is not None]
    if native is not None and is_small(gradients):
        return float(native.clip_gradients(gradients, max_norm))
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)


class HostAdamW(torch.optim.AdamW):
    """AdamW, and Adam where weight_decay is 0, with torch's formula, settings and state.

    Kingma & Ba 2015, algorithm 1 (https://arxiv.org/abs/1412.6980); Loshchilov & Hutter 2019, algorithm 2
    (https://arxiv.org/abs/1711.05101).
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters by their gradients."""
        return None if closure is None and self.step_by_loop() else super().step(closure)

    def step_by_loop(self) -> bool:
        """Update the parameters and return True, or leave them to `step`, as the first time, when the state is made.

        It does not call hooks, which take `step` as long as the loop does.
        """
        native = kernels()
        (group,) = self.param_groups
        parameters = group["params"]
        gradients = [p.grad for p in parameters]
        states = [state for p in parameters if (state := self.state.get(p))]
        moments = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")]
        is_whole = len(states) == len(parameters) and all(map(_is_plain, chain(parameters, gradients, *moments)))
        if native is None or group["amsgrad"] or group["maximize"] or not is_whole:
            return False
        numbers = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        native.adamw_step(parameters, gradients, *moments, *numbers)
        increment_version(parameters)  # a graph that has kept the old values must not be differentiated
        return True


def _is_plain(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()
