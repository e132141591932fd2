"""States of users' modules, in any nesting and with rows on any axis, as tuples of tensors with rows first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

Tensor = torch.Tensor
State = tuple[Tensor, ...]


class StateForm:
    """How a module nests its state and which axis of each part counts the rows.

    An `nn.LSTM` inside a module has parts (layers, rows, hidden), a cell (rows, hidden). The form is found by comparing
    the states that the module returns for two numbers of rows.

    Args:
        fewer: State returned for `few` rows.
        more: State returned for `many` rows.
        few: A number of rows.
        many: Another.

    Raises:
        ValueError: A part has no axis that follows the number of rows.
    """

    def __init__(self, fewer: Any, more: Any, few: int, many: int) -> None:
        self._example = _without_rows(fewer)
        self._axes = [
            _row_axis(left, right, few, many) for left, right in zip(_parts(fewer), _parts(more), strict=True)
        ]
        self._parts = [
            (part.select(axis, 0).shape, part.dtype) for axis, part in zip(self._axes, _parts(fewer), strict=True)
        ]

    def zeros(self, num_rows: int, device: torch.device | str | None) -> State:
        """Return a zero state with rows first."""
        return tuple(torch.zeros(num_rows, *shape, dtype=dtype, device=device) for shape, dtype in self._parts)

    def to_rows(self, state: Any) -> State:
        """Move the rows of each part of a module's state to the front."""
        return tuple(part.movedim(axis, 0) for axis, part in zip(self._axes, _parts(state), strict=True))

    def to_module(self, state: State) -> Any:
        """Build the module's state from parts with rows first."""
        moved = [part.movedim(0, axis).contiguous() for axis, part in zip(self._axes, state, strict=True)]
        return _rebuild(self._example, iter(moved))


def _parts(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, dict):
        return [part for key in state for part in _parts(state[key])]
    if isinstance(state, tuple | list):
        return [part for child in state for part in _parts(child)]
    raise ValueError(f"a state must be a tensor, or a tuple, list or dict of them; got {type(state).__name__}.")


def _without_rows(state: Any) -> Any:
    """Keep the nesting only, with None for each tensor."""
    return _rebuild(state, iter([None] * len(_parts(state))))


def _rebuild(example: Any, parts: Iterator[Any]) -> Any:
    if isinstance(example, dict):
        return {key: _rebuild(child, parts) for key, child in example.items()}
    if isinstance(example, tuple) and hasattr(example, "_fields"):
        return type(example)(*[_rebuild(child, parts) for child in example])
    if isinstance(example, tuple | list):
        return type(example)([_rebuild(child, parts) for child in example])
    return next(parts)


def _row_axis(left: Tensor, right: Tensor, few: int, many: int) -> int:
    if left.ndim == right.ndim:
        for axis, (short, long) in enumerate(zip(left.shape, right.shape, strict=True)):
            if (short, long) == (few, many):
                return axis
    raise ValueError(
        f"each part of the policy's state must have an axis for the rows; got {tuple(left.shape)} for {few} rows and "
        f"{tuple(right.shape)} for {many}. Return states such as (rows, hidden) or (layers, rows, hidden)."
    )


def zero_where(state: State, resets: Tensor) -> State:
    """Zero the rows of a state where resets, bool (rows,)."""
    return tuple(part.masked_fill(resets.view(-1, *[1] * (part.ndim - 1)), 0) for part in state)


def check_resets(resets: Tensor | None, batch: int, horizon: int) -> None:
    """Raise a ValueError unless resets are None or bool (batch, horizon)."""
    if resets is not None and (resets.dtype != torch.bool or tuple(resets.shape) != (batch, horizon)):
        raise ValueError(
            f"resets must be bool ({batch}, {horizon}), like the first dimensions of the observations; got "
            f"{resets.dtype} {tuple(resets.shape)}. Row by row, True where an episode starts."
        )
