"""A check of what the step of an env returned: it counts only as far as it is in the env's rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from puffer_spaces import Buffers

_NAMES = ("observations", "rewards", "terminals", "truncations")


def check_result(result: Any, rows: Buffers) -> None:
    """Check that a step returned five values, and nothing that is not in its rows.

    Args:
        result: What the step returned.
        rows: Rows of the env object.

    Raises:
        TypeError: It is something else than five values.
        ValueError: It holds other values than the rows.
    """
    if not isinstance(result, tuple | list) or len(result) != len(_NAMES) + 1:
        got = f"{len(result)} values" if isinstance(result, tuple | list) else repr(result)
        raise TypeError(f"step must return (observations, rewards, terminals, truncations, infos); got {got}.")
    for name, returned in zip(_NAMES, result, strict=False):
        row = getattr(rows, name)
        if returned is None or returned is row:
            continue
        if not _is_in(row, returned):
            raise ValueError(
                f"step must write to self.{name} in place, which others read; it returned other values. "
                f"Write self.{name}[:] = ... and return self.{name}."
            )


def _is_in(row: Any, returned: Any) -> bool:
    array = np.asarray(returned)
    if array.shape != row.shape:
        return False
    if np.may_share_memory(array, row):
        return True
    return np.array_equal(array.astype(row.dtype), row, equal_nan=row.dtype.kind == "f")
