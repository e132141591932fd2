"""The linear recurrence of MinGRU over segments as one differentiable operation."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Tensor = torch.Tensor


class LinearScan(Function):
    """The linear recurrence h_t = a_t h_{t-1} + b_t over a batch of segments.

    The gradient is the same recurrence run backwards: g_t = grad_t + a_{t+1} g_{t+1}, da_t = g_t h_{t-1}, db_t = g_t.
    On a CPU it is a loop of T passes; elsewhere it takes log2(T) steps of doubled reach (Hillis & Steele 1986), because
    a launch costs more there than the extra arithmetic.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, h: Tensor) -> Tensor:
        """Run the segments.

        Args:
            ctx: Filled for `backward`.
            a: (batch, horizon, hidden), the share of the old state that stays; 0 where it is dropped.
            b: (batch, horizon, hidden), what comes in.
            h: (batch, hidden) at the start.

        Returns:
            States h_1 .. h_T, (batch, horizon, hidden).
        """
        states = recurrence(a, b, h)
        ctx.save_for_backward(a, states, h)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the recurrence backwards."""
        a, states, h = ctx.saved_tensors
        later_shares = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1)
        grad_b = recurrence(later_shares, grad_states, torch.zeros_like(h), backwards=True)
        grad_a = torch.cat([h[:, None], states[:, :-1]], 1).mul_(grad_b)
        return grad_a, grad_b, grad_b[:, 0] * a[:, 0]


def recurrence(a: Tensor, b: Tensor, h: Tensor, backwards: bool = False) -> Tensor:
    """Compute h_t = a_t h_{t-1} + b_t without a gradient.

    Args:
        a: (batch, horizon, hidden).
        b: (batch, horizon, hidden).
        h: (batch, hidden) before the first step.
        backwards: Start at the last step instead and compute h_t = a_t h_{t+1} + b_t.

    Returns:
        (batch, horizon, hidden).
    """
    if a.device.type == "cpu":
        return _loop(a, b, h, backwards)
    return _doubling(a.flip(1), b.flip(1), h).flip(1) if backwards else _doubling(a.clone(), b.clone(), h)


def _loop(a: Tensor, b: Tensor, h: Tensor, backwards: bool) -> Tensor:
    states = torch.empty_like(b)
    steps = range(b.shape[1])
    for t in reversed(steps) if backwards else steps:
        h = torch.addcmul(b[:, t], a[:, t], h, out=states[:, t])
    return states


def _doubling(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """Overwrite a and b and return b: after each round, step t holds its last 2 * reach steps composed into one."""
    b[:, 0] += a[:, 0] * h
    reach = 1
    while reach < b.shape[1]:
        b[:, reach:] = torch.addcmul(b[:, reach:], a[:, reach:], b[:, :-reach])
        a[:, reach:] = a[:, reach:] * a[:, :-reach]
        reach *= 2
    return b
