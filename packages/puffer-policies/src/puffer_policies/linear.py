"""Matrix products of many rows with small weights, at the speed of the processor.

The BLAS that PyTorch links reaches about half of the fp32 rate of some processors; oneDNN, which PyTorch ships too,
reaches nearly all of it on the same ones. A 1x1 convolution over rows laid out as channels-last pixels is the same sum
of products through a public, differentiable operator that calls oneDNN, without a copy.
"""

from __future__ import annotations

import platform

import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor

_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")

MIN_PRODUCTS = 8_000_000
"""rows * inputs * outputs from which the convolution is the faster one: below, its fixed cost of some 20 µs counts."""

MIN_WIDTH = 16
"""Inputs and outputs from which it is: narrower ones leave the lanes of its vectors empty."""

ONE_THREAD_IMAGES = 16
"""With one thread torch hands 1x1 convolutions to oneDNN only if they have this many images."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute `x @ weight.T + bias`, as `torch.nn.functional.linear`, by the faster of two ways.

    Args:
        x: (rows, inputs).
        weight: (outputs, inputs).
        bias: (outputs,) or None.

    Returns:
        (rows, outputs), C-contiguous.
    """
    num_images = _num_images(x, weight)
    if not num_images:
        return functional.linear(x, weight, bias)
    pixels = x.reshape(num_images, -1, 1, x.shape[1]).permute(0, 3, 1, 2)
    out = functional.conv2d(pixels, weight[:, :, None, None], bias)
    return out.permute(0, 2, 3, 1).reshape(x.shape[0], weight.shape[0])


class Linear(nn.Linear):
    """`torch.nn.Linear` through `linear`: same parameters, same result, leading dimensions allowed."""

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if input.ndim == 2:
            return linear(input, self.weight, self.bias)
        rows = linear(input.reshape(-1, self.in_features), self.weight, self.bias)
        return rows.reshape(*input.shape[:-1], self.out_features)


def _num_images(x: Tensor, weight: Tensor) -> int:
    """Return how many channels-last images the rows are laid out as; 0 where the plain product is the faster way."""
    pays = bool(
        _IS_X86
        and not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and x.dtype == torch.float32 == weight.dtype
        and x.shape[0] * weight.numel() >= MIN_PRODUCTS
        and min(weight.shape) >= MIN_WIDTH
        and x.is_contiguous()
        and torch.backends.mkldnn.enabled
        and torch.backends.mkldnn.is_available()
        and not torch.is_autocast_enabled("cpu")
    )
    if not pays:
        return 0
    if torch.get_num_threads() > 1:
        return 1
    return ONE_THREAD_IMAGES if x.shape[0] % ONE_THREAD_IMAGES == 0 else 0
