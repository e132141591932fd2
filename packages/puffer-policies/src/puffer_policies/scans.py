"""Loops over time as single differentiable operations: LSTM, GRU and linear recurrences with resets.

Each is one autograd node with the gradient written by hand, so that a segment of T steps costs T small matrix products
and a few element-wise passes, whether or not episodes end inside it. `keep` is 0 where the state is dropped before a
step and 1 elsewhere; None means that no state is dropped. Hyperbolic tangents are computed as 2σ(2x) - 1: the
vectorised sigmoid takes a fifth of the time, and factors of 2 go into the weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from puffer_policies.linear import linear, linear_backward

Tensor = torch.Tensor


def steps_with_resets(resets: Tensor | None, horizon: int) -> list[bool]:
    """Tell for each step whether any row's state is dropped before it.

    Args:
        resets: bool (batch, horizon) or None.
        horizon: Number of steps.
    """
    if resets is None:
        return [False] * horizon
    return [bool(step) for step in resets.any(0).tolist()]


class LSTMScan(Function):
    """An LSTM over a batch of segments, with resets inside them.

        i, f, o = σ(W [x, h] + b)    g = tanh(W_g [x, h] + b_g)    c' = f c + i g    h' = o tanh(c')

    Hochreiter & Schmidhuber 1997; forget gate by Gers et al. 2000. Gates are in torch's order i, f, g, o.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h: Tensor, c: Tensor, resets: Tensor | None, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the segments.

        Args:
            ctx: Filled for `backward`.
            x: float32 (batch, horizon, inputs).
            h: float32 (batch, hidden) at the start of the segments.
            c: float32 (batch, hidden) at the start of the segments.
            resets: bool (batch, horizon) or None: True where the state is zeroed before the step.
            weight: (4 hidden, inputs + hidden).
            bias: (4 hidden,).

        Returns:
            Outputs (batch, horizon, hidden) and the final h and c.
        """
        batch, horizon, inputs = x.shape
        hidden = h.shape[1]
        scale = weight.new_ones(4, hidden, 1)
        scale[2] = 2.0
        scale = scale.view(4 * hidden, 1)
        weight, bias = weight * scale, bias * scale[:, 0]
        has_reset = steps_with_resets(resets, horizon)
        keep = None if resets is None else (~resets).to(x.dtype)
        joined = x.new_empty(horizon, batch, inputs + hidden)
        gates = x.new_empty(horizon, batch, 4 * hidden)
        cells = x.new_empty(horizon, batch, hidden)
        squashed = x.new_empty(horizon, batch, hidden)
        outputs = x.new_empty(batch, horizon, hidden)
        for t in range(horizon):
            if has_reset[t] and keep is not None:
                h, c = h * keep[:, t : t + 1], c * keep[:, t : t + 1]
            joined[t, :, :inputs] = x[:, t]
            joined[t, :, inputs:] = h
            cells[t] = c
            torch.sigmoid(linear(joined[t], weight, bias), out=gates[t])
            i, f, s, o = gates[t].split(hidden, 1)
            c = torch.mul(f, c).addcmul_(i, s, value=2.0).sub_(i)
            torch.sigmoid(c * 2.0, out=squashed[t])
            h = torch.mul(o, squashed[t]).mul_(2.0).sub_(o)
            outputs[:, t] = h
        ctx.save_for_backward(joined, gates, cells, squashed, weight, scale, keep)
        ctx.has_reset = has_reset
        return outputs, h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        """Run the segments backwards."""
        joined, gates, cells, squashed, weight, scale, keep = ctx.saved_tensors
        horizon, batch, hidden = cells.shape
        inputs = joined.shape[2] - hidden
        grad_x = grad_outputs.new_empty(batch, horizon, inputs)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(scale[:, 0])
        grad_gates = gates.new_empty(batch, 4 * hidden)
        for t in range(horizon - 1, -1, -1):
            grad_h = grad_h + grad_outputs[:, t]
            i, f, s, o = gates[t].split(hidden, 1)
            grad_i, grad_f, grad_s, grad_o = grad_gates.split(hidden, 1)
            scaled = grad_h * squashed[t]
            torch.mul(scaled, 2.0, out=grad_o).sub_(grad_h)
            grad_c = grad_c + torch.addcmul(scaled, scaled, squashed[t], value=-1.0).mul_(o).mul_(4.0)
            torch.mul(grad_c, s, out=grad_i).mul_(2.0).sub_(grad_c)
            torch.mul(grad_c, cells[t], out=grad_f)
            torch.mul(grad_c, i, out=grad_s).mul_(2.0)
            grad_c = grad_c * f
            torch.ops.aten.sigmoid_backward.grad_input(grad_gates, gates[t], grad_input=grad_gates)
            grad_joined, step_weight, step_bias = linear_backward(grad_gates, joined[t], weight)
            grad_weight += step_weight
            grad_bias += step_bias
            grad_x[:, t] = grad_joined[:, :inputs]
            grad_h = grad_joined[:, inputs:]
            if ctx.has_reset[t]:
                grad_h, grad_c = grad_h * keep[:, t : t + 1], grad_c * keep[:, t : t + 1]
        return grad_x, grad_h, grad_c, None, grad_weight * scale, grad_bias * scale[:, 0]


class GRUScan(Function):
    """A GRU over a batch of segments, with resets inside them.

        r, z = σ(W [x, h] + b)    n = tanh(W_n x + b_n + r (U_n h + d_n))    h' = (1 - z) n + z h

    Cho et al. 2014 (https://arxiv.org/abs/1406.1078), in torch's variant and order r, z, n.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        resets: Tensor | None,
        weight_x: Tensor,
        weight_h: Tensor,
        bias_x: Tensor,
        bias_h: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Run the segments.

        Args:
            ctx: Filled for `backward`.
            x: float32 (batch, horizon, inputs).
            h: float32 (batch, hidden) at the start of the segments.
            resets: bool (batch, horizon) or None: True where the state is zeroed before the step.
            weight_x: (3 hidden, inputs).
            weight_h: (3 hidden, hidden).
            bias_x: (3 hidden,).
            bias_h: (3 hidden,).

        Returns:
            Outputs (batch, horizon, hidden) and the final h.
        """
        batch, horizon, inputs = x.shape
        hidden = h.shape[1]
        has_reset = steps_with_resets(resets, horizon)
        keep = None if resets is None else (~resets).to(x.dtype)
        xs = x.new_empty(horizon, batch, inputs)
        states = x.new_empty(horizon, batch, hidden)
        gates = x.new_empty(horizon, batch, 2 * hidden)
        candidates = x.new_empty(2, horizon, batch, hidden)
        outputs = x.new_empty(batch, horizon, hidden)
        for t in range(horizon):
            if has_reset[t] and keep is not None:
                h = h * keep[:, t : t + 1]
            xs[t] = x[:, t]
            states[t] = h
            from_x, from_h = linear(xs[t], weight_x, bias_x), linear(states[t], weight_h, bias_h)
            torch.sigmoid(from_x[:, : 2 * hidden] + from_h[:, : 2 * hidden], out=gates[t])
            r, z = gates[t].split(hidden, 1)
            recurrent, squashed = candidates[0, t], candidates[1, t]
            recurrent.copy_(from_h[:, 2 * hidden :])
            torch.sigmoid(torch.addcmul(from_x[:, 2 * hidden :], r, recurrent).mul_(2.0), out=squashed)
            h = torch.lerp(squashed * 2.0 - 1.0, h, z)
            outputs[:, t] = h
        ctx.save_for_backward(xs, states, gates, candidates, weight_x, weight_h, keep)
        ctx.has_reset = has_reset
        return outputs, h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        """Run the segments backwards."""
        xs, states, gates, candidates, weight_x, weight_h, keep = ctx.saved_tensors
        horizon, batch, hidden = states.shape
        grad_x = grad_outputs.new_empty(batch, horizon, xs.shape[2])
        grads = [torch.zeros_like(weight_x), torch.zeros_like(weight_h), *gates.new_zeros(2, 3 * hidden)]
        grad_from_x, grad_from_h = gates.new_empty(batch, 3 * hidden), gates.new_empty(batch, 3 * hidden)
        grad_gates, grad_n = grad_from_x[:, : 2 * hidden], grad_from_x[:, 2 * hidden :]
        for t in range(horizon - 1, -1, -1):
            grad_h = grad_h + grad_outputs[:, t]
            r, z = gates[t].split(hidden, 1)
            recurrent, squashed = candidates[0, t], candidates[1, t]
            slope = torch.addcmul(squashed, squashed, squashed, value=-1.0).mul_(4.0)
            torch.mul(torch.addcmul(grad_h, grad_h, z, value=-1.0), slope, out=grad_n)
            torch.mul(grad_n, recurrent, out=grad_gates[:, :hidden])
            torch.mul(grad_h, states[t] - squashed * 2.0 + 1.0, out=grad_gates[:, hidden:])
            torch.ops.aten.sigmoid_backward.grad_input(grad_gates, gates[t], grad_input=grad_gates)
            grad_from_h.copy_(grad_from_x)
            grad_from_h[:, 2 * hidden :] *= r
            step_x, weight_of_x, bias_of_x = linear_backward(grad_from_x, xs[t], weight_x)
            step_h, weight_of_h, bias_of_h = linear_backward(grad_from_h, states[t], weight_h)
            for total, part in zip(grads, (weight_of_x, weight_of_h, bias_of_x, bias_of_h), strict=True):
                total += part
            grad_x[:, t] = step_x
            grad_h = step_h.addcmul_(grad_h, z)
            if ctx.has_reset[t]:
                grad_h = grad_h * keep[:, t : t + 1]
        return grad_x, grad_h, None, *grads


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
