"""An encoder of vectors with residual blocks."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from puffer_policies.encoders import make_activation
from puffer_policies.initialization import check_sizes, layer_init
from puffer_policies.linear import Linear
from puffer_policies.observations import read_rows

Tensor = torch.Tensor


class ResidualBlock(nn.Module):
    """Add to features what two layers make of their normalised copy: x + W₂ act(W₁ norm(x)).

    He et al. 2016, "Identity mappings in deep residual networks" (https://arxiv.org/abs/1603.05027).

    Args:
        size: Features in and out.
        activation: Name in `ACTIVATIONS`.
    """

    def __init__(self, size: int, activation: str = "gelu") -> None:
        super().__init__()
        check_sizes(size=size)
        self.norm = nn.LayerNorm(size)
        self.first = layer_init(Linear(size, size))
        self.activation = make_activation(activation)
        self.second = layer_init(Linear(size, size), std=1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Map (rows, size) to (rows, size)."""
        return features + cast(Tensor, self.second(self.activation(self.first(self.norm(features)))))


class ResidualMLP(nn.Module):
    """A linear layer, then residual blocks, then an activation.

    Args:
        input_size: Elements of an observation; any shape is flattened.
        hidden_size: Features.
        num_layers: Layers in all: the first, and one residual block for each further one.
        activation: Name in `ACTIVATIONS`.
        layer_norm: Whether the output is normalised before its activation; the blocks always are.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int = 128,
        num_layers: int = 3,
        activation: str = "gelu",
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.input = layer_init(Linear(input_size, hidden_size))
        self.blocks = nn.Sequential(*[ResidualBlock(hidden_size, activation) for _ in range(num_layers - 1)])
        self.norm = nn.LayerNorm(hidden_size) if layer_norm else nn.Identity()
        self.activation = make_activation(activation)

    def forward(self, observations: Tensor) -> Tensor:
        """Map (rows, ...) of any dtype to (rows, hidden_size)."""
        features = self.input(read_rows(observations, (self.input_size,), self.input.weight.dtype))
        return cast(Tensor, self.activation(self.norm(self.blocks(features))))
