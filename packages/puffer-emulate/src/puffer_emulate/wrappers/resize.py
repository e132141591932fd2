"""Smaller images."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.wrappers.boxes import box_env
from puffer_emulate.wrappers.wrapper import PufferWrapper
from puffer_spaces import Array

# Weights of red, green and blue in luminance: ITU-R recommendation BT.601.
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


class Resize(PufferWrapper):
    """Scales uint8 images (height, width) or (height, width, channels) by the mean over each new pixel's area.

    Args:
        env: The env, or what `as_puffer_env` makes one of. Its observation is one image.
        height: Of the new image.
        width: Of the new image.
        is_gray: Whether three channels become one, by their luminance; the image is then (height, width, 1).

    Raises:
        TypeError: The observation is no such image.
    """

    def __init__(self, env: Any, height: int, width: int, is_gray: bool = False) -> None:
        inner = box_env(env, "Resize")
        space = inner.single_observation_space
        shape = tuple(space.shape or ())
        if space.dtype != np.uint8 or len(shape) not in (2, 3) or (is_gray and shape[2:] != (3,)):
            raise TypeError(
                f"Resize takes uint8 images (height, width) or (height, width, channels), for gray with 3 channels; "
                f"got {space}."
            )
        self._rows = area_weights(shape[0], height)
        self._columns = area_weights(shape[1], width)
        self._is_gray = is_gray
        channels = (1,) if is_gray else shape[2:]
        super().__init__(inner, spaces.Box(0, 255, (height, width, *channels), np.uint8))

    def _after_reset(self, is_seeded: bool) -> None:  # noqa: ARG002 - seeded or not, rows are new
        self.observations[:] = self._resized(self.env.observations)

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:  # noqa: ARG002
        self.observations[:] = self._resized(self.env.observations)
        if ended.any():
            self.final_observations[ended] = self._resized(self.env.final_observations[ended])

    def _resized(self, images: Array) -> Array:
        pixels = images.astype(np.float32)
        if self._is_gray:
            pixels = pixels @ _LUMINANCE
        scaled = np.einsum("hi,niw...->nhw...", self._rows, pixels, optimize=True)
        scaled = np.einsum("wj,nhj...->nhw...", self._columns, scaled, optimize=True)
        if self._is_gray:
            scaled = scaled[..., None]
        return np.asarray(np.rint(scaled).clip(0, 255), np.uint8)


def area_weights(size: int, new_size: int) -> npt.NDArray[np.float32]:
    """Return the share of each old pixel in each new one along an axis: float32 (new_size, size), rows sum to 1."""
    edges = np.linspace(0, size, new_size + 1)
    starts, ends = edges[:-1, None], edges[1:, None]
    pixels = np.arange(size)
    overlap = np.minimum(ends, pixels + 1) - np.maximum(starts, pixels)
    weights = np.maximum(overlap, 0)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)
