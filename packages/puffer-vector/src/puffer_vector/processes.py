"""Workers that are processes: one slot each, rows and signals in shared memory.

NOTE [Ends of workers]. A worker ends when it is told to stop, when its pipe is closed before it is bound, or when its
watchdog, a thread of its own outside the interpreter, sees that the process that started it is gone. The caller stops
workers that are idle and kills those that do not answer within a moment; it does so in `close`, which also runs at
exit. SIGINT and SIGTERM end no worker, nor the fork server on which all depend: whoever sends them to the whole
process group has told the caller too, which may want a last step of its workers. Shared memory has no name, so it goes
with the last process that has it mapped.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing
import multiprocessing.util  # registers its exit handler, which joins children: ours must be registered later
import pickle
import time
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers
from puffer_vector._signal import Signals
from puffer_vector.block import Block, BlockShape
from puffer_vector.errors import WorkerError
from puffer_vector.forks import leave_in_forks
from puffer_vector.memory import SharedMemory
from puffer_vector.messages import pickled_call, pickled_spec, slow_start_text
from puffer_vector.parallel import ParallelVector
from puffer_vector.process_worker import (
    CALL,
    ERROR,
    OUTCOME,
    STEP,
    STOP,
    progress_of,
    run_worker,
)
from puffer_vector.reports import EnvReport
from puffer_vector.settings import Settings
from puffer_vector.starting import GUARD_HINT, exit_text, fork_server_id, make_context, start_process
from puffer_vector.worker import Outcome, SlotSpec

START_S = 60.0
"""How long a process may take to load the interpreter and its libraries where there is a time limit, in seconds."""
STOP_S = 1.0
"""How long a worker may take to close its envs, in seconds."""
_open: weakref.WeakSet[ProcessVector] = weakref.WeakSet()


class ProcessVector(ParallelVector):
    """Steps envs in processes, one a slot."""

    _is_remote = True

    def __init__(self, settings: Settings) -> None:
        self._context = make_context(settings.context)
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._servers: dict[int, int | None] = {}  # process ids of the fork servers that started them
        self._signals: Signals | None = None
        self._outcomes: dict[int, Any] = {}
        self._on_step: set[int] = set()
        self._restarts = [0] * settings.plan.num_slots
        if not _open:
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _open.add(self)
        leave_in_forks(self)
        super().__init__(settings)

    def _launch(self, specs: Sequence[SlotSpec]) -> list[EnvReport]:
        self._specs = list(specs)
        for spec in specs:
            self._start(spec)
        self._wait_until_up(range(len(specs)))
        mixed = self._settings.is_mixed
        probed = list(range(len(specs))) if mixed else [0]
        for slot in probed:
            self._tell(slot, ("probe", mixed))
        return [report for reports in self._answers(probed, self._settings.timeout_s) for report in reports]

    def _start(self, spec: SlotSpec) -> None:
        payload = pickled_spec(spec, "processes")
        mine, its = self._context.Pipe()
        try:
            process = start_process(self._context, run_worker, (its, payload), f"puffer-vector-{spec.index}")
        except (EOFError, ConnectionError) as error:
            mine.close()
            raise WorkerError(f"its process could not be started: {error!r}. {GUARD_HINT}", spec.index) from error
        finally:
            its.close()
        self._servers[spec.index] = fork_server_id(self._context)
        if spec.index < len(self._processes):
            self._processes[spec.index], self._pipes[spec.index] = process, mine
        else:
            self._processes.append(process)
            self._pipes.append(mine)

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        plan = self._plan
        slots = range(len(self._specs))
        self._shape = BlockShape(
            report.single_observation_space,
            report.single_action_space,
            report.action_mask_size,
            plan.num_rows,
            len(slots),
            max(2 * plan.rows_per_slot, 16),
            plan.extras,
        )
        self._memory = SharedMemory(self._shape.nbytes)
        block = Block(self._memory.bytes, self._shape)
        block.buffers.clear()
        self._slot_records, self._slot_messages = block.records, block.messages
        for slot in slots:
            self._tell_bind(slot)
        self._answers(slots, self._settings.timeout_s)
        if not self._settings.restart_failed:
            self._memory.close_fd()
        self._signals = Signals(block.signals, len(slots), len(slots) + 1 <= self._settings.cpus)
        self._progress = [progress_of(block, self._signals, slot) for slot in slots]
        return block.buffers, block.invalid

    def _tell_bind(self, slot: int) -> None:
        binding = self._plan.binding(slot)
        spin = slot < self._settings.cpus - 1  # those who may spin fill, with the caller, the CPUs and no more
        self._tell(slot, ("bind", binding, self._shape, self._report, spin, self._restarts[slot]))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its answer, or its end, is read later
            send_handle(self._pipes[slot], self._memory.fd, self._processes[slot].pid)

    def _tell(self, slot: int, message: tuple[Any, ...]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipes[slot].send_bytes(cloudpickle.dumps(message))

    def _wait_until_up(self, slots: Sequence[int]) -> None:
        self._answers(slots, None if self._settings.timeout_s is None else max(START_S, self._settings.timeout_s))

    def _answers(self, slots: Sequence[int], limit_s: float | None) -> list[Any]:
        """Return the answers of some workers to a message of the start. The first worker that fails ends the wait."""
        answers: dict[int, Any] = {}
        deadline = math.inf if limit_s is None else time.monotonic() + limit_s
        sentinels = {self._processes[slot].sentinel: slot for slot in slots}
        while len(answers) < len(slots):
            pipes = {self._pipes[slot]: slot for slot in slots if slot not in answers}
            left_s = max(deadline - time.monotonic(), 0.0)
            ready = wait([*pipes, *sentinels], None if limit_s is None else left_s)
            if not ready:
                slot = min(pipes.values())
                self._processes[slot].kill()
                raise WorkerError(slow_start_text(limit_s), slot)
            answers |= {pipes[pipe]: self._read_answer(pipes[pipe]) for pipe in pipes if pipe in ready}
            for sentinel in [sentinel for sentinel in sentinels if sentinel in ready]:
                slot = sentinels.pop(sentinel)
                answers[slot] = self._read_answer(slot)  # its last words, or an error about its end
        return [answers[slot] for slot in slots]

    def _read_answer(self, slot: int) -> Any:
        try:
            answer = pickle.loads(self._pipes[slot].recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._lost_at_start(slot) from None
        if isinstance(answer, WorkerError):
            answer.worker_index = slot
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _lost_at_start(self, slot: int) -> WorkerError:
        self._processes[slot].join(STOP_S)
        return WorkerError(f"it ended with {self._exit_text(slot)} before it was ready. {GUARD_HINT}", slot)

    def _exit_text(self, slot: int) -> str:
        return exit_text(self._processes[slot].exitcode, self._servers[slot])

    @property
    def _ready_signals(self) -> Signals:
        assert self._signals is not None
        return self._signals

    def _request(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        return pickled_call(method, arguments)

    def _begin(self, slots: Sequence[int], request: bytes | None) -> None:
        signals = self._ready_signals
        if request is None:
            self._on_step.update(slots)
            for slot in slots:
                signals.post(slot, STEP)
            return
        for slot in slots:
            self._on_step.discard(slot)
            signals.post(slot, CALL)  # signal first: a long message needs its reader
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._pipes[slot].send_bytes(request)

    def _await(self, slots: npt.NDArray[np.int32], count: int) -> None:
        signals = self._ready_signals
        while not signals.wait(slots, count, self._poll_s):
            self._check_open()
            self._look_after(slots.tolist())

    def _look_after(self, slots: Sequence[int]) -> None:
        for slot in slots:
            if not self._processes[slot].is_alive() and not self._is_done(slot):
                self._lose(slot, f"its process ended with {self._exit_text(slot)}")
        for slot in self._overdue(slots):
            self._processes[slot].kill()
            self._processes[slot].join()
            self._lose(slot, f"it did not answer within timeout_s={self._settings.timeout_s} and was killed")

    def _is_done(self, slot: int) -> bool:
        return self._ready_signals.is_done(slot)

    def _take(self, slot: int) -> Any:
        if slot in self._outcomes:
            return self._outcomes.pop(slot)
        status, num_records, message_bytes = self._ready_signals.reply(slot)
        value: Any = ((), None)
        if message_bytes:
            try:
                value = pickle.loads(self._read(slot, message_bytes))
            except (EOFError, ConnectionResetError):
                self._processes[slot].join(STOP_S)
                raise self._failure_of(slot, f"its process ended with {self._exit_text(slot)}") from None
        if status == ERROR:
            raise value
        if status != OUTCOME:
            return value
        infos, records = value
        return Outcome(list(infos), self._slot_records[slot][:num_records].copy() if records is None else records)

    def _read(self, slot: int, message_bytes: int) -> Any:
        message = self._slot_messages[slot]
        return message[:message_bytes] if message_bytes <= len(message) else self._pipes[slot].recv_bytes()

    def _failure_of(self, slot: int, reason: str) -> WorkerError:
        plan = self._plan
        index = int(self._progress[slot][0])
        world = plan.first_world + slot * plan.worlds_per_slot + index * plan.worlds_per_object
        return self._about_world(reason, slot, world)

    def _lose(self, slot: int, reason: str) -> None:
        """Raise the error about a worker that is gone, or replace it."""
        error = self._failure_of(slot, reason)
        if not self._settings.restart_failed or slot not in self._on_step:
            raise error
        self._reap(slot)
        self._restarts[slot] += 1
        self._start(self._specs[slot])
        self._wait_until_up([slot])
        self._ready_signals.forget(slot)
        self._tell_bind(slot)
        self._answers([slot], self._settings.timeout_s)
        self._started([slot])
        self._begin([slot], self._request("replace_all", (self._seed, reason)))

    def _reap(self, slot: int) -> None:
        process = self._processes[slot]
        if process.is_alive():
            process.kill()
        process.join()
        process.close()
        self._pipes[slot].close()

    def leave_to_parent(self) -> None:
        """See `SlotVector.leave_to_parent`."""
        super().leave_to_parent()
        for process in self._processes:  # else the end of this process would wait for children that are its parent's
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]

    def _shut(self) -> None:
        """End all workers. See NOTE [Ends of workers]."""
        _open.discard(self)
        try:
            self._stop_workers()
        finally:  # also when another interrupt cut the wait short
            for process in self._processes:
                if process.is_alive():
                    process.kill()
                process.join()
                process.close()
            self._processes, self._pipes = [], []
            if hasattr(self, "_memory"):
                self._memory.close_fd()

    def _stop_workers(self) -> None:
        if self._signals is not None:
            slots = np.arange(len(self._processes), dtype=np.int32)
            with contextlib.suppress(KeyboardInterrupt):
                self._signals.wait(slots, len(slots), 0.0 if self._failure is not None else STOP_S / 4)
            for slot in slots.tolist():
                if self._signals.is_done(slot):
                    self._signals.post(slot, STOP)
                else:
                    self._processes[slot].kill()
        for pipe in self._pipes:
            pipe.close()
        deadline = time.monotonic() + STOP_S
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0.0))

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.close()


def _close_all() -> None:
    for vector in list(_open):
        vector.close()
