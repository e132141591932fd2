"""Bounds on rewards and actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.wrappers.wrapper import PufferWrapper
from puffer_spaces import Array


class ClipReward(PufferWrapper):
    """Clips rewards. Episode records keep the env's own.

    Args:
        env: The env, or what `as_puffer_env` makes one of.
        low: Smallest reward.
        high: Largest reward.
    """

    def __init__(self, env: Any, low: float = -1.0, high: float = 1.0) -> None:
        if not low < high:
            raise ValueError(f"low must be less than high; got low={low}, high={high}.")
        self._low, self._high = low, high
        super().__init__(env)

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:  # noqa: ARG002
        np.clip(self.rewards, self._low, self._high, out=self.rewards)


class ClipAction(PufferWrapper):
    """Clips continuous actions to the bounds of their Box: policies draw from distributions that have none.

    Args:
        env: The env, or what `as_puffer_env` makes one of. Its action row is a Box.

    Raises:
        TypeError: The actions are choices.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = self.single_action_space
        if not isinstance(space, spaces.Box) or self.action_layout.is_mixed:
            raise TypeError(
                f"ClipAction takes actions of Boxes; got {self.original_action_space}. Choices have no bounds."
            )
        self._low, self._high = space.low, space.high

    def _changed_actions(self, actions: Array) -> Array:
        return np.clip(actions, self._low, self._high)
