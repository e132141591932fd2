"""Records of finished episodes. They are kept one by one, so that a mean is computed once and in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_FIELDS: tuple[tuple[str, str], ...] = (
    ("step", "i8"),
    ("world", "i8"),
    ("agent", "i4"),
    ("episode_return", "f8"),
    ("episode_length", "i8"),
    ("score", "f8"),
    ("perf", "f8"),
)
_FIRST_CAPACITY = 64


def episode_dtype(extras: Sequence[str] = ()) -> np.dtype:
    """Return the structured dtype of one episode record.

    Fields: `step` int64, calls of the env object's `step` since its last seeded reset, from 1; `world` int64, local
    to the env object (a vector env adds the object's first world); `agent` int32, row within the world;
    `episode_return` float64, undiscounted sum of rewards; `episode_length` int64, steps of this agent; `score` float64,
    in natural units, higher is better; `perf` float64, score scaled to [0, 1], or nan; then one float64 per extra.

    Raises:
        TypeError: The extras are one string, or one of them is no string.
        ValueError: An extra has the name of a field, or a name twice.
    """
    if isinstance(extras, str) or not all(isinstance(extra, str) for extra in extras):
        raise TypeError(f'episode extras must be a sequence of names; got {extras!r}. Give for example ("kills",).')
    names = [name for name, _ in _FIELDS]
    for extra in extras:
        if extra in names:
            raise ValueError(f"episode extras must have names of their own; got {extra!r} twice. Rename it.")
        names.append(extra)
    return np.dtype([*_FIELDS, *((extra, "f8") for extra in extras)])


class Episodes:
    """A preallocated store of episode records that grows on demand and is emptied by `drain`.

    Args:
        extras: Names of additional float64 fields.
        max_records: Upper bound of what is kept. When nobody drains, the older half is dropped and counted in
            `num_dropped`, so that an env used without a vector env cannot fill the memory.
    """

    def __init__(self, extras: Sequence[str] = (), max_records: int = 1 << 20) -> None:
        self.dtype = episode_dtype(extras)
        self.extras = tuple(extras)
        self.max_records = max(int(max_records), 2)
        self.num_dropped = 0
        self._records = np.zeros(min(_FIRST_CAPACITY, self.max_records), self.dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(
        self,
        step: int,
        world: int,
        agent: int,
        episode_return: float,
        episode_length: int,
        score: float | None = None,
        perf: float = math.nan,
        *extras: float,
    ) -> None:
        """Add one record. `score` defaults to the return, `perf` and missing extras to nan."""
        if self._count == len(self._records):
            self._make_room(1)
        if score is None:
            score = episode_return
        if len(extras) != len(self.extras):
            extras = _complete(extras, self.extras)
        self._records[self._count] = (step, world, agent, episode_return, episode_length, score, perf, *extras)
        self._count += 1

    def extend(self, records: npt.NDArray[np.void]) -> None:
        """Add an array of records of this store's dtype."""
        if records.dtype != self.dtype:
            raise TypeError(
                f"records must have the dtype of the store, {self.dtype.names}; got {records.dtype.names}. "
                "Build them with episode_dtype(extras)."
            )
        self.num_dropped += max(0, len(records) - self.max_records)
        records = records[-self.max_records :]
        if self._count + len(records) > len(self._records):
            self._make_room(len(records))
        self._records[self._count : self._count + len(records)] = records
        self._count += len(records)

    def drain(self) -> npt.NDArray[np.void]:
        """Return all records sorted by (step, world, agent), in an array of the caller's own, and empty the store."""
        records = self._records[: self._count]
        order = np.lexsort((records["agent"], records["world"], records["step"]))
        self._count = 0
        return records[order]

    def clear(self) -> None:
        """Forget all records."""
        self._count = 0

    def _make_room(self, num_records: int) -> None:
        kept = self._records[: self._count]
        excess = self._count + num_records - self.max_records
        if excess > 0:
            num_dropped = min(self._count, max(excess, self._count // 2))
            kept = kept[num_dropped:].copy()
            self.num_dropped += num_dropped
        capacity = max(2 * len(self._records), len(kept) + num_records)
        records = np.zeros(min(capacity, self.max_records), self.dtype)
        records[: len(kept)] = kept
        self._records = records
        self._count = len(kept)


def _complete(given: tuple[float, ...], names: tuple[str, ...]) -> tuple[float, ...]:
    if len(given) > len(names):
        raise ValueError(f"extras must be at most the {len(names)} values {names}; got {len(given)}.")
    return given + (math.nan,) * (len(names) - len(given))
