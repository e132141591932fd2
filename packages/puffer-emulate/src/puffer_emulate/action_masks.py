"""Action masks of multi-agent environments: from the observation, and from whose turn it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces import ActionLayout

_MASK_KEY = "action_mask"


class ActionMasks:
    """Splits the `action_mask` off an observation, where there is one, and writes rows of masks.

    A Dict observation with an `action_mask` of one element per choice is PettingZoo's form. What is left of a Dict of
    `observation` and `action_mask` is the `observation` itself.

    Args:
        observation_space: Of an agent, as the env states it.
        action_space: Of an agent.
        is_turn_based: Whether agents wait for their turn; then all but the first choice is masked for those who wait.

    Attributes:
        observation_space: Without the mask.
        is_unwrapped: Whether `observation_space` is that of the key `observation` alone.
        size: Number of choices in all, or 0 where there are no masks.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], is_turn_based: bool
    ) -> None:
        leaves = ActionLayout(action_space).leaves
        is_discrete = all(leaf.is_discrete for leaf in leaves)
        counts = np.concatenate([leaf.nvec for leaf in leaves]) if is_discrete else np.zeros(0, np.int64)
        num_choices = int(counts.sum())
        self._has_mask = _holds_mask(observation_space, num_choices)
        self._is_turn_based = is_turn_based
        self.size = num_choices if self._has_mask or is_turn_based else 0
        self.observation_space = observation_space
        self.is_unwrapped = False
        if self._has_mask and isinstance(observation_space, spaces.Dict):
            rest = {key: space for key, space in observation_space.spaces.items() if key != _MASK_KEY}
            self.is_unwrapped = list(rest) == ["observation"]
            self.observation_space = rest["observation"] if self.is_unwrapped else spaces.Dict(rest)
        self._first_only = np.zeros(num_choices, np.bool_)
        self._first_only[np.cumsum(counts) - counts] = True

    def observation_of(self, value: Any) -> Any:
        """Return what is left of an agent's observation without its mask.

        Raises:
            TypeError: The observation is no dict, or lacks a key.
        """
        if not self._has_mask:
            return value
        if (
            not isinstance(value, Mapping)
            or _MASK_KEY not in value
            or (self.is_unwrapped and "observation" not in value)
        ):
            got = (
                f"keys {sorted(map(str, value))}" if isinstance(value, Mapping) else f"{type(value).__name__} {value!r}"
            )
            raise TypeError(f"it must be a dict with {_MASK_KEY!r}, as its space is; got {got}. Return every key.")
        return value["observation"] if self.is_unwrapped else value

    def write(self, row: npt.NDArray[np.bool_], env: Any, agent: Any, value: Any) -> None:
        """Write the mask of an agent that is in the world.

        Args:
            row: bool (size,), True where a choice is allowed.
            env: The agent's world.
            agent: The agent.
            value: Its observation, mask included.
        """
        if self._is_turn_based and agent != env.agent_selection:
            row[:] = self._first_only
        elif self._has_mask:
            mask = np.asarray(value[_MASK_KEY])
            if mask.size != self.size or mask.dtype.kind not in "biuf" or np.isnan(mask).any():
                raise ValueError(
                    f"{_MASK_KEY} must be {self.size} numbers, 0 for a choice that is not allowed; "
                    f"got {value[_MASK_KEY]!r}. Give one for each choice."
                )
            row[:] = mask.ravel() != 0
            # A distribution needs a choice; an env that allows none will not mind which.
            if not row.any():
                row[:] = True
        else:
            row[:] = True


def _holds_mask(space: spaces.Space[Any], num_choices: int) -> bool:
    if not num_choices or not isinstance(space, spaces.Dict) or len(space.spaces) < 2:
        return False
    mask = space.spaces.get(_MASK_KEY)
    return mask is not None and mask.shape is not None and int(np.prod(mask.shape)) == num_choices
