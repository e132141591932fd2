"""Encoders of images: the Nature CNN and the IMPALA network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from puffer_policies.initialization import check_sizes, layer_init
from puffer_policies.linear import Linear
from puffer_policies.observations import read_rows

Tensor = torch.Tensor

MIN_PIXELS = 3
"""Pixels that an image has at least in height and in width; less is a vector."""


def is_image(space: spaces.Space[Any]) -> bool:
    """Tell whether a CNN sees a space: a Box of three dimensions, at least 3 pixels a side, or of two from 32 on.

    A Box of bytes with four dimensions is a stack of images if it has fewer of them than pixels a side.
    """
    if not isinstance(space, spaces.Box):
        return False
    if len(space.shape) == 2:
        return min(space.shape) >= 32
    is_stack = len(space.shape) == 4 and space.dtype == np.uint8
    num_images, *image = space.shape if is_stack else (1, *space.shape)
    return len(image) == 3 and min(_split_shape(image, has_channels_last(image))[0]) >= max(MIN_PIXELS, num_images)


def has_channels_last(shape: Sequence[int]) -> bool:
    """Guess the axis of the channels: the smaller of first and last; the last where they are equal."""
    return shape[0] >= shape[-1]


def image_scale(space: spaces.Space[Any]) -> float:
    """Return the factor that takes pixels in [0, 255] to [0, 1], 1 for others: bytes, or bounds that say so."""
    box = cast(spaces.Box, space)
    low, high = float(np.min(box.low)), float(np.max(box.high))
    is_byte = box.dtype == np.uint8 and high > 1.0
    return 1.0 / 255.0 if is_byte or (low, high) == (0.0, 255.0) else 1.0


def _split_shape(shape: Sequence[int], channels_last: bool) -> tuple[Sequence[int], int]:
    """Return (height, width) and the number of channels."""
    return (shape[:2], shape[2]) if channels_last else (shape[1:], shape[0])


class ImageEncoder(nn.Module):
    """What encoders of images share: where channels are, the scale of pixels, the linear layer behind convolutions.

    The images of a stack become one with the channels of all.

    Args:
        shape: (height, width, channels), (channels, height, width) or (height, width), or a stack of one of the
            first two, (images, ...).
        hidden_size: Outputs.
        scale: Factor on pixels: 1 / 255 for bytes.
        channels_last: Where the channels are; None chooses the smaller of first and last axis.

    Raises:
        ValueError: The shape is not that of an image.
    """

    linear: Linear

    def __init__(self, shape: tuple[int, ...], hidden_size: int, scale: float, channels_last: bool | None) -> None:
        super().__init__()
        check_sizes(hidden_size=hidden_size)
        if len(shape) not in (2, 3, 4) or min(shape) < 1:
            raise ValueError(
                "shape must be (height, width, channels), (channels, height, width) or (height, width), or a stack "
                f"(images, ...) of one of the first two; got {tuple(shape)}. Use an MLP for other observations."
            )
        self.stack_shape = {2: (1, *shape, 1), 3: (1, *shape), 4: tuple(shape)}[len(shape)]
        num_images, *image = self.stack_shape
        self.channels_last = has_channels_last(image) if channels_last is None else channels_last
        size, channels = _split_shape(image, self.channels_last)
        channels *= num_images
        self.shape = (*size, channels) if self.channels_last else (channels, *size)
        self.scale = scale
        self.hidden_size = hidden_size

    def forward(self, observations: Tensor) -> Tensor:
        """Map (rows, *shape) of any dtype to (rows, hidden_size)."""
        stack = read_rows(observations, self.stack_shape, observations.dtype)
        images = stack.movedim(1, 3).flatten(3) if self.channels_last else stack.flatten(1, 2)
        pixels = images.to(self.linear.weight.dtype)
        x = self._convolve(pixels.permute(0, 3, 1, 2) if self.channels_last else pixels)
        if self.channels_last:
            x = x.permute(0, 2, 3, 1)
        return functional.relu(self.linear(x.flatten(1)))

    def _convolve(self, pixels: Tensor) -> Tensor:
        """Map (rows, channels, height, width), not yet scaled, to rectified maps (rows, ...)."""
        raise NotImplementedError

    def _convolve_pixels(self, convolution: nn.Conv2d, pixels: Tensor) -> Tensor:
        """Apply the first convolution with the scale in its kernels: that saves a pass over the pixels."""
        weight = convolution.weight * self.scale if self.scale != 1.0 else convolution.weight
        return functional.conv2d(pixels, weight, convolution.bias, convolution.stride, convolution.padding)


class NatureCNN(ImageEncoder):
    """Three convolutions and a linear layer, with rectifiers; smaller kernels for images below 36 pixels.

    Mnih et al. 2015, "Human-level control through deep reinforcement learning" (Nature 518).

    Args:
        shape: As `ImageEncoder` takes it: of an image, or of a stack of images.
        hidden_size: Outputs.
        scale: Factor on pixels: 1 / 255 for bytes.
        channels_last: Where the channels are; None chooses the smaller of first and last axis.
    """

    def __init__(
        self, shape: tuple[int, ...], hidden_size: int = 128, scale: float = 1.0, channels_last: bool | None = None
    ) -> None:
        super().__init__(shape, hidden_size, scale, channels_last)
        size, channels = _split_shape(self.shape, self.channels_last)
        layers = []
        for outputs, kernel, stride in _kernels(min(size)):
            padding = kernel // 2 if stride == 1 and kernel == 3 and min(size) < 16 else 0
            layers.append(layer_init(nn.Conv2d(channels, outputs, kernel, stride, padding)))
            size = tuple((length + 2 * padding - kernel) // stride + 1 for length in size)
            channels = outputs
        self.convolutions = nn.ModuleList(layers)
        self.linear = layer_init(Linear(channels * math.prod(size), hidden_size))

    def _convolve(self, pixels: Tensor) -> Tensor:
        x = functional.relu(self._convolve_pixels(cast(nn.Conv2d, self.convolutions[0]), pixels))
        for convolution in self.convolutions[1:]:
            x = functional.relu(convolution(x))
        return x


def _kernels(length: int) -> list[tuple[int, int, int]]:
    """Return (channels, kernel, stride) of each convolution for the shorter side of the image."""
    if length >= 36:
        return [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    if length >= 16:
        return [(32, 4, 2), (64, 3, 2), (64, 3, 1)]
    if length >= MIN_PIXELS:
        return [(32, 3, 1), (64, 3, 1)]
    raise ValueError(
        f"images must be at least {MIN_PIXELS} pixels wide and high; got {length}. Flatten them into an MLP."
    )


class ImageBlock(nn.Module):
    """Two 3x3 convolutions whose result is added to the image: x + W₂ relu(W₁ relu(x)).

    Args:
        channels: Channels in and out.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = layer_init(nn.Conv2d(channels, channels, 3, padding=1))
        self.second = layer_init(nn.Conv2d(channels, channels, 3, padding=1), std=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, channels, height, width) to the same shape."""
        return x + cast(Tensor, self.second(functional.relu(self.first(functional.relu(x)))))


class ImpalaCNN(ImageEncoder):
    """Three stages of a convolution, a pooling that halves the image, and two residual blocks; then a linear layer.

    The large network of Espeholt et al. 2018, "IMPALA", figure 3 (https://arxiv.org/abs/1802.01561), without its LSTM.
    An image too small for a stage's pooling keeps its size there.

    Args:
        shape: As `ImageEncoder` takes it: of an image, or of a stack of images.
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
        super().__init__(shape, hidden_size, scale, channels_last)
        check_sizes(width=width)
        size, channels = _split_shape(self.shape, self.channels_last)
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

    def _convolve(self, pixels: Tensor) -> Tensor:
        x = pixels
        for index, (entry, blocks, is_halved) in enumerate(zip(self.entries, self.blocks, self.halves, strict=True)):
            x = entry(x) if index else self._convolve_pixels(cast(nn.Conv2d, entry), x)
            if is_halved:
                x = functional.max_pool2d(x, 3, stride=2, padding=1)
            x = blocks(x)
        return functional.relu(x)
