"""Workers that are threads of this process.

Native envs, which offer a step capsule, are stepped by a pool without the interpreter's lock, in slices of one big
object as well as several objects. Other envs are stepped by Python threads, which helps where they wait or release it.
In synchronous mode the calling thread takes a share of the work instead of waiting, so n workers are the caller and
n - 1 threads.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers, PufferEnv
from puffer_vector._actions import any_set
from puffer_vector._pool import StepPool, capsule_worlds
from puffer_vector._signal import Signals
from puffer_vector.forks import leave_in_forks
from puffer_vector.local import Call, LocalVector, OneSlotSteps, run_call
from puffer_vector.memory import private_memory
from puffer_vector.parallel import ParallelVector
from puffer_vector.records import no_records
from puffer_vector.reports import EnvReport
from puffer_vector.serial import SerialVector
from puffer_vector.settings import Phase, Settings
from puffer_vector.sharing import Sharing
from puffer_vector.worker import Outcome, Worker

_RUN, _STOP = 1, 2
_JOIN_S = 5.0
_LOOK_AGAIN = 1000
"""Steps after which it is measured again whether work is too small to be shared."""


def make_threads(settings: Settings) -> ParallelVector:
    """Open a vector env over a native pool if the envs offer step capsules, else over Python threads."""
    grouped = dataclasses.replace(settings, plan=settings.plan.grouped())
    first = Worker(grouped.slot_spec(0))
    try:
        reports = first.probe(all_objects=settings.is_mixed)
    except BaseException:
        first.close()
        raise
    if all(report.has_capsule for report in reports):
        return NativeThreads(grouped, first.envs)
    if settings.plan.num_workers == 1 and settings.plan.is_sync and settings.timeout_s is None:
        return SerialVector(settings, first.envs)
    if settings.is_batched and grouped.plan.units_per_slot != settings.plan.units_per_slot:
        first.close()
        return PythonThreads(settings)
    return PythonThreads(settings, first.envs)


class NativeThreads(OneSlotSteps):
    """Steps native envs through their capsules, in a pool without the interpreter's lock.

    The calling thread takes part in the work it waits for, unless it has to look at the clock for `timeout_s`.
    """

    def __init__(self, settings: Settings, built: Sequence[PufferEnv] = ()) -> None:
        self._calls: dict[int, Call] = {}
        self._outcomes: dict[int, Any] = {}
        self._offered: dict[int, bool] = {}  # slots on a step: whether the pool knows of it
        self._pool: StepPool | None = None
        self._small_steps = 0  # how many steps the calling thread now makes without asking the pool
        leave_in_forks(self)
        super().__init__(settings, built)

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        bound = super()._bind(report)
        plan = self._settings.plan
        helps = self._settings.timeout_s is None
        helpers = plan.num_workers - 1 if helps else plan.num_workers
        self._pool = StepPool(helpers, len(self._workers), helpers + 1 <= self._settings.cpus, helps)
        for slot, worker in enumerate(self._workers):
            capsules = worker.capsules()
            for env, capsule in zip(worker.envs, capsules, strict=True):
                _check_capsule(env, capsule)
            self._pool.set_job(slot, capsules)
        return bound

    @property
    def _open_pool(self) -> StepPool:
        assert self._pool is not None
        return self._pool

    def _begin(self, slots: Sequence[int], request: Call | None) -> None:
        for slot in slots:
            if request is not None:
                self._calls[slot] = request
                continue
            self._offered[slot] = not self._settings.plan.is_sync
            if self._offered[slot]:
                self._open_pool.submit(slot)

    def _await(self, slots: npt.NDArray[np.int32], count: int) -> None:
        pool = self._open_pool
        for slot in slots.tolist():
            if slot in self._calls:
                self._outcomes[slot] = run_call(self._workers[slot], self._calls.pop(slot))
            elif self._offered.get(slot) is False:
                self._offered[slot] = True
                pool.run(slot, self._poll_s)
        while not pool.wait(slots, count, self._poll_s):
            self._check_open()
            self._look_after(slots.tolist())

    def _is_done(self, slot: int) -> bool:
        if slot in self._calls or self._offered.get(slot) is False:
            return False
        return slot in self._outcomes or self._open_pool.is_done(slot)

    def _take(self, slot: int) -> Any:
        if slot not in self._offered:
            outcome = self._outcomes.pop(slot)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        del self._offered[slot]
        worker = self._workers[slot]
        infos = worker.finish_step()
        first, last = slot * self._plan.rows_per_slot, (slot + 1) * self._plan.rows_per_slot
        if any_set(self._buffers.terminals, first, last) or any_set(self._buffers.truncations, first, last):
            return Outcome(infos, worker.take_records())
        return Outcome(infos, no_records())

    def _step_only(self, worker: Worker) -> list[dict[str, Any]]:
        if self._small_steps:
            self._small_steps -= 1
            return worker.step()
        self._started((0,))
        is_done = False
        try:
            is_done = self._open_pool.run(0, self._poll_s)
        finally:
            if not is_done:  # it takes long, or was interrupted: recv can go on waiting
                self._offered[0] = True
                self._running.append(0)
                self._queue.append(self._batch)
                self._phase = Phase.RECV
        if self._open_pool.is_small(0):
            self._small_steps = _LOOK_AGAIN
        return worker.finish_step() if is_done else self.recv()[4]

    def _shut(self) -> None:
        if self._pool is not None:
            if any(not self._pool.is_done(slot) for slot in range(len(self._workers))):
                self._finish_or_leave()
            if not self._stuck:
                self._pool.close()
        super()._shut()

    def leave_to_parent(self) -> None:
        """See `SlotVector.leave_to_parent`."""
        super().leave_to_parent()
        if self._pool is not None:
            self._pool.leave()

    def _finish_or_leave(self) -> None:
        if self._stuck or not self._open_pool.wait(self._slots, len(self._slots), _JOIN_S):
            self._stuck = set(range(len(self._workers)))
            self._open_pool.leave()


def _check_capsule(env: PufferEnv, capsule: Any) -> None:
    if capsule is None:
        raise ValueError(
            f"either every env or none must have a step capsule for threads; {type(env).__name__} has none. "
            'Use backend="processes" for such a mix.'
        )
    worlds, rows = capsule_worlds(capsule)
    if worlds * rows != env.num_agents:
        raise ValueError(
            f"the step capsule of {type(env).__name__} must cover its {env.num_agents} rows; "
            f"got {worlds} worlds of {rows} rows."
        )


class _Board:
    """What the caller and its threads tell each other. Threads hold this and not the vector env, so that one that is
    forgotten can be collected.

    Args:
        num_slots: Slots in all.
        spin: Whether waiting may spin.
    """

    def __init__(self, num_slots: int, spin: bool) -> None:
        self.signals = Signals(private_memory(Signals.nbytes(num_slots)), num_slots, spin)
        self.workers: list[Worker] = []
        self.calls: list[Call | None] = [None] * num_slots
        self.outcomes: list[Any] = [None] * num_slots
        self.is_closed = False

    def run(self, slot: int) -> None:
        """Carry out the request of a slot."""
        call = self.calls[slot]
        try:
            worker = self.workers[slot]
            self.outcomes[slot] = worker.step_and_collect() if call is None else run_call(worker, call)
        except Exception as error:
            self.outcomes[slot] = error

    def serve(self, slot: int) -> None:
        """Carry out requests until one says stop."""
        while not self.is_closed:
            command = self.signals.next_command(slot)
            if command == _STOP:
                break
            if command == _RUN:
                try:
                    self.run(slot)
                except BaseException as error:  # what would end the thread: the caller waits for an answer
                    self.outcomes[slot] = self.workers[slot].describe_failure(f"the env raised {error!r}", 0, error)
                self.signals.finish(slot, 0)


class PythonThreads(LocalVector):
    """Steps envs in Python threads, one a slot.

    In synchronous mode the calling thread has the first slot, and all of them where threads would only wait for each
    other. With `timeout_s` it has none, so that it can look at the clock.
    """

    def __init__(self, settings: Settings, built: Sequence[PufferEnv] = ()) -> None:
        num_slots = settings.plan.num_slots
        self._num_own = int(settings.plan.is_sync and settings.timeout_s is None)
        self._sharing = Sharing() if self._num_own else None
        self._is_shared = True
        threads = num_slots - self._num_own
        self._board = _Board(num_slots, spin=threads + 1 <= settings.cpus)
        self._own: list[int] = []  # slots that the calling thread has still to run
        self._threads: list[threading.Thread] = []
        leave_in_forks(self)
        super().__init__(settings, built)

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        bound = super()._bind(report)
        self._board.workers = self._workers
        for slot in range(self._num_own, len(self._workers)):
            name = f"puffer-vector-{slot}"
            thread = threading.Thread(target=self._board.serve, args=(slot,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return bound

    def _begin(self, slots: Sequence[int], request: Call | None) -> None:
        self._is_shared = request is not None or self._sharing is None or self._sharing.choose()
        for slot in slots:
            self._board.calls[slot] = request
            if slot < self._num_own or not self._is_shared:
                self._own.append(slot)
            else:
                self._board.signals.post(slot, _RUN)

    def _await(self, slots: npt.NDArray[np.int32], count: int) -> None:
        start = time.perf_counter()
        is_step = bool(self._own) and self._board.calls[0] is None
        while self._own:
            self._board.run(self._own[0])
            del self._own[0]
        while not self._board.signals.wait(slots, count, self._poll_s):
            self._check_open()
            self._look_after(slots.tolist())
        if is_step and self._sharing is not None:
            self._sharing.measured(self._is_shared, time.perf_counter() - start)

    def _is_done(self, slot: int) -> bool:
        return self._board.signals.is_done(slot) and slot not in self._own

    def _take(self, slot: int) -> Any:
        outcome, self._board.outcomes[slot] = self._board.outcomes[slot], None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _shut(self) -> None:
        self._board.is_closed = True  # a thread that is stuck now ends when it comes back
        for slot, thread in enumerate(self._threads, self._num_own):
            if slot not in self._stuck and self._board.signals.wait(self._slots[slot : slot + 1], 1, _JOIN_S):
                self._board.signals.post(slot, _STOP)
                thread.join(_JOIN_S)
            else:
                self._stuck.add(slot)
        self._threads = []
        super()._shut()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.close()
