"""Memories: modules that carry a state from step to step and run whole segments with resets inside.

All have one face. `step` is for rollouts, `sequence` for training; with equal weights they agree to rounding.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from puffer_policies.initialization import layer_init, memory_init
from puffer_policies.linear import Linear, linear
from puffer_policies.scans import GRUScan, LinearScan, LSTMScan

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


def _zeros(weight: Tensor, num_rows: int, num_states: int, hidden: int, device: torch.device | str | None) -> State:
    return tuple(weight.new_zeros(num_rows, hidden, device=device or weight.device) for _ in range(num_states))


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
        h, c = state
        gates = linear(torch.cat([x, h], 1), *self._joined())
        i, f, g, o = gates.split(self.hidden_size, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        if resets is not None and not resets.any():
            resets = None
        h, c = state
        if resets is not None and x.device.type == "cpu":
            with torch.autocast("cpu", enabled=False):
                weight, bias = self._joined()
                outputs, h, c = LSTMScan.apply(x.float(), h, c, resets, weight, bias)
            return outputs, (h, c)
        outputs, (h, c) = _run_layer(self, x, (h, c), resets)
        return outputs, (h, c)

    def _joined(self) -> tuple[Tensor, Tensor]:
        return torch.cat([self.weight_ih_l0, self.weight_hh_l0], 1), self.bias_ih_l0 + self.bias_hh_l0


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
        (h,) = state
        reset_x, update_x, new_x = linear(x, self.weight_ih_l0, self.bias_ih_l0).split(self.hidden_size, 1)
        reset_h, update_h, new_h = linear(h, self.weight_hh_l0, self.bias_hh_l0).split(self.hidden_size, 1)
        candidate = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        h = torch.lerp(candidate, h, torch.sigmoid(update_x + update_h))
        return h, (h,)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        (h,) = state
        if x.device.type == "cpu":
            with torch.autocast("cpu", enabled=False):
                weights = (self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
                outputs, h = GRUScan.apply(x.float(), h, resets, *weights)
            return outputs, (h,)
        if resets is not None and not resets.any():
            resets = None
        outputs, (h,) = _run_layer(self, x, (h,), resets)
        return outputs, (h,)


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
        h = torch.lerp(state[0], self.candidate(x), torch.sigmoid(self.gate(x)))
        return h, (h,)

    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        shares = torch.sigmoid(-self.gate(x))
        incoming = (1.0 - shares) * self.candidate(x)
        if resets is not None:
            shares = shares.masked_fill(resets.unsqueeze(-1), 0.0)
        states = _scan(shares, incoming, state[0])
        return states, (states[:, -1],)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _scan(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    return cast(Tensor, LinearScan.apply(a.float(), b.float(), h))


def _run_layer(layer: nn.LSTM | nn.GRU, x: Tensor, state: State, resets: Tensor | None) -> tuple[Tensor, State]:
    """Run torch's own layer, whole where no state is dropped, else on the pieces between resets as a packed batch."""
    if resets is None:
        before = tuple(part.unsqueeze(0) for part in state)
        outputs, after = layer(x, before if len(before) > 1 else before[0])
        after = after if isinstance(after, tuple) else (after,)
        return outputs, tuple(part.squeeze(0) for part in after)
    pieces, order, lasts = _pack(x, resets)
    firsts = torch.zeros_like(resets)
    firsts[:, 0] = ~resets[:, 0]
    carried = firsts.flatten()[order[: int(pieces.batch_sizes[0])]]
    rows = order[: int(pieces.batch_sizes[0])] // x.shape[1]
    before = tuple((part[rows] * carried.unsqueeze(-1)).unsqueeze(0) for part in state)
    packed, after = layer(pieces, before if len(before) > 1 else before[0])
    after = after if isinstance(after, tuple) else (after,)
    outputs = torch.empty_like(packed.data)
    outputs[order] = packed.data
    return outputs.view(*x.shape[:2], -1), tuple(part.squeeze(0)[lasts] for part in after)


def _pack(x: Tensor, resets: Tensor) -> tuple[PackedSequence, Tensor, Tensor]:
    """Cut segments where states are dropped and pack the pieces, longest first.

    Returns:
        The packed pieces; int64 (batch * horizon,), the flat position of each packed element; int64 (batch,), the
        piece that ends each row.
    """
    batch, horizon = resets.shape
    is_start = resets.clone()
    is_start[:, 0] = True
    starts = is_start.flatten().nonzero().squeeze(1)
    lengths = torch.diff(starts, append=starts.new_tensor([batch * horizon]))
    lengths, piece_order = lengths.sort(descending=True, stable=True)
    starts = starts[piece_order]
    offsets = torch.arange(int(lengths[0]), device=x.device).unsqueeze(1)
    inside = offsets < lengths
    order = (starts + offsets)[inside]
    is_last = (starts + lengths) % horizon == 0
    lasts = torch.empty(batch, dtype=torch.long, device=x.device)
    lasts[starts[is_last] // horizon] = is_last.nonzero().squeeze(1)
    data = x.reshape(batch * horizon, -1)[order]
    return PackedSequence(data, inside.sum(1).cpu()), order, lasts
