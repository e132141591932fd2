"""The state machine of send and recv over worker slots, which every backend shares.

::

    async_reset -> every slot starts      recv -> a batch of slots that are done      send -> those slots start again

A slot is started, then done, then received, then started again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from puffer_vector.arguments import checked_integer
from puffer_vector.base import RecvResult
from puffer_vector.calls import WorkerCalls
from puffer_vector.errors import WorkerError
from puffer_vector.flight import FlightRecorder
from puffer_vector.recent import RecentActions
from puffer_vector.records import Records, joined, merged
from puffer_vector.rows import Batch
from puffer_vector.settings import Phase

MAX_PARTS = 512
"""Arrays of episode records that are kept apart until `episodes` is called."""


class ParallelVector(WorkerCalls):
    """A vector env over slots. Subclasses are the backends."""

    def seed(self, seed: int) -> None:  # noqa: D102
        self._next_seed = checked_integer("seed", seed)

    def async_reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:  # noqa: D102
        self._check_open()
        seed = self._next_seed if seed is None else checked_integer("seed", seed)
        request = self._request("reset", (seed, options))
        self._next_seed = None
        self._settle()
        for outcome in self._kept.values():
            self._records.append(outcome.records)
        self._kept.clear()
        if seed is not None:
            self._seed = seed
            self._num_steps = [0] * len(self._slots)
        if self._flight is not None:
            self._flight.reset(seed, options)
        self._started(range(len(self._slots)))
        self._begin(range(len(self._slots)), request)
        self._queue = deque(self._groups)
        self._running = list(range(len(self._slots)))
        self._phase = Phase.RECV

    def send(self, actions: Any) -> None:  # noqa: D102
        if self._phase is not Phase.SEND:
            self._misuse("send")
        batch = self._batch
        if batch.is_view:
            self._writer.write(actions, batch.first_row, batch.last_row)
        else:
            self._gathering.send(actions, batch.agent_ids)
        self._queue.append(batch)
        self._running.extend(batch.slots)
        self._phase = Phase.RECV
        flight = self._flight
        if flight is not None and self.has_state:
            self._note_states(flight, batch.slots)
        for slot in batch.slots:
            self._num_steps[slot] += 1
        self._started(batch.slots)
        self._begin(batch.slots, None)
        if flight is not None:
            flight.note_actions(batch.slots, self._num_steps)

    def _note_states(self, flight: FlightRecorder | RecentActions, slots: Sequence[int]) -> None:
        for slot in slots:
            if flight.needs_state(slot):
                ((states, num_steps),) = self._call([slot], "get_state", [()])
                first = self._plan.binding(slot).first_row
                flight.note_state(slot, states, num_steps, self._buffers[first : first + self._plan.rows_per_slot])
                self._num_steps[slot] = num_steps

    def recv(self) -> RecvResult:  # noqa: D102
        if self._phase is not Phase.RECV:
            self._misuse("recv")
        try:
            batch = self._wait_for_batch()
            outcomes = [self._kept.pop(slot) if slot in self._kept else self._take(slot) for slot in batch.slots]
        except WorkerError as error:
            self._give_up(error)
        infos: list[dict[str, Any]] = []
        for outcome in outcomes:
            if outcome.infos:
                infos += outcome.infos
                if self._flight is not None and any("restarted" in info for info in outcome.infos):
                    self._flight.forget_start()
            if len(outcome.records):
                self._records.append(outcome.records)
        if len(self._records) > MAX_PARTS:
            self._records = [joined(self._records)]
        self._batch = batch
        self._phase = Phase.SEND
        if not batch.is_view:
            self._gathering.gather(batch.agent_ids)
        rows = batch.rows
        arrays = (rows.observations, rows.rewards, rows.terminals, rows.truncations)
        if self._settings.copy:
            observations, rewards, terminals, truncations = (array.copy() for array in arrays)
            return observations, rewards, terminals, truncations, infos, batch.agent_ids, rows.masks.copy()
        return (*arrays, infos, batch.agent_ids, rows.masks)

    def _wait_for_batch(self) -> Batch:
        if self._settings.plan.order == "fixed":
            batch = self._queue[0]
            self._await_slots(batch.slot_array, len(batch.slots))
            self._queue.popleft()
        else:
            count = self._settings.plan.slots_per_batch
            self._await_slots(np.array(self._running, np.int32), count)
            ready = [slot for slot in self._running if slot in self._kept or self._is_done(slot)]
            batch = self._batch_of(sorted(ready[:count]))
        for slot in batch.slots:
            self._running.remove(slot)
        return batch

    def _await_slots(self, slots: npt.NDArray[np.int32], count: int) -> None:
        if self._kept:
            waiting = [slot for slot in slots.tolist() if slot not in self._kept]
            count -= len(slots) - len(waiting)
            slots = np.array(waiting, np.int32)
        if count > 0:
            self._await(slots, count)
        if count < len(slots):  # those that are ready never let the caller wait, which is when it looks
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + self._poll_s
                self._look_after(slots.tolist())

    def episodes(self) -> Records:  # noqa: D102
        records, self._records = self._records, []
        return merged(records, self.episode_extras)

    def _misuse(self, call: str) -> NoReturn:
        self._check_open()
        if self._phase is Phase.FRESH:
            raise RuntimeError(f"{call} needs a reset first. Call reset(seed), or async_reset(seed) and then recv().")
        if call == "send":
            raise RuntimeError("send must answer a batch, and there is none that waits for actions. Call recv() first.")
        raise RuntimeError(
            "recv must follow a send or async_reset; the batch that recv returned last still waits for actions. "
            "Call send(actions) first."
        )
