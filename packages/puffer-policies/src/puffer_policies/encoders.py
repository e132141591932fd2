"""Encoders: observations of any space in, features (rows, hidden_size) out.

Each casts its input once, to the dtype of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies.images import NatureCNN, image_scale, is_image
from puffer_policies.initialization import check_sizes, layer_init
from puffer_policies.linear import Linear
from puffer_policies.observations import leaf_plan, read_leaf, read_rows
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

MAX_CHOICES = 2**24
"""A leaf with more choices than this is refused: its table of vectors would take more than 4 GiB."""

EMBEDDING_SIZE = 64
"""Length of a learned vector."""


def make_activation(name: str) -> nn.Module:
    """Return an activation by its name.

    Raises:
        ValueError: There is none of that name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {name!r}.")
    return ACTIVATIONS[name]()


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
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size = input_size
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
        weight = cast(Linear, self.layers[0]).weight
        return cast(Tensor, self.layers(read_rows(observations, (self.input_size,), weight.dtype)))


class ChoiceInput(nn.Module):
    """Discrete elements as one-hot rows, or as a sum of learned vectors where there are very many choices.

    Args:
        nvec: Number of choices of each element.
        start: First value of each element.

    Raises:
        ValueError: There are more than `MAX_CHOICES` choices in all.
    """

    first: Tensor
    last: Tensor
    offsets: Tensor

    def __init__(self, nvec: Any, start: Any) -> None:
        super().__init__()
        counts = torch.as_tensor(np.asarray(nvec, np.int64))
        self.width = sum(counts.tolist())
        if self.width > MAX_CHOICES:
            raise ValueError(
                f"discrete observations must have at most {MAX_CHOICES:,} choices in all; got {self.width:,}. "
                "Declare a Box with features of the value instead."
            )
        first = torch.as_tensor(np.asarray(start, np.int64))
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("last", counts - 1, persistent=False)
        self.register_buffer("offsets", torch.cumsum(counts, 0) - counts, persistent=False)
        self.embedding = nn.Embedding(self.width, EMBEDDING_SIZE) if self.width > MAX_ONE_HOT else None
        self.output_size = self.width if self.embedding is None else EMBEDDING_SIZE

    def forward(self, values: Tensor) -> Tensor:
        """Map integers (rows, ...) to (rows, output_size). Values out of range count as the nearest choice."""
        elements = read_rows(values, self.first.shape, torch.int64) - self.first
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
        return read_rows(values, (self.output_size,), torch.float32)


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
        self.row_size = math.prod(layout.row_shape)
        self.plans = [leaf_plan(leaf, layout) for leaf in layout.leaves]
        self.inputs = nn.ModuleList([_leaf_input(leaf, hidden_size, make_cnn) for leaf in layout.leaves])
        size = sum(int(getattr(part, "output_size", hidden_size)) for part in self.inputs)
        self.mlp = make_mlp(size, hidden_size, num_layers, activation, layer_norm)

    def forward(self, observations: Tensor) -> Tensor:
        """Map rows of the layout, (rows, ...), to (rows, hidden_size)."""
        if len(self.plans) == 1:
            parts = [self.inputs[0](observations)]
        else:
            rows = read_rows(observations, (self.row_size,), observations.dtype)
            parts = [part(read_leaf(rows, plan)) for part, plan in zip(self.inputs, self.plans, strict=True)]
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
