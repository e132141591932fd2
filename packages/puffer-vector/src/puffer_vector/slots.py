"""What a vector env is made of: slots that workers step, their rows, and what a backend must say about them.

A backend says how its workers start (`_launch`, `_bind`) and end (`_shut`), how a slot is started (`_begin`), how to
wait for slots (`_await`), and how to fetch what a slot left beside its rows (`_take`).
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
from puffer_vector.base import Array, Flags, VectorEnv
from puffer_vector.errors import ClosedError, WorkerError
from puffer_vector.flight import FlightRecorder
from puffer_vector.recent import RecentActions
from puffer_vector.records import Records
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


class SlotVector(VectorEnv, ABC):
    """A vector env over slots: how it is opened and closed, and what it is in between."""

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

    def leave_to_parent(self) -> None:
        """Be closed in a fork of the process that made the vector env, without a word to its workers."""
        if not self._is_closed:
            self._failure = WorkerError("this process is a fork of the one that has its workers", 0)
            self._is_closed, self._phase = True, Phase.FRESH

    def _give_up(self, error: WorkerError) -> NoReturn:
        """Close after a failure, and say so to whoever calls later."""
        self._failure = error
        if self._flight is not None:
            error.flight_record = self._flight.keep(error.worker_index, error.reason)
        with contextlib.suppress(Exception):  # what closing a failed env raises would hide the failure
            self.close()
        raise error

    def _check_open(self) -> None:
        if self._is_closed:
            reason = "" if self._failure is None else f" after a failure: {self._failure.reason}"
            raise ClosedError(f"a vector env must be open to be used; it was closed{reason}. Make a new one.")

    def _started(self, slots: Sequence[int]) -> None:
        if self._settings.timeout_s is not None:
            now = time.monotonic()
            for slot in slots:
                self._started_at[slot] = now

    def _overdue(self, slots: Sequence[int]) -> list[int]:
        """Return the slots that run for longer than they may."""
        limit = self._settings.timeout_s
        if limit is None:
            return []
        now = time.monotonic()
        return [slot for slot in slots if now - self._started_at[slot] >= limit and not self._is_done(slot)]

    def _about_world(self, reason: str, slot: int, world: int) -> WorkerError:
        """Make the error about a world whose worker cannot speak for itself."""
        seed = None if self._phase is Phase.FRESH else world_seed(self._seed, world)
        return WorkerError(reason, slot, world, seed, self._num_steps[slot])

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a vector env must stay where it was made, since it has workers; it can be neither copied nor pickled. "
            "Make another one, or pass a function that makes it."
        )

    @property
    def is_closed(self) -> bool:  # noqa: D102
        return self._is_closed

    @property
    def batch_rows(self) -> Buffers:
        """All arrays of the batch just returned."""
        return self._batch.rows

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
