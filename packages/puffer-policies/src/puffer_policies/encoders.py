"""Encoders: observations of any space in, features (rows, hidden_size) out. Each casts its input to float32 once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from puffer_policies.initialization import layer_init
from puffer_policies.linear import Linear
from puffer_policies.observations import leaf_plan, read_leaf
from puffer_spaces import Layout, Leaf

Tensor = torch.Tensor

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "elu": nn.ELU,
}
"""Activations by the name that encoders and `default_policy` take."""

MAX_ONE_HOT = 1024
"""A leaf with more choices than this in all gets learned vectors instead of a one-hot row."""

EMBEDDING_SIZE = 64


def make_activation(name: str) -> nn.Module:
    """Return an activation by its name.

    Raises:
        ValueError: There is none of that name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {name!r}.")
    return ACTIVATIONS[name]()


def is_image(space: spaces.Space[Any]) -> bool:
    """Tell whether a CNN sees a space: a Box of three dimensions, at least 3 pixels a side, or of two from 32 on."""
    if not isinstance(space, spaces.Box):
        return False
    if len(space.shape) == 2:
        return min(space.shape) >= 32
    return len(space.shape) == 3 and min(_height_and_width(space.shape)) >= 3


def has_channels_last(shape: tuple[int, ...]) -> bool:
    """Guess the axis of the channels: the smaller of first and last; the last where they are equal."""
    return shape[0] >= shape[-1]


def _height_and_width(shape: tuple[int, ...]) -> tuple[int, int]:
    height, width = shape[:2] if has_channels_last(shape) else shape[1:]
    return height, width


class MLP(nn.Module):
    """Linear layers, each followed by an optional LayerNorm and an activation.

    Args:
        input_size: Elements of an observation; any shape is flattened.
        hidden_size: Outputs of each layer.
        num_layers: Number of layers.
        activation: Name in `ACTIVATIONS`.
        layer_norm: Whether each layer is normalised before its activation (Ba et al. 2016, arXiv 1607.06450).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int = 128,
        num_layers: int = 1,
        activation: str = "gelu",
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if input_size < 1 or num_layers < 1:
            raise ValueError(
                f"input_size and num_layers must be at least 1; got input_size={input_size}, num_layers={num_layers}."
            )
        self.hidden_size = hidden_size
        layers: list[nn.Module] = []
        for size in [input_size] + [hidden_size] * (num_layers - 1):
            layers.append(layer_init(Linear(size, hidden_size)))
            if layer_norm:
                layers.append(nn.LayerNorm(hidden_size))
            layers.append(make_activation(activation))
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: Tensor) -> Tensor:
        """Map (rows, ...) of any dtype to (rows, hidden_size)."""
        features: Tensor = self.layers(observations.reshape(observations.shape[0], -1).float())
        return features


class NatureCNN(nn.Module):
    """Three convolutions and a linear layer, with rectifiers; smaller kernels for images below 36 pixels.

    Mnih et al. 2015, "Human-level control through deep reinforcement learning" (Nature 518).

    Args:
        shape: (height, width, channels), (channels, height, width) or (height, width).
        hidden_size: Outputs.
        scale: Factor on pixels: 1 / 255 for bytes.
        channels_last: Where the channels are; None chooses the smaller of first and last axis.
    """

    def __init__(
        self, shape: tuple[int, ...], hidden_size: int = 128, scale: float = 1.0, channels_last: bool | None = None
    ) -> None:
        super().__init__()
        self.shape = tuple(shape) if len(shape) == 3 else (*shape, 1)
        self.channels_last = has_channels_last(self.shape) if channels_last is None else channels_last
        self.scale = scale
        self.hidden_size = hidden_size
        size, channels = (self.shape[:2], self.shape[2]) if self.channels_last else (self.shape[1:], self.shape[0])
        layers = []
        for outputs, kernel, stride in _kernels(min(size)):
            padding = kernel // 2 if stride == 1 and kernel == 3 and min(size) < 16 else 0
            layers.append(layer_init(nn.Conv2d(channels, outputs, kernel, stride, padding)))
            size = tuple((length + 2 * padding - kernel) // stride + 1 for length in size)
            channels = outputs
        self.convolutions = nn.ModuleList(layers)
        self.linear = layer_init(Linear(channels * math.prod(size), hidden_size))

    def forward(self, observations: Tensor) -> Tensor:
        """Map (rows, *shape) of any dtype to (rows, hidden_size)."""
        x = observations.reshape(-1, *self.shape).float()
        if self.channels_last:
            x = x.permute(0, 3, 1, 2)
        for index, layer in enumerate(self.convolutions):
            # The factor goes into the first kernels: that saves a pass over the pixels.
            convolution = cast(nn.Conv2d, layer)
            weight = convolution.weight * self.scale if index == 0 and self.scale != 1.0 else convolution.weight
            x = functional.relu(functional.conv2d(x, weight, convolution.bias, convolution.stride, convolution.padding))
        if self.channels_last:
            x = x.permute(0, 2, 3, 1)
        return functional.relu(self.linear(x.flatten(1)))


def _kernels(length: int) -> list[tuple[int, int, int]]:
    """Return (channels, kernel, stride) of each convolution for the shorter side of the image."""
    if length >= 36:
        return [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    if length >= 16:
        return [(32, 4, 2), (64, 3, 2), (64, 3, 1)]
    if length >= 3:
        return [(32, 3, 1), (64, 3, 1)]
    raise ValueError(f"images must be at least 3 pixels wide and high; got {length}. Flatten them into an MLP.")


def image_scale(space: spaces.Space[Any]) -> float:
    """Return the factor that takes bytes to [0, 1], 1 for other dtypes."""
    return 1.0 / 255.0 if space.dtype == np.uint8 and float(np.max(space.high)) > 1.0 else 1.0  # type: ignore[attr-defined]


class ChoiceInput(nn.Module):
    """Discrete elements as one-hot rows, or as a sum of learned vectors where there are very many choices.

    Args:
        nvec: Number of choices of each element.
        start: First value of each element.
    """

    first: Tensor
    last: Tensor
    offsets: Tensor

    def __init__(self, nvec: Any, start: Any) -> None:
        super().__init__()
        counts = torch.as_tensor(np.asarray(nvec, np.int64))
        self.width = int(counts.sum())
        first = torch.as_tensor(np.asarray(start, np.int64))
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("last", counts - 1, persistent=False)
        self.register_buffer("offsets", torch.cumsum(counts, 0) - counts, persistent=False)
        self.embedding = nn.Embedding(self.width, EMBEDDING_SIZE) if self.width > MAX_ONE_HOT else None
        self.output_size = self.width if self.embedding is None else EMBEDDING_SIZE

    def forward(self, values: Tensor) -> Tensor:
        """Map integers (rows, ...) to (rows, output_size). Values out of range count as the nearest choice."""
        elements = values.reshape(values.shape[0], -1).long() - self.first
        elements = torch.maximum(torch.minimum(elements, self.last), torch.zeros_like(elements)) + self.offsets
        if self.embedding is not None:
            return cast(Tensor, self.embedding(elements)).sum(1)
        rows = torch.zeros(len(elements), self.width, device=elements.device)
        return rows.scatter(1, elements, 1.0)


class VectorInput(nn.Module):
    """A Box as a float32 row.

    Args:
        size: Elements of the Box.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, values: Tensor) -> Tensor:
        """Map (rows, ...) of any dtype to (rows, size)."""
        return values.reshape(values.shape[0], -1).float()


class MultiInput(nn.Module):
    """One input per leaf of a nested space, joined and sent through an MLP.

    Each leaf is read from the row with its own dtype and shape: discrete ones become one-hot, images go through a CNN,
    other Boxes are flattened.

    Args:
        layout: How rows hold the leaves.
        hidden_size: Outputs.
        num_layers: Layers of the MLP.
        activation: Name in `ACTIVATIONS`.
        layer_norm: As in `MLP`.
        make_cnn: Builds the CNN of an image leaf from (shape, hidden_size, scale).
        make_mlp: Builds the MLP behind the leaves, from the arguments of `MLP`.
    """

    def __init__(
        self,
        layout: Layout,
        hidden_size: int = 128,
        num_layers: int = 1,
        activation: str = "gelu",
        layer_norm: bool = False,
        make_cnn: Callable[..., nn.Module] = NatureCNN,
        make_mlp: Callable[..., nn.Module] = MLP,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.plans = [leaf_plan(leaf, layout) for leaf in layout.leaves]
        self.inputs = nn.ModuleList([_leaf_input(leaf, hidden_size, make_cnn) for leaf in layout.leaves])
        size = sum(int(getattr(part, "output_size", hidden_size)) for part in self.inputs)
        self.mlp = make_mlp(size, hidden_size, num_layers, activation, layer_norm)

    def forward(self, observations: Tensor) -> Tensor:
        """Map rows of the layout, (rows, ...), to (rows, hidden_size)."""
        if len(self.plans) == 1:
            parts = [self.inputs[0](observations)]
        else:
            parts = [part(read_leaf(observations, plan)) for part, plan in zip(self.inputs, self.plans, strict=True)]
        features: Tensor = self.mlp(parts[0] if len(parts) == 1 else torch.cat(parts, 1))
        return features


def _leaf_input(leaf: Leaf, hidden_size: int, make_cnn: Callable[..., nn.Module]) -> nn.Module:
    if isinstance(leaf.space, spaces.MultiBinary):
        return VectorInput(leaf.size)
    if leaf.is_discrete:
        return ChoiceInput(leaf.nvec, np.zeros_like(leaf.start) if leaf.zero_based else leaf.start)
    if is_image(leaf.space):
        return make_cnn(leaf.shape, hidden_size, image_scale(leaf.space))
    return VectorInput(leaf.size)


def make_encoder(
    layout: Layout,
    hidden_size: int = 128,
    num_layers: int = 1,
    activation: str = "gelu",
    layer_norm: bool = False,
    make_cnn: Callable[..., nn.Module] = NatureCNN,
    make_mlp: Callable[..., nn.Module] = MLP,
) -> nn.Module:
    """Choose the encoder for a space: a CNN for an image, an MLP for another Box, else `MultiInput`.

    Args:
        layout: Layout of the original observation space.
        hidden_size: Outputs.
        num_layers: Layers of the MLP.
        activation: Name in `ACTIVATIONS`.
        layer_norm: As in `MLP`.
        make_cnn: Builds a CNN from (shape, hidden_size, scale).
        make_mlp: Builds an MLP from the arguments of `MLP`.
    """
    space = layout.space
    if is_image(space):
        return make_cnn(tuple(space.shape or ()), hidden_size, image_scale(space))
    if isinstance(space, spaces.Box):
        return make_mlp(math.prod(space.shape), hidden_size, num_layers, activation, layer_norm)
    return MultiInput(layout, hidden_size, num_layers, activation, layer_norm, make_cnn, make_mlp)
