"""Checks of actions before any env sees them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_vector._actions import ActionGate


class ActionWriter:
    """Writes actions of a batch into their rows after checking shape, dtype and range.

    Args:
        target: The actions array, (rows, *action_shape).
        space: Space of one agent's action.
    """

    def __init__(self, target: npt.NDArray[Any], space: spaces.Space[Any]) -> None:
        self._target = target
        self._space = space
        limits: list[int] = []
        if isinstance(space, spaces.Discrete):
            limits = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete):
            limits = [int(n) for n in np.ravel(space.nvec)]
        elif isinstance(space, spaces.MultiBinary):
            limits = [2] * int(np.prod(space.shape))
        self._limits = np.array(limits, np.int64).reshape(space.shape) if limits else None
        self._gate = ActionGate(target, limits)

    def write(self, actions: Any, first_row: int, last_row: int) -> None:
        """Write `actions` into rows [first_row, last_row). Errors are raised as `VectorEnv.send` says."""
        if not self._gate.write(actions, first_row, last_row):
            self._write_converted(actions, first_row, last_row)

    def _write_converted(self, actions: Any, first_row: int, last_row: int) -> None:
        array = np.asarray(actions)
        shape = (last_row - first_row, *self._target.shape[1:])
        if array.shape != shape:
            raise ValueError(
                f"actions must have the shape {shape}, a row for each agent of the batch; got {array.shape}. "
                "Send one action for each row that recv returned."
            )
        if self._limits is None:
            if array.dtype.kind not in "iufb" or not np.can_cast(array.dtype, self._target.dtype, "same_kind"):
                self._refuse_dtype(array, str(self._target.dtype))
            if self._target.dtype.kind in "iu" and array.size:
                self._check_fits(array)
            self._target[first_row:last_row] = array
            return
        if array.dtype.kind not in "iub":
            self._refuse_dtype(array, "an integer dtype")
        wrong = (array < 0) | (array >= self._limits)
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            limit = self._limits[index[1:]] if self._limits.shape else self._limits
            raise ValueError(
                f"actions must be choices from 0 to n - 1; got {array[index]} at {list(index)}, where n={int(limit)}. "
                f"The space of one agent is {self._space}."
            )
        self._target[first_row:last_row] = array

    def _check_fits(self, array: npt.NDArray[Any]) -> None:
        limits = np.iinfo(self._target.dtype)
        for extreme in (int(array.min()), int(array.max())):
            if not limits.min <= extreme <= limits.max:
                raise ValueError(
                    f"actions must fit in {self._target.dtype}; got {extreme}. Clip them to {self._space}."
                )

    def _refuse_dtype(self, array: npt.NDArray[Any], wanted: str) -> NoReturn:
        raise TypeError(
            f"actions must have {wanted}, as the space of one agent is {self._space}; got {array.dtype}. "
            "Convert them first."
        )
