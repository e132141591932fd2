"""The flight record that is kept unasked: actions in memory, of which a file is made only when a worker fails."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers
from puffer_vector.flight import FlightHeader, ring_capacity, write_failure
from puffer_vector.reports import EnvReport
from puffer_vector.rows import is_contiguous
from puffer_vector.worker import Binding, SlotSpec

MAX_HEADER_BYTES = 1 << 24
"""Creators that hold more than this are not written to a file that nobody asked for."""
FOLDER: str | None = None
"""Where records are written; None is the folder for temporary files."""


class RecentActions:
    """Keeps the actions from the last seeded reset on, for as many steps as there is room.

    It has the methods of `FlightRecorder` and costs next to nothing: it takes no snapshots, and notes actions while the
    workers are at work.

    Args:
        specs: What each worker builds.
        bindings: Numbers of each slot.
        report: Spaces of the envs.
        actions: The actions array of all rows.
    """

    def __init__(
        self,
        specs: Sequence[SlotSpec],
        bindings: Sequence[Binding],
        report: EnvReport,
        actions: npt.NDArray[Any],
    ) -> None:
        self._specs, self._bindings, self._report = tuple(specs), tuple(bindings), report
        self._actions = actions
        self._ring = np.zeros((ring_capacity(actions), *actions.shape), actions.dtype)
        self._start: tuple[int, dict[str, Any] | None] | None = None
        self._num_steps: Sequence[int] = [0] * len(specs)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Note a reset; only what follows one with a seed can be repeated."""
        self._start = None if seed is None else (seed, options)
        self._num_steps = [0] * len(self._specs)

    def forget_start(self) -> None:
        """Note that the envs were changed by something that is not kept."""
        self._start = None

    def needs_state(self, slot: int) -> bool:  # noqa: ARG002 - as for FlightRecorder
        """Return False: snapshots may be dear, so they are taken only for who asks for a record."""
        return False

    def note_state(self, slot: int, states: Sequence[bytes], num_steps: int, rows: Buffers) -> None:
        """Do nothing; see `needs_state`."""

    def note_actions(self, slots: Sequence[int], num_steps: Sequence[int]) -> None:
        """Keep the actions of the step that some slots make; see `FlightRecorder.note_actions`."""
        if self._start is None:
            return
        self._num_steps = num_steps
        step = num_steps[slots[0]]
        if is_contiguous(slots) and all(num_steps[slot] == step for slot in slots):
            self._note(step, slots[0], slots[-1])
        else:
            for slot in slots:
                self._note(num_steps[slot], slot, slot)

    def _note(self, step: int, first_slot: int, last_slot: int) -> None:
        if step >= len(self._ring):
            self._start = None  # it no longer reaches back to the reset
            return
        first, last = self._bindings[first_slot], self._bindings[last_slot]
        rows = slice(first.first_row, last.first_row + last.num_rows)
        self._ring[step, rows] = self._actions[rows]

    def keep(self, slot: int, reason: str) -> str | None:
        """Write the record of a failure to a new folder for temporary files; return its path, or None without one."""
        if self._start is None:
            return None
        length = max(self._num_steps) + 1
        header = FlightHeader(self._specs, self._bindings, self._report, *self._start, length)
        with contextlib.suppress(Exception):  # a failure is about to be raised, which nothing here may hide
            pickled = cloudpickle.dumps(header)
            if len(pickled) <= MAX_HEADER_BYTES:
                folder = Path(tempfile.mkdtemp(prefix="flight-", dir=FOLDER))
                (folder / "header.pkl").write_bytes(pickled)
                self._ring[:length].tofile(folder / "actions.bin")
                np.array([(steps, 0) for steps in self._num_steps], np.int64).tofile(folder / "counts.bin")
                write_failure(folder, slot, reason)
                return str(folder)
        return None

    def discard(self) -> None:
        """Do nothing: there is no file."""
