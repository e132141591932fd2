"""The stock policies of PufferLib 3.0 under their names, with the face of a trainer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from puffer_policies.default import DefaultPolicy
from puffer_policies.distributions import make_action_head
from puffer_policies.images import ImpalaCNN, NatureCNN, image_scale
from puffer_policies.policies import Policy
from puffer_policies.spaces import env_spaces

Tensor = torch.Tensor


class Default(DefaultPolicy):
    """One layer and a GELU for vectors; other observations as `default_policy` has them.

    Args:
        env: An env or vector env.
        hidden_size: Features.
    """

    def __init__(self, env: Any, hidden_size: int = 128) -> None:
        super().__init__(env, hidden_size, num_layers=1)


class Convolutional(Policy):
    """The Nature CNN for images.

    Args:
        env: An env or vector env with image observations.
        framestack: Channels of an image.
        flat_size: Features behind the convolutions. They follow from the image; the argument is there for old calls.
        input_size: Features in front of a memory; equal to hidden_size here.
        hidden_size: Features.
        output_size: Features behind a memory; equal to hidden_size here.
        channels_last: Whether images are (height, width, channels).
        downsample: Every so many pixels are seen, in both directions.

    Raises:
        ValueError: The observations are no such images.
    """

    def __init__(
        self,
        env: Any,
        *,
        framestack: int,
        flat_size: int | None = None,
        input_size: int = 512,
        hidden_size: int = 512,
        output_size: int = 512,
        channels_last: bool = False,
        downsample: int = 1,
    ) -> None:
        space, action_space, _, action_layout = env_spaces(env)
        shape = tuple(space.shape or ())
        if len(shape) != 3 or shape[-1 if channels_last else 0] != framestack:
            order = "(height, width, channels)" if channels_last else "(channels, height, width)"
            raise ValueError(
                f"observations must be images {order} with framestack={framestack} channels; got shape {shape}. "
                "Set framestack and channels_last to fit."
            )
        if {input_size, output_size} != {hidden_size}:
            raise ValueError(
                "input_size, hidden_size and output_size must be equal; "
                f"got {input_size}, {hidden_size}, {output_size}. Give all three the same value."
            )
        size = [-(-length // downsample) for length in (shape[:2] if channels_last else shape[1:])]
        seen = (*size, framestack) if channels_last else (framestack, *size)
        encoder: nn.Module = NatureCNN(seen, hidden_size, image_scale(space), channels_last)
        if downsample > 1:
            encoder = nn.Sequential(_Downsample(downsample, channels_last), encoder)
        super().__init__(encoder, make_action_head(action_space, action_layout), hidden_size)
        self.flat_size = flat_size


class ProcgenResnet(Policy):
    """The IMPALA network for images.

    Args:
        env: An env or vector env with image observations.
        cnn_width: Channels of the first stage.
        mlp_width: Features.
    """

    def __init__(self, env: Any, cnn_width: int = 16, mlp_width: int = 256) -> None:
        space, action_space, _, action_layout = env_spaces(env)
        encoder = ImpalaCNN(tuple(space.shape or ()), mlp_width, image_scale(space), width=cnn_width)
        super().__init__(encoder, make_action_head(action_space, action_layout), mlp_width)


class _Downsample(nn.Module):
    """Keep every n-th pixel."""

    def __init__(self, step: int, channels_last: bool) -> None:
        super().__init__()
        self.step = step
        self.channels_last = channels_last

    def forward(self, images: Tensor) -> Tensor:
        if self.channels_last:
            return images[:, :: self.step, :: self.step]
        return images[:, :, :: self.step, :: self.step]
