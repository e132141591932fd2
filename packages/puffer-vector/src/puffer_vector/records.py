"""Episode records of many env objects, brought to one numbering, one dtype and one order."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from puffer_spaces import episode_dtype

Records = npt.NDArray[np.void]


@functools.cache
def _empty(extras: tuple[str, ...]) -> Records:
    records = np.empty(0, episode_dtype(extras))
    records.flags.writeable = False
    return records


def no_records(extras: tuple[str, ...] = ()) -> Records:
    """Return an empty array of records."""
    return _empty(extras)


def local_to_global(records: Records, first_world: int, extras: tuple[str, ...]) -> Records:
    """Return records with `world` counted in the whole vector env and the fields of `extras`, nan where missing."""
    dtype = episode_dtype(extras)
    if records.dtype == dtype:
        converted = joined([records])
    else:
        converted = np.zeros(len(records), dtype)
        for extra in extras:
            converted[extra] = np.nan
        for name in set(records.dtype.names or ()) & set(dtype.names or ()):
            converted[name] = records[name]
    converted["world"] += first_world
    return converted


def joined(parts: Sequence[Records]) -> Records:
    """Return one or more arrays of one dtype in a new one, as they follow each other."""
    # NumPy copies ten times as many bytes a second as fields.
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts]).view(parts[0].dtype)


def merged(parts: Sequence[Records], extras: tuple[str, ...]) -> Records:
    """Return all records in one array of the caller's own, sorted by (step, world, agent)."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return no_records(extras).copy()
    records = joined(filled)
    if _is_sorted(records):  # as the records of one object are
        return records
    return records[np.lexsort((records["agent"], records["world"], records["step"]))]


def _is_sorted(records: Records) -> bool:
    later = np.zeros(max(len(records) - 1, 0), np.bool_)
    for name in ("agent", "world", "step"):  # the last one decides
        column = records[name].copy()  # one after the other in memory they are compared faster
        later = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & later)
    return bool(later.all())
