"""Infos of env objects, brought into one form: a list of dicts, each with the row of its agent."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_IMMUTABLE = (int, float, complex, str, bytes, bool, type(None), np.generic)


def indexed_infos(infos: Any, num_rows: int, first_row: int) -> list[dict[str, Any]]:
    """Return copies of the infos that are not empty, each with `agent_index`, a row of the vector env.

    Args:
        infos: What an env object returned: one dict, or a sequence of dicts.
        num_rows: Rows of that object.
        first_row: Its first row in the vector env.

    An info may name its row within the object as `agent_index`. Otherwise a sequence of num_rows infos has one per
    row, and any other info is about the whole object and gets its first row. Values are copied, since an env may go on
    writing into them.

    Raises:
        TypeError: They are no dicts.
        ValueError: A row is not in the object.
    """
    if isinstance(infos, Mapping):
        infos = (infos,)
    if not isinstance(infos, Sequence):
        raise TypeError(f"infos must be a list of dicts, or one dict; got {infos!r}. Return [] where there are none.")
    by_row = len(infos) == num_rows
    indexed = []
    for position, info in enumerate(infos):
        if not info:
            continue
        if not isinstance(info, Mapping):
            raise TypeError(f"each info must be a dict; got {info!r} in {infos!r}. Return a list of dicts.")
        copied = {name: _copied(value) for name, value in info.items()}
        row = int(copied.get("agent_index", position if by_row else 0))
        if not 0 <= row < num_rows:
            raise ValueError(
                f"agent_index of an info must be a row of its env, from 0 to {num_rows - 1}; got {row}. Count rows "
                "within the env."
            )
        copied["agent_index"] = first_row + row
        indexed.append(copied)
    return indexed


def without_index(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return an info without the row of its agent."""
    return {name: value for name, value in info.items() if name != "agent_index"}


def _copied(value: Any) -> Any:
    if isinstance(value, _IMMUTABLE):
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:  # what cannot be copied (a lock, a window) is handed on as it is
        return value
