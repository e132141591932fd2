"""Read rows of actions as the values that foreign environments take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces import ActionLayout, copy_actions

Reader = Callable[[npt.NDArray[Any]], Sequence[Any]]

_LARGEST_TABLE = 4096


def make_action_reader(name: str, layout: ActionLayout, num_worlds: int) -> Reader:
    """Make the function that turns an array of actions into one value of the original space a world.

    Choices are checked. Arrays are the env's to keep: each step makes new ones, since an env that remembers its last
    action would otherwise compare the new one with itself.

    Args:
        name: What errors call the env.
        layout: Of the env's action space; its rows hold choices 0..n-1 where leaves are discrete.
        num_worlds: Rows of the actions.
    """
    shape = (num_worlds, *(layout.row_space.shape or ()))
    read = _reader_of_kind(name, layout, num_worlds)

    def read_checked(actions: npt.NDArray[Any]) -> Sequence[Any]:
        actions = np.asarray(actions)
        if actions.shape != shape:
            raise ValueError(f"actions of {name} must have shape {shape}; got {actions.shape}. Give one row a world.")
        return read(actions)

    return read_checked


def _reader_of_kind(name: str, layout: ActionLayout, num_worlds: int) -> Reader:
    space = layout.space
    if isinstance(space, spaces.Discrete) and space.n <= _LARGEST_TABLE:
        return _table_reader(name, space)
    if isinstance(space, spaces.Box) and space.shape == layout.row_shape:
        return _box_reader(name, space)
    return _layout_reader(name, layout, num_worlds)


def _table_reader(name: str, space: spaces.Discrete) -> Reader:
    scalar = np.dtype(space.dtype).type
    # Made once: a NumPy integer is what the space's own sample() returns, and a look-up refuses what is no choice.
    values = {choice: scalar(space.start + choice) for choice in range(int(space.n))}

    def read_choices(actions: npt.NDArray[Any]) -> list[Any]:
        try:
            return [values[choice] for choice in actions.tolist()]
        except KeyError as error:
            raise ValueError(
                f"an action of {name} must be one of 0..{space.n - 1}; got {error.args[0]}. "
                "Choices count from 0; a start of the space is added by the adapter."
            ) from None

    return read_choices


def _box_reader(name: str, space: spaces.Box) -> Reader:
    dtype = space.dtype

    def read_box(actions: npt.NDArray[Any]) -> list[Any]:
        if actions.dtype == dtype:
            return list(actions.copy())
        cast = np.empty(actions.shape, dtype)
        copy_actions(actions, cast, name)
        return list(cast)

    return read_box


def _layout_reader(name: str, layout: ActionLayout, num_worlds: int) -> Reader:
    held = np.zeros((num_worlds, *layout.row_shape), layout.dtype)
    target = held.reshape((num_worlds, *(layout.row_space.shape or ())))
    rows = [layout.bind(held[index : index + 1]) for index in range(num_worlds)]

    def read_rows(actions: npt.NDArray[Any]) -> list[Any]:
        try:
            copy_actions(actions, target, name)
            return [row.read() for row in rows]
        except ValueError as error:
            raise ValueError(f"action of {name}: {error}") from None

    return read_rows
