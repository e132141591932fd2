"""The flight record: the last actions of each slot in a memory-mapped file, and `replay`, which repeats them.

A record is a folder::

    header.pkl      what the workers built, their rows, and the reset: enough to build one of them again
    actions.bin     a ring of the last `capacity` actions of every row
    counts.bin      for each slot: steps made, and the step from which the ring can be repeated, or -1
    state-3.npz     the snapshot of slot 3 at that step, where envs have snapshots and the reset is too far back
    failure.json    which slot failed, and how

The files are written through shared mappings, so they survive the end of the process that writes them.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers
from puffer_vector.reports import EnvReport
from puffer_vector.rows import arrays_of
from puffer_vector.snapshots import pack, pack_bytes, unpack, unpack_bytes
from puffer_vector.worker import Binding, SlotSpec, Worker

RING_BYTES = 1 << 24
"""Size of a ring in bytes; it holds at least MIN_CAPACITY steps."""
MIN_CAPACITY = 64
MAX_CAPACITY = 1 << 16
_numbers = itertools.count()


def ring_capacity(actions: npt.NDArray[Any]) -> int:
    """Return how many steps a ring of such actions holds."""
    return min(max(RING_BYTES // max(actions.nbytes, 1), MIN_CAPACITY), MAX_CAPACITY)


def write_failure(folder: Path, slot: int, reason: str) -> None:
    """Note which slot failed, and how."""
    (folder / "failure.json").write_text(json.dumps({"slot": slot, "reason": reason}))


@dataclass(frozen=True)
class FlightHeader:
    """What is needed to build the worker of a slot again.

    Attributes:
        specs: What each worker builds.
        bindings: Numbers of each slot.
        report: Spaces of the envs.
        seed: Seed of the last seeded reset, or None before it.
        options: Options of that reset.
        capacity: Steps in the ring.
    """

    specs: tuple[SlotSpec, ...]
    bindings: tuple[Binding, ...]
    report: EnvReport
    seed: int | None
    options: dict[str, Any] | None
    capacity: int


class FlightRecorder:
    """Writes a flight record.

    Args:
        folder: Where records are kept; each has a folder of its own in it.
        specs: What each worker builds.
        bindings: Numbers of each slot.
        report: Spaces of the envs.
        actions: The actions array of all rows.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        specs: Sequence[SlotSpec],
        bindings: Sequence[Binding],
        report: EnvReport,
        actions: npt.NDArray[Any],
    ) -> None:
        self.path = Path(folder) / f"flight-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir(parents=True)
        self._specs, self._bindings, self._report = tuple(specs), tuple(bindings), report
        self._actions = actions
        self._capacity = ring_capacity(actions)
        self._ring: Any = np.memmap(
            self.path / "actions.bin", actions.dtype, "w+", shape=(self._capacity, *actions.shape)
        )
        self._counts: Any = np.memmap(self.path / "counts.bin", np.int64, "w+", shape=(len(specs), 2))
        self._counts[:, 1] = -1
        self._stale = set(range(len(specs)))

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Note a reset. After one without a seed only a snapshot can tell where the envs are.

        Raises:
            TypeError: The creators or the options cannot be pickled.
        """
        if seed is None:
            self.forget_start()
            return
        header = FlightHeader(self._specs, self._bindings, self._report, seed, options, self._capacity)
        partial = self.path / "header.part"
        try:
            partial.write_bytes(cloudpickle.dumps(header))
        except Exception as error:
            raise TypeError(
                f"creators and options must be picklable for a flight record; these are not: {error}. "
                "Build what cannot be pickled inside the creator, or leave flight_record out."
            ) from error
        partial.replace(self.path / "header.pkl")
        self._counts[:] = 0
        self._stale.clear()
        for old in self.path.glob("state-*.npz"):
            old.unlink()

    def forget_start(self) -> None:
        """Note that the envs were changed by something that the record does not hold."""
        self._stale = set(range(len(self._specs)))
        self._counts[:, 1] = -1

    def needs_state(self, slot: int) -> bool:
        """Return whether the next step of a slot can be repeated only from a snapshot made before it."""
        steps, start = self._counts[slot].tolist()
        return slot in self._stale or start < 0 or steps - start >= self._capacity

    def note_state(self, slot: int, states: Sequence[bytes], num_steps: int, rows: Buffers) -> None:
        """Keep a snapshot of a slot, from which the steps after it can be repeated."""
        joined, lengths = pack_bytes(list(states))
        partial = self.path / f"state-{slot}.part"
        partial.write_bytes(pack({"num_steps": num_steps}, {"states": joined, "lengths": lengths, **arrays_of(rows)}))
        partial.replace(self.path / f"state-{slot}.npz")
        self._stale.discard(slot)
        self._counts[slot] = num_steps

    def note_actions(self, slots: Sequence[int], num_steps: Sequence[int]) -> None:
        """Keep the actions of the step that some slots make.

        Args:
            slots: The slots.
            num_steps: For every slot, steps since its seeded reset, counting that one.
        """
        for slot in slots:
            step, binding = num_steps[slot], self._bindings[slot]
            if self.needs_state(slot):  # there are no snapshots, and the ring has lost its beginning
                self._counts[slot, 1] = -1
            rows = slice(binding.first_row, binding.first_row + binding.num_rows)
            self._ring[step % self._capacity, rows] = self._actions[rows]
            self._counts[slot, 0] = step

    def keep(self, slot: int, reason: str) -> str:
        """Finish the record of a failure and return its path."""
        self._ring.flush()
        self._counts.flush()
        write_failure(self.path, slot, reason)
        return str(self.path)

    def discard(self) -> None:
        """Delete the record, which nobody needs."""
        shutil.rmtree(self.path, ignore_errors=True)


def replay(path: str | os.PathLike[str], slot: int | None = None) -> int:
    """Repeat the steps of a flight record in this process, to find the failure under a debugger.

    It builds the envs of the failed worker again and steps them with the recorded actions. Records hold pickled
    creators: replay only your own.

    Args:
        path: Folder of the record.
        slot: Index of the worker; by default the one that failed.

    Returns:
        Number of steps that were repeated without a failure.

    Raises:
        WorkerError: The failure, happening again.
        ValueError: The record does not reach back to a state that can be restored.
        FileNotFoundError: There is no such record.
    """
    folder = Path(path)
    header: FlightHeader = pickle.loads((folder / "header.pkl").read_bytes())
    if slot is None:
        failure = folder / "failure.json"
        slot = int(json.loads(failure.read_text())["slot"]) if failure.exists() else 0
    binding = header.bindings[slot]
    counts = np.fromfile(folder / "counts.bin", np.int64).reshape(-1, 2)
    num_steps, start = counts[slot].tolist()
    if start < 0:
        raise ValueError(
            f"a record must reach back to a seeded reset or a snapshot to be repeated; that of worker {slot} holds the "
            f"last {header.capacity} of {num_steps} steps of envs without get_state. Define get_state in the env."
        )
    report = header.report
    rows = Buffers.allocate(
        report.single_observation_space, report.single_action_space, binding.num_rows, report.action_mask_size
    )
    ring: Any = np.memmap(folder / "actions.bin", rows.actions.dtype, "r")
    ring = ring.reshape(header.capacity, -1, *rows.actions.shape[1:])
    worker = Worker(header.specs[slot])
    try:
        worker.bind(binding, rows, np.zeros(binding.num_rows, np.bool_), report)
        _go_to_start(worker, folder / f"state-{slot}.npz", rows, header)
        for step in range(start + 1, num_steps + 1):
            rows.actions[...] = ring[step % header.capacity, binding.first_row : binding.first_row + binding.num_rows]
            worker.step()
    finally:
        worker.close()
    return int(num_steps - start)


def _go_to_start(worker: Worker, snapshot: Path, rows: Buffers, header: FlightHeader) -> None:
    if not snapshot.exists():
        worker.reset(header.seed, header.options)
        return
    found, arrays = unpack(snapshot.read_bytes())
    states = unpack_bytes(arrays.pop("states"), arrays.pop("lengths"))
    worker.set_state(states, header.seed, int(found["num_steps"]))
    for name, values in arrays.items():
        getattr(rows, name)[...] = values
