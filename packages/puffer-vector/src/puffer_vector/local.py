"""What backends whose envs live in this process have in common."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers, PufferEnv
from puffer_vector.base import StepResult
from puffer_vector.errors import WorkerError
from puffer_vector.parallel import ParallelVector
from puffer_vector.records import Records
from puffer_vector.reports import EnvReport
from puffer_vector.settings import Phase, Settings
from puffer_vector.worker import SlotSpec, Worker

Call = tuple[str, tuple[Any, ...]]
_left: list[Worker] = []  # workers in which a thread is stuck: what it writes to must stay for good


def run_call(worker: Worker, call: Call) -> Any:
    """Call a method of a worker; what it raises is returned."""
    try:
        return getattr(worker, call[0])(*call[1])
    except Exception as error:
        return error


class LocalVector(ParallelVector):
    """A vector env whose workers are objects of this process.

    Args:
        settings: Of the vector env.
        built: Env objects of the first slot that were built already.
    """

    def __init__(self, settings: Settings, built: Sequence[PufferEnv] = ()) -> None:
        self._built = list(built)
        self._workers: list[Worker] = []
        self._only_worker: Worker | None = None
        self._stuck: set[int] = set()
        super().__init__(settings)

    def _launch(self, specs: Sequence[SlotSpec]) -> list[EnvReport]:
        self._workers = [Worker(spec) for spec in specs]
        size = len(specs[0].creators)
        for slot, worker in enumerate(self._workers):
            worker.envs = self._built[slot * size : (slot + 1) * size]
        self._built = []
        probed = self._workers if self._settings.is_mixed else self._workers[:1]
        return [report for worker in probed for report in worker.probe(all_objects=self._settings.is_mixed)]

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        plan, workers = self._plan, self._workers
        invalid = np.zeros(plan.num_rows, np.bool_)
        if len(plan.agents) == 1 and len(workers[0].envs) == 1:  # one object alone keeps its own rows
            workers[0].bind(plan.binding(0), None, invalid, report)
            own = workers[0].envs[0].buffers
            assert own is not None
            buffers = own
        else:
            buffers = Buffers.allocate(
                report.single_observation_space, report.single_action_space, plan.num_rows, report.action_mask_size
            )
            size = plan.rows_per_slot
            for slot, worker in enumerate(workers):
                rows = slice(slot * size, (slot + 1) * size)
                worker.bind(plan.binding(slot), buffers[rows], invalid[rows], report)
        self.driver_env = workers[0].envs[0].driver_env
        return buffers, invalid

    def _shut(self) -> None:
        with contextlib.ExitStack() as closing:  # whatever one raises, all others are closed too
            for env in self._built:
                closing.callback(env.close)
            for slot, worker in enumerate(self._workers):
                if slot not in self._stuck:
                    closing.callback(worker.close)
                else:
                    _left.append(worker)

    def _look_after(self, slots: Sequence[int]) -> None:
        """Raise the error about a worker that takes too long. It cannot be stopped, so it is left alone from now on."""
        overdue = self._overdue(slots)
        if overdue:
            self._stuck.update(overdue)
            worker = self._workers[overdue[0]]
            raise worker.describe_failure(
                f"the worker did not answer within timeout_s={self._settings.timeout_s}. Its thread cannot be ended; "
                'backend="processes" could end it.',
                worker.progress[0],
            )


class OneSlotSteps(LocalVector):
    """Steps without the state machine where one slot makes the whole batch.

    Episode records stay in the envs then, until `episodes` asks for them.
    """

    @abstractmethod
    def _step_only(self, worker: Worker) -> list[dict[str, Any]]:
        """Step the only worker to the end and return its infos."""

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        bound = super()._bind(report)
        if len(self._workers) == 1:
            self._only_worker = self._workers[0]
        self._is_plain = self._only_worker is not None and not self._settings.copy and not self._settings.flight_record
        return bound

    def step(self, actions: Any) -> StepResult:
        """Send actions and wait for the result; see `VectorEnv.step`."""
        worker = self._only_worker
        if worker is None or not self._is_plain or self._phase is not Phase.SEND:
            return super().step(actions)
        batch = self._batch
        self._writer.write(actions, 0, batch.last_row)
        try:
            infos = self._step_only(worker)
        except WorkerError as error:
            self._give_up(error)
        rows = batch.rows
        return rows.observations, rows.rewards, rows.terminals, rows.truncations, infos

    def _collect(self) -> None:
        if self._only_worker is not None and self._only_worker.envs and not self._stuck:
            records = self._only_worker.take_records()
            if len(records):
                self._records.append(records)

    def episodes(self) -> Records:
        """Return the records of episodes; see `VectorEnv.episodes`."""
        if not self._running:
            try:
                self._collect()
            except WorkerError as error:
                self._give_up(error)
        return super().episodes()

    def get_state(self) -> bytes:
        """Return a snapshot; see `VectorEnv.get_state`."""
        self.drain()
        self._collect()
        return super().get_state()

    def _shut(self) -> None:
        try:
            self._collect()
        finally:
            super()._shut()
