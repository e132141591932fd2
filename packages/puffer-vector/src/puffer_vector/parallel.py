"""The state machine of send and recv over worker slots, which every backend shares.

::

    async_reset -> every slot starts      recv -> a batch of slots that are done      send -> those slots start again

A slot is started, then done, then received, then started again. Backends only say how a slot is started (`_begin`), how
to wait for slots (`_await`), and how to fetch what a slot left beside its rows (`_take`).
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers, joint_space, world_seed
from puffer_vector.actions import ActionWriter
from puffer_vector.arguments import checked_integer
from puffer_vector.base import Array, Flags, RecvResult, VectorEnv
from puffer_vector.calls import WorkerCalls
from puffer_vector.errors import ClosedError, WorkerError
from puffer_vector.flight import FlightRecorder
from puffer_vector.recent import RecentActions
from puffer_vector.records import Records, merged
from puffer_vector.reports import EnvReport
from puffer_vector.rows import Batch, Gathering, RowPlan
from puffer_vector.settings import Phase, Settings
from puffer_vector.worker import Outcome, SlotSpec

FROM_REPORT = (
    *("single_observation_space", "single_action_space", "original_observation_space", "original_action_space"),
    *("observation_layout", "action_layout", "action_mask_size", "episode_extras"),
    *("has_final_observations", "has_state", "render_mode", "metadata"),
)
POLL_S = 0.1
"""How often a caller that waits looks after its workers, at the clock and at signals, in seconds."""
MAX_PARTS = 512
"""Arrays of episode records that are kept apart until `episodes` is called."""


class ParallelVector(WorkerCalls, VectorEnv, ABC):
    """A vector env over slots. Subclasses are the backends."""

    _slots: npt.NDArray[np.int32]
    _plan: RowPlan
    _buffers: Buffers
    _invalid: npt.NDArray[np.bool_]
    _is_remote = False
    """Whether workers are other processes, which may end without the caller and are at work while it does more."""

    def __init__(self, settings: Settings) -> None:
        self._is_closed = False
        self._failure: WorkerError | None = None
        self._phase = Phase.FRESH
        self._settings = settings
        self._seed = settings.seed
        self._next_seed: int | None = settings.seed
        self._kept: dict[int, Outcome] = {}
        self._records: list[Records] = []
        self._queue: deque[Batch] = deque()
        self._running: list[int] = []
        self._num_steps = [0] * settings.plan.num_slots  # of each slot since its last seeded reset
        self._started_at = [0.0] * settings.plan.num_slots
        self._flight: FlightRecorder | RecentActions | None = None
        limit = settings.timeout_s
        self._poll_s = POLL_S if limit is None else min(POLL_S, limit / 4)
        self._next_look = 0.0
        self._slots = np.arange(settings.plan.num_slots, dtype=np.int32)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        settings = self._settings
        plan = settings.plan
        specs = [settings.slot_spec(slot) for slot in range(plan.num_slots)]
        reports = self._launch(specs)
        self._plan = RowPlan.of(reports, settings.num_objects, plan.num_slots, settings.first_world)
        report = reports[0].replaced(
            has_final_observations=all(report.has_final_observations for report in reports),
            has_state=all(report.has_state for report in reports),
            episode_extras=self._plan.extras,
        )
        self._describe(report)
        self._buffers, self._invalid = self._bind(report)
        self._writer = ActionWriter(self._buffers.actions, self.single_action_space)
        size = plan.slots_per_batch
        groups = [range(first, first + size) for first in range(0, plan.num_slots - size + 1, size)]
        self._batches: dict[tuple[int, ...], Batch] = {}
        self._gathering = Gathering(self._buffers, self._invalid, self.agents_per_batch, self.single_action_space)
        self._groups = [self._batch_of(group) for group in groups]
        self._batch = self._groups[0]
        recorded = (specs, [self._plan.binding(slot) for slot in range(plan.num_slots)], report, self._buffers.actions)
        if settings.flight_record is not None:
            self._flight = FlightRecorder(settings.flight_record, *recorded)
        elif self._is_remote:
            self._flight = RecentActions(*recorded)

    def _describe(self, report: EnvReport) -> None:
        plan, settings = self._plan, self._settings
        self.num_envs, self.num_agents = plan.num_worlds, plan.num_rows
        self.batch_size = plan.worlds_per_slot * settings.plan.slots_per_batch
        self.agents_per_batch = plan.rows_per_slot * settings.plan.slots_per_batch
        self.num_workers = settings.plan.num_workers
        for name in FROM_REPORT:
            setattr(self, name, getattr(report, name))
        self.observation_space, self.action_space = report.single_observation_space, report.single_action_space
        if settings.joint_spaces:
            self.observation_space = joint_space(report.single_observation_space, self.agents_per_batch)
            self.action_space = joint_space(report.single_action_space, self.agents_per_batch)
        self.env_name, self.driver_env = settings.creators[0].name, report
        self._report = report

    def _batch_of(self, slots: Sequence[int]) -> Batch:
        key = tuple(slots)
        batch = self._batches.get(key)
        if batch is None:
            batch = Batch(key, self._plan, self._gathering)
            if batch.is_view:  # the others are too many to keep
                self._batches[key] = batch
        return batch

    @abstractmethod
    def _launch(self, specs: Sequence[SlotSpec]) -> list[EnvReport]:
        """Start the workers and return reports: of the first object, or of all when they may differ."""

    @abstractmethod
    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        """Allocate all rows, have every worker bind its own, and return them with the array of invalid rows."""

    def _request(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return a call of a method of `Worker` as `_begin` takes it.

        Raises:
            TypeError: An argument cannot be passed to the workers.
        """
        return method, arguments

    @abstractmethod
    def _begin(self, slots: Sequence[int], request: Any | None) -> None:
        """Start slots on a step (request None), or on a call."""

    @abstractmethod
    def _await(self, slots: npt.NDArray[np.int32], count: int) -> None:
        """Wait until `count` of the slots are done."""

    @abstractmethod
    def _look_after(self, slots: Sequence[int]) -> None:
        """Raise the error about a slot whose worker is gone or takes longer than `timeout_s`, or replace the worker."""

    @abstractmethod
    def _is_done(self, slot: int) -> bool:
        """Return whether a slot is done."""

    @abstractmethod
    def _take(self, slot: int) -> Any:
        """Return what a slot that is done left: an Outcome, or what the method returned.

        Raises:
            WorkerError: The slot failed in a reset or a step, or its worker is gone.
            Exception: What another method raised.
        """

    @abstractmethod
    def _shut(self) -> None:
        """End all workers, however they are."""

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
            self._records = [np.concatenate(self._records)]
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

    def drain(self) -> None:  # noqa: D102
        self._check_open()
        self._settle()

    def _settle(self) -> None:
        """Wait for every slot that runs, and keep what it left."""
        try:
            waiting = [slot for slot in self._running if slot not in self._kept]
            self._await(np.array(waiting, np.int32), len(waiting))
            for slot in waiting:
                self._kept[slot] = self._take(slot)
        except WorkerError as error:
            self._give_up(error)

    def _call_all(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Have the worker of each slot call a method with its arguments; nothing may be running."""
        return self._call(range(len(self._slots)), method, arguments)

    def _call(self, slots: Sequence[int], method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        requests = [self._request(method, given) for given in arguments]
        self._started(slots)
        results: list[Any] = []
        failures: list[Exception] = []
        try:
            for slot, request in zip(slots, requests, strict=True):
                self._begin([slot], request)
            self._await(np.array(slots, np.int32), len(slots))
            for slot in slots:
                try:
                    results.append(self._take(slot))
                except WorkerError:
                    raise
                except Exception as error:  # the env refuses; it goes on as it was
                    failures.append(error)
        except WorkerError as error:
            self._give_up(error)
        except BaseException:  # interrupted: what runs now could not be told from a later call
            self.close()
            raise
        if failures:
            raise failures[0]
        return results

    @property
    def batch_rows(self) -> Buffers:
        """All arrays of the batch just returned."""
        return self._batch.rows

    def close(self) -> None:  # noqa: D102
        if self._is_closed:
            return
        self._is_closed = True
        self._phase = Phase.FRESH
        try:
            self._shut()
        finally:
            if self._flight is not None and self._failure is None:
                self._flight.discard()

    @property
    def is_closed(self) -> bool:  # noqa: D102
        return self._is_closed

    @property
    def final_observations(self) -> Array:  # noqa: D102
        return self._batch.rows.final_observations

    @property
    def action_mask(self) -> Flags | None:  # noqa: D102
        return self._batch.rows.action_mask

    @property
    def invalid(self) -> Flags:  # noqa: D102
        return self._batch.invalid

    @property
    def world_ids(self) -> npt.NDArray[np.int64]:  # noqa: D102
        return self._batch.world_ids

    def _started(self, slots: Sequence[int]) -> None:
        if self._settings.timeout_s is not None:
            now = time.monotonic()
            for slot in slots:
                self._started_at[slot] = now

    def _about_world(self, reason: str, slot: int, world: int) -> WorkerError:
        """Make the error about a world whose worker cannot speak for itself."""
        seed = None if self._phase is Phase.FRESH else world_seed(self._seed, world)
        return WorkerError(reason, slot, world, seed, self._num_steps[slot])

    def _overdue(self, slots: Sequence[int]) -> list[int]:
        """Return the slots that run for longer than they may."""
        limit = self._settings.timeout_s
        if limit is None:
            return []
        now = time.monotonic()
        return [slot for slot in slots if now - self._started_at[slot] >= limit and not self._is_done(slot)]

    def _give_up(self, error: WorkerError) -> NoReturn:
        """Close after a failure, and say so to whoever calls later."""
        self._failure = error
        if self._flight is not None:
            error.flight_record = self._flight.keep(error.worker_index, error.reason)
        with contextlib.suppress(Exception):  # what closing a failed env raises would hide the failure
            self.close()
        raise error

    def leave_to_parent(self) -> None:
        """Be closed in a fork of the process that made the vector env, without a word to its workers."""
        if not self._is_closed:
            self._failure = WorkerError("this process is a fork of the one that has its workers", 0)
            self._is_closed, self._phase = True, Phase.FRESH

    def _check_open(self) -> None:
        if self._is_closed:
            reason = "" if self._failure is None else f" after a failure: {self._failure.reason}"
            raise ClosedError(f"a vector env must be open to be used; it was closed{reason}. Make a new one.")

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
