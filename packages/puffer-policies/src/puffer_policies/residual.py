"""Encoders with residual blocks: an MLP for vectors and the IMPALA network for images."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from puffer_policies.encoders import has_channels_last, make_activation
from puffer_policies.initialization import layer_init
from puffer_policies.linear import Linear

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
        if input_size < 1 or num_layers < 1:
            raise ValueError(
                f"input_size and num_layers must be at least 1; got input_size={input_size}, num_layers={num_layers}."
            )
        self.hidden_size = hidden_size
        self.input = layer_init(Linear(input_size, hidden_size))
        self.blocks = nn.Sequential(*[ResidualBlock(hidden_size, activation) for _ in range(num_layers - 1)])
        self.norm = nn.LayerNorm(hidden_size) if layer_norm else nn.Identity()
        self.activation = make_activation(activation)

    def forward(self, observations: Tensor) -> Tensor:
        """Map (rows, ...) of any dtype to (rows, hidden_size)."""
        features = self.input(observations.reshape(observations.shape[0], -1).float())
        return cast(Tensor, self.activation(self.norm(self.blocks(features))))


class ImageBlock(nn.Module):
    """Two 3x3 convolutions whose result is added to the image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = layer_init(nn.Conv2d(channels, channels, 3, padding=1))
        self.second = layer_init(nn.Conv2d(channels, channels, 3, padding=1), std=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, channels, height, width) to the same shape."""
        return x + cast(Tensor, self.second(functional.relu(self.first(functional.relu(x)))))


class ImpalaCNN(nn.Module):
    """Three stages of a convolution, a pooling that halves the image, and two residual blocks; then a linear layer.

    The large network of Espeholt et al. 2018, "IMPALA", figure 3 (https://arxiv.org/abs/1802.01561), without its LSTM.
    An image too small for a stage's pooling keeps its size there.

    Args:
        shape: (height, width, channels), (channels, height, width) or (height, width).
        hidden_size: Outputs.
        scale: Factor on pixels: 1 / 255 for bytes.
        channels_last: Where the channels are; None chooses the smaller of first and last axis.
        width: Channels of the first stage; the others have twice as many.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        hidden_size: int = 128,
        scale: float = 1.0,
        channels_last: bool | None = None,
        width: int = 16,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape) if len(shape) == 3 else (*shape, 1)
        self.channels_last = has_channels_last(self.shape) if channels_last is None else channels_last
        self.scale = scale
        self.hidden_size = hidden_size
        size, channels = (self.shape[:2], self.shape[2]) if self.channels_last else (self.shape[1:], self.shape[0])
        self.entries = nn.ModuleList()
        self.blocks = nn.ModuleList()
        self.halves: list[bool] = []
        for outputs in (width, 2 * width, 2 * width):
            self.entries.append(layer_init(nn.Conv2d(channels, outputs, 3, padding=1)))
            self.blocks.append(nn.Sequential(ImageBlock(outputs), ImageBlock(outputs)))
            self.halves.append(min(size) >= 4)
            size = tuple((length + 1) // 2 for length in size) if self.halves[-1] else size
            channels = outputs
        self.linear = layer_init(Linear(channels * math.prod(size), hidden_size))

    def forward(self, observations: Tensor) -> Tensor:
        """Map (rows, *shape) of any dtype to (rows, hidden_size)."""
        x = observations.reshape(-1, *self.shape).float()
        if self.channels_last:
            x = x.permute(0, 3, 1, 2)
        if self.scale != 1.0:
            x = x * self.scale
        for entry, blocks, is_halved in zip(self.entries, self.blocks, self.halves, strict=True):
            x = entry(x)
            if is_halved:
                x = functional.max_pool2d(x, 3, stride=2, padding=1)
            x = blocks(x)
        if self.channels_last:
            x = x.permute(0, 2, 3, 1)
        return functional.relu(self.linear(functional.relu(x).flatten(1)))
