"""Sizes of layers and their initial weights: orthogonal, with a gain for each place in the network."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)

ACTOR_GAIN = 0.01
"""Gain of the actor's last layer: the first policy is close to uniform (Andrychowicz et al. 2021, arXiv 2006.05990)."""

CRITIC_GAIN = 1.0
"""Gain of the last layer of the critic."""


def check_sizes(**sizes: int) -> None:
    """Raise unless every size is a positive integer.

    Raises:
        ValueError: One is smaller than 1; the message has its name.
        TypeError: One is no integer.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise TypeError(f"{name} must be an integer; got {size!r}. Pass a whole number from 1 on.")
        if size < 1:
            raise ValueError(f"{name} must be at least 1; got {size}. Pass a whole number from 1 on.")


def layer_init(layer: Layer, std: float = math.sqrt(2), bias_const: float = 0.0) -> Layer:
    """Fill a layer with orthogonal weights of gain `std` and a constant bias, in place.

    Saxe et al. 2014, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks"
    (https://arxiv.org/abs/1312.6120).

    Args:
        layer: A layer with a `weight` of at least two dimensions (Linear, Conv) and perhaps a `bias`.
        std: Gain of the weights. sqrt(2) suits a layer before a rectifier, 0.01 the actor's last layer.
        bias_const: Value of every bias.

    Returns:
        The same layer, so that calls nest: `nn.Sequential(layer_init(nn.Linear(4, 64)), nn.ReLU())`.

    Raises:
        TypeError: If the layer has no weight matrix.
    """
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim < 2:
        raise TypeError(
            f"layer must have a weight of two or more dimensions; got {type(layer).__name__}. Pass a Linear or a Conv."
        )
    nn.init.orthogonal_(weight, std)
    bias = getattr(layer, "bias", None)
    if isinstance(bias, torch.Tensor):
        nn.init.constant_(bias, bias_const)
    return layer


def memory_init(memory: nn.Module) -> None:
    """Fill a recurrent layer in place: each gate's matrices orthogonal with gain 1, biases zero.

    Args:
        memory: A module whose parameter names follow torch's recurrent layers (`weight_ih_l0`, `bias_hh_l0`, ...).
    """
    for name, parameter in memory.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        elif parameter.ndim == 2:
            nn.init.orthogonal_(parameter, 1.0)
