"""The one block of memory that a vector env shares with its processes.

::

    |signals: a line for the caller, two a worker|rows|invalid|records 0|message 0|records 1|message 1| ...

A worker leaves the episode records and the message (infos, a result, an error) of a request in its own part; what does
not fit goes through its pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces import Buffers, episode_dtype
from puffer_vector._signal import Signals
from puffer_vector.memory import ALIGNMENT
from puffer_vector.records import Records

MESSAGE_BYTES = 1 << 15


@dataclass(frozen=True)
class BlockShape:
    """What the block holds; both sides compute the same offsets from it.

    Attributes:
        single_observation_space: Space of one row of observations.
        single_action_space: Space of one row of actions.
        action_mask_size: Columns of the action mask.
        num_rows: Rows in all.
        num_slots: Workers.
        num_records: Episode records that fit in a worker's part.
        extras: Extra fields of the records.
    """

    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    action_mask_size: int
    num_rows: int
    num_slots: int
    num_records: int
    extras: tuple[str, ...]

    @property
    def _parts(self) -> list[int]:
        """Bytes of signals, rows, invalid rows, and each worker's records and message, padded to cache lines."""
        rows = Buffers.nbytes(
            self.single_observation_space, self.single_action_space, self.num_rows, self.action_mask_size
        )
        own = [self.num_records * episode_dtype(self.extras).itemsize, MESSAGE_BYTES]
        sizes = [Signals.nbytes(self.num_slots), rows, self.num_rows, *(own * self.num_slots)]
        return [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return sum(self._parts)


class Block:
    """Views of a shared block.

    Args:
        memory: The block.
        shape: What it holds.
    """

    def __init__(self, memory: npt.NDArray[np.uint8], shape: BlockShape) -> None:
        ends = np.cumsum(shape._parts).tolist()
        parts = [memory[end - size : end] for end, size in zip(ends, shape._parts, strict=True)]
        self.signals = parts[0]
        self.buffers = Buffers.from_memory(
            parts[1],
            shape.single_observation_space,
            shape.single_action_space,
            shape.num_rows,
            shape.action_mask_size,
        )
        self.invalid = parts[2][: shape.num_rows].view(np.bool_)
        dtype = episode_dtype(shape.extras)
        self.records: list[Records] = [part[: shape.num_records * dtype.itemsize].view(dtype) for part in parts[3::2]]
        self.messages = parts[4::2]
