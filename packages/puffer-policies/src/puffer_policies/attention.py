"""A memory that attends to the last steps of the episode."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from puffer_policies.initialization import layer_init
from puffer_policies.linear import Linear

Tensor = torch.Tensor
State = tuple[Tensor, ...]


class AttentionMemory(nn.Module):
    """One transformer block over the current and the last steps of the episode, with rotary positions.

        u = norm(x)    y = x + O softmax(q kᵀ / √d) v    z = y + W₂ gelu(W₁ norm(y))

    Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), normalised before each part; positions by Su et al. 2021
    (https://arxiv.org/abs/2104.09864), so that a score depends on the distance of two steps only.

    State: keys and values of the last steps, (rows, window - 1, hidden) each, and which of them are of this episode,
    (rows, window - 1), 1 or 0. Zeros stand for none.

    Args:
        input_size: Features in.
        hidden_size: Features out; a linear layer adapts the input where the two differ.
        window: Steps that are attended to, the current one included.
        num_heads: Heads of attention; hidden_size is a multiple of twice their number.

    Raises:
        ValueError: The sizes do not fit together.
    """

    inverse_wavelengths: Tensor

    def __init__(self, input_size: int, hidden_size: int, window: int = 16, num_heads: int = 4) -> None:
        super().__init__()
        if hidden_size % (2 * num_heads) or window < 2:
            raise ValueError(
                "hidden_size must be a multiple of 2 * num_heads and window at least 2; got "
                f"hidden_size={hidden_size}, num_heads={num_heads}, window={window}."
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.window = window
        self.num_heads = num_heads
        self.input = layer_init(Linear(input_size, hidden_size)) if input_size != hidden_size else nn.Identity()
        self.norm = nn.LayerNorm(hidden_size)
        self.query_key_value = layer_init(Linear(hidden_size, 3 * hidden_size), std=1.0)
        self.output = layer_init(Linear(hidden_size, hidden_size), std=1.0)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(hidden_size),
            layer_init(Linear(hidden_size, 2 * hidden_size)),
            nn.GELU(),
            layer_init(Linear(2 * hidden_size, hidden_size), std=1.0),
        )
        half = hidden_size // num_heads // 2
        wavelengths = torch.exp(-math.log(10_000.0) * torch.arange(half) / half)
        self.register_buffer("inverse_wavelengths", wavelengths, persistent=False)

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return an empty window: zeros."""
        weight = self.output.weight
        device = device or weight.device
        kept = weight.new_zeros(num_rows, self.window - 1, self.hidden_size, device=device)
        return kept, kept.clone(), weight.new_zeros(num_rows, self.window - 1, device=device)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Map (rows, inputs) and a state to (rows, hidden) and the next state."""
        outputs, state = self.sequence(x.unsqueeze(1), state)
        return outputs.squeeze(1), state

    def sequence(self, x: Tensor, state: State, resets: Tensor | None = None) -> tuple[Tensor, State]:
        """Run segments; see `Memory.sequence`."""
        batch, horizon = x.shape[:2]
        kept_keys, kept_values, is_kept = state
        features = self.input(x)
        query, key, value = self.query_key_value(self.norm(features)).chunk(3, -1)
        keys, values = torch.cat([kept_keys, key], 1), torch.cat([kept_values, value], 1)
        episode, is_valid = self._episodes(is_kept, resets, horizon)
        steps = torch.arange(1 - self.window, horizon, device=x.device)
        allowed = self._allowed(steps, episode, is_valid)
        attended = functional.scaled_dot_product_attention(
            self._rotate(query, steps[-horizon:]),
            self._rotate(keys, steps),
            self._heads(values),
            attn_mask=allowed.unsqueeze(1),
        )
        attended = attended.transpose(1, 2).reshape(batch, horizon, self.hidden_size)
        features = features + self.output(attended)
        features = features + self.feed_forward(features)
        last = slice(horizon, None)
        still = is_valid[:, last] & (episode[:, last] == episode[:, -1:])
        fill = still.unsqueeze(-1)
        return features, (keys[:, last] * fill, values[:, last] * fill, still.to(is_kept.dtype))

    def _episodes(self, is_kept: Tensor, resets: Tensor | None, horizon: int) -> tuple[Tensor, Tensor]:
        """Number the episodes of kept and new steps, (batch, window - 1 + horizon), and tell which are filled."""
        if resets is None:
            resets = torch.zeros(len(is_kept), horizon, dtype=torch.bool, device=is_kept.device)
        episode = torch.cat([torch.zeros_like(is_kept, dtype=torch.long), resets.long().cumsum(1)], 1)
        return episode, torch.cat([is_kept > 0, torch.ones_like(resets)], 1)

    def _allowed(self, steps: Tensor, episode: Tensor, is_valid: Tensor) -> Tensor:
        """Return which steps each new step attends to: bool (batch, horizon, window - 1 + horizon)."""
        horizon = len(steps) - self.window + 1
        distance = steps[-horizon:, None] - steps[None, :]
        is_near = (distance >= 0) & (distance < self.window)
        is_same = episode[:, -horizon:, None] == episode[:, None, :]
        return is_near & is_same & is_valid[:, None, :]

    def _heads(self, x: Tensor) -> Tensor:
        """Split (batch, steps, hidden) into (batch, heads, steps, hidden / heads)."""
        return cast(Tensor, x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2))

    def _rotate(self, x: Tensor, steps: Tensor) -> Tensor:
        """Split into heads and turn each pair of features by an angle in proportion to the step."""
        angles = steps[:, None] * self.inverse_wavelengths
        cos, sin = angles.cos(), angles.sin()
        left, right = self._heads(x).chunk(2, -1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)
