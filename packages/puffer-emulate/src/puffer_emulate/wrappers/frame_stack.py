"""The last observations as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.wrappers.boxes import box_env
from puffer_emulate.wrappers.wrapper import PufferWrapper
from puffer_spaces import Array


class FrameStack(PufferWrapper):
    """Shows the last `num_frames` observations of each agent, oldest first.

    Images (height, width, channels) are joined along their channels; any other observation gets a new first axis. At
    the start of an episode the first observation stands for those before it. Final observations are stacks of the
    episode that ended.

    Args:
        env: The env, or what `as_puffer_env` makes one of. Its observation is one Box.
        num_frames: How many, at least 1.
    """

    def __init__(self, env: Any, num_frames: int) -> None:
        if num_frames < 1:
            raise ValueError(f"num_frames must be at least 1; got {num_frames}.")
        self.num_frames = num_frames
        inner = box_env(env, "FrameStack")
        space = inner.single_observation_space
        assert isinstance(space, spaces.Box)
        low, high = (self._joined(np.stack([bound] * num_frames)[None])[0] for bound in (space.low, space.high))
        self._frames: Array = np.zeros((inner.num_agents, num_frames, *space.shape), space.dtype)
        super().__init__(inner, spaces.Box(low, high, dtype=space.dtype.type))

    def _after_reset(self, is_seeded: bool) -> None:  # noqa: ARG002 - seeded or not, frames start anew
        self._frames[:] = self.env.observations[:, None]
        self.observations[:] = self._joined(self._frames)

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:
        frames, observations = self._frames, self.env.observations
        if ended.any():
            last = np.concatenate([frames[ended, 1:], self.env.final_observations[ended][:, None]], axis=1)
            self.final_observations[ended] = self._joined(last)
        frames[:, :-1] = frames[:, 1:].copy()
        frames[:, -1] = observations
        begins = ended | ~acted
        frames[begins] = observations[begins][:, None]
        self.observations[:] = self._joined(frames)

    def _joined(self, frames: Array) -> Array:
        if frames.ndim != 5:
            return frames
        return np.concatenate(list(np.moveaxis(frames, 1, 0)), axis=-1)

    def _state_names(self) -> tuple[str, ...]:
        return ("_frames",)
