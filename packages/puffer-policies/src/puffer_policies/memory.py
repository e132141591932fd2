"""Memories: modules that carry a state from step to step and run whole segments with resets inside.

All have one face. `step` is for rollouts, `sequence` for training; with equal weights they agree to rounding.

NOTE [Blank steps]: torch's LSTM and GRU run a segment in one fast call, but cannot drop the state inside it. So a blank
step is inserted before each step that starts an episode. Two more inputs, 0 everywhere else, drive the gates there into
saturation: the first makes the new state 0, the second, in steps that fill short rows up at the end, keeps the state::

    row 0   x0 x1 |blank| x2 x3            where row 0 starts an episode at step 2
    row 1   x0 x1  x2  x3 |keep|

A batch takes as many more steps as its row with the most resets has.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import nn

from puffer_policies.initialization import layer_init, memory_init
from puffer_policies.linear import Linear, linear
from puffer_policies.rows import gather_rows, place_rows
from puffer_policies.scans import LinearScan

Tensor = torch.Tensor
State = tuple[Tensor, ...]


class Memory(Protocol):
    """What a recurrent policy needs of its memory. A state is a tuple of tensors whose first dimension is the rows."""

    input_size: int
    hidden_size: int

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return the state at the start of an episode: zeros."""

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Map (rows, inputs) and a state to (rows, hidden) and the next state."""

    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments: x (batch, horizon, inputs) -> (batch, horizon, hidden) and the final state.

        The state is zeroed before step t of the rows where resets[:, t], bool (batch, horizon).
        """


SATURATION = 1e4
"""Input to a gate that makes its sigmoid exactly 0 or 1."""

Columns = tuple[float | Tensor, ...]


def _zeros(weight: Tensor, num_rows: int, num_states: int, hidden: int, device: torch.device | str | None) -> State:
    return tuple(weight.new_zeros(num_rows, hidden, device=device or weight.device) for _ in range(num_states))


def _check_fit(memory: LSTM | GRU | MinGRU, x: Tensor, state: State) -> None:
    """Raise unless inputs and state fit: torch's kernels read past the end of tensors that are too small.

    Raises:
        ValueError: A size is another.
    """
    rows, hidden = x.shape[0], memory.hidden_size
    if x.shape[-1] != memory.input_size or any(part.shape != (rows, hidden) for part in state):
        raise ValueError(
            f"a memory must get inputs (rows, ..., {memory.input_size}) and a state of as many rows, (rows, {hidden}); "
            f"got {tuple(x.shape)} and {[tuple(part.shape) for part in state]}. Start from initial_state(num_rows)."
        )


def _tanh(x: Tensor) -> Tensor:
    """Compute tanh as 2σ(2x) - 1: torch's sigmoid takes a fifth of the time of its tanh on a CPU."""
    return 2.0 * torch.sigmoid(2.0 * x) - 1.0


def _mix(candidate: Tensor, h: Tensor, share: Tensor) -> Tensor:
    """Return candidate + share (h - candidate), in the dtype of the state h also where autocast computes in another."""
    return torch.lerp(candidate.to(h.dtype), h, share.to(h.dtype))


class LSTM(nn.LSTM):
    """An LSTM of one layer: matrices orthogonal, biases zero. State: h and c, each (rows, hidden)."""

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        memory_init(self)

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return zeros (num_rows, hidden), twice."""
        return _zeros(self.weight_hh_l0, num_rows, 2, self.hidden_size, device)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Map (rows, inputs) and (h, c) to h and (h, c)."""
        _check_fit(self, x, state)
        # A segment of one step: on a CPU torch's LSTM takes a third of the time of its LSTMCell.
        before = (state[0].unsqueeze(0), state[1].unsqueeze(0))
        weights = (self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        _, h, c = torch.lstm(x.unsqueeze(0), before, weights, True, 1, 0.0, self.training, False, False)
        h, c = h.squeeze(0), c.squeeze(0)
        return h, (h, c)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        _check_fit(self, x, state)
        h, c = state
        if resets is None or not resets.any():
            outputs, (h, c) = self(x, (h.unsqueeze(0), c.unsqueeze(0)))
            return outputs, (h.squeeze(0), c.squeeze(0))
        blanks = _BlankSteps(resets)
        # Order i, f, g, o. Forgetting: c' = 0 c + 0 g, h' = 0 tanh(c'). Keeping: c' = 1 c + 0 g.
        weights = _flat_weights(self, (-SATURATION, -SATURATION, 0.0, -SATURATION), (-SATURATION, SATURATION, 0.0, 0.0))
        before = (h.unsqueeze(0), c.unsqueeze(0))
        padded, _, c = torch.lstm(blanks.insert(x), before, weights, True, 1, 0.0, self.training, False, False)
        outputs = blanks.remove(padded)
        return outputs, (outputs[:, -1], c.squeeze(0))


class GRU(nn.GRU):
    """A GRU of one layer: matrices orthogonal, biases zero. State: h (rows, hidden)."""

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        memory_init(self)

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return zeros (num_rows, hidden)."""
        return _zeros(self.weight_hh_l0, num_rows, 1, self.hidden_size, device)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Map (rows, inputs) and (h,) to h and (h,)."""
        _check_fit(self, x, state)
        (h,) = state
        reset_x, update_x, new_x = linear(x, self.weight_ih_l0, self.bias_ih_l0).split(self.hidden_size, 1)
        reset_h, update_h, new_h = linear(h, self.weight_hh_l0, self.bias_hh_l0).split(self.hidden_size, 1)
        candidate = _tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        h = _mix(candidate, h, torch.sigmoid(update_x + update_h))
        return h, (h,)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        _check_fit(self, x, state)
        (h,) = state
        if resets is None or not resets.any():
            outputs, h = self(x, h.unsqueeze(0))
            return outputs, (h.squeeze(0),)
        blanks = _BlankSteps(resets)
        # Order r, z, n. Forgetting: h' = 1 tanh(b_n - b_n + 0) + 0 h. Keeping: h' = 0 n + 1 h.
        cancel = -self.bias_ih_l0[2 * self.hidden_size :]
        weights = _flat_weights(self, (-SATURATION, -SATURATION, cancel), (0.0, SATURATION, 0.0))
        padded, h = torch.gru(blanks.insert(x), h.unsqueeze(0), weights, True, 1, 0.0, self.training, False, False)
        return blanks.remove(padded), (h.squeeze(0),)


class MinGRU(nn.Module):
    """A GRU whose gate and candidate look at the input only, so that segments run as one scan. State: h (rows, hidden).

        z = σ(W_z x + b_z)    h' = (1 - z) h + z (W x + b)

    Feng et al. 2024, "Were RNNs All We Needed?", section 3.2 (https://arxiv.org/abs/2410.01201).
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.gate = layer_init(Linear(input_size, hidden_size), std=1.0)
        self.candidate = layer_init(Linear(input_size, hidden_size), std=1.0)

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return zeros (num_rows, hidden)."""
        return _zeros(self.gate.weight, num_rows, 1, self.hidden_size, device)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Map (rows, inputs) and (h,) to h and (h,)."""
        _check_fit(self, x, state)
        h = _mix(self.candidate(x), state[0], torch.sigmoid(-self.gate(x)))
        return h, (h,)

    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        _check_fit(self, x, state)
        shares = torch.sigmoid(-self.gate(x))
        incoming = (1.0 - shares) * self.candidate(x)
        if resets is not None:
            shares = shares.masked_fill(resets.unsqueeze(-1), 0.0)
        states = _scan(shares, incoming, state[0]).to(state[0].dtype)
        return states, (states[:, -1],)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _scan(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    return cast(Tensor, LinearScan.apply(a.float(), b.float(), h))


class _BlankSteps:
    """Where steps lie once blank ones are inserted. See NOTE [Blank steps].

    Args:
        resets: bool (batch, horizon).
    """

    def __init__(self, resets: Tensor) -> None:
        batch, horizon = resets.shape
        inserted = resets.long().cumsum(1)
        self.num_steps = horizon + int(inserted[:, -1].max())
        positions = inserted + torch.arange(horizon, device=resets.device)
        rows = torch.arange(batch, device=resets.device).unsqueeze(1).expand_as(positions)
        self.flat = (positions * batch + rows).flatten()
        self.flags = torch.zeros(self.num_steps, batch, 2, device=resets.device)
        self.flags[positions[resets] - 1, rows[resets], 0] = 1.0
        steps = torch.arange(self.num_steps, device=resets.device)
        self.flags[:, :, 1] = (steps.unsqueeze(1) >= horizon + inserted[:, -1]).float()
        self.shape = (batch, horizon)

    def insert(self, x: Tensor) -> Tensor:
        """Spread (batch, horizon, inputs) over (num_steps, batch, inputs + 2)."""
        return place_rows(x.flatten(0, 1), self.flat, self.flags.flatten(0, 1)).view(*self.flags.shape[:2], -1)

    def remove(self, padded: Tensor) -> Tensor:
        """Collect (batch, horizon, hidden) from (num_steps, batch, hidden)."""
        return gather_rows(padded.flatten(0, 1), self.flat).view(*self.shape, -1)


def _flat_weights(layer: LSTM | GRU, forget: Columns, keep: Columns) -> list[Tensor]:
    """Return a layer's weights with two more inputs, as views of one chunk of memory, which cuDNN asks for.

    Args:
        layer: The layer.
        forget: Weight of the first new input for each gate.
        keep: Weight of the second.
    """
    hidden = layer.hidden_size
    columns = [
        torch.cat([gate if isinstance(gate, Tensor) else layer.bias_ih_l0.new_full((hidden,), gate) for gate in gates])
        for gates in (forget, keep)
    ]
    weights = [torch.cat([layer.weight_ih_l0, torch.stack(columns, 1)], 1), layer.weight_hh_l0]
    weights += [layer.bias_ih_l0, layer.bias_hh_l0]
    chunk = torch.cat([weight.flatten() for weight in weights])
    parts = chunk.split([weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
