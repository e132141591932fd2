"""The worker's end of a process: what runs in the child from its start to its end.

Messages of the start go through the pipe: the worker says that it is up, then there is one request and one answer at a
time, "probe" and "bind". From then on requests come as signals in shared memory: a step needs nothing else, another
call has its method and arguments in the pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_vector._signal import Signals, start_watchdog
from puffer_vector.block import Block, BlockShape
from puffer_vector.memory import SharedMemory
from puffer_vector.messages import call_failure, pickled, run_pickled_call, start_failure, unpicklable
from puffer_vector.reports import EnvReport
from puffer_vector.worker import Binding, Outcome, SlotSpec, Worker

STEP, CALL, STOP = 1, 2, 3
OUTCOME, VALUE, ERROR = 0, 1, 2
UP = "up"
"""What a worker says first. Building envs has a time limit, loading the interpreter and its libraries has not."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""A worker has one CPU's worth of work: libraries that read these get one thread, unless the caller set them."""


def run_worker(pipe: Connection, payload: bytes) -> None:
    """Serve as a worker until the caller says stop or is gone.

    Args:
        pipe: To the caller.
        payload: A pickled SlotSpec.
    """
    _leave_stop_signals_to_the_caller()
    parent = multiprocessing.parent_process()
    start_watchdog(-1 if parent is None else int(parent.sentinel), os.getppid())
    _limit_threads()
    worker: Worker | None = None
    served = None
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send_bytes(pickled(UP))
        while served is None:
            request, *arguments = pickle.loads(pipe.recv_bytes())
            try:
                if worker is None:
                    spec: SlotSpec = pickle.loads(payload)
                    worker = Worker(spec)
                if request == "probe":
                    reports = worker.probe(*arguments)
                else:
                    served, reports = _bind(worker, pipe, *arguments)
                answer = pickled(reports)
            except BaseException as error:
                answer = pickled(start_failure(worker, error))
            pipe.send_bytes(answer)
        served.serve()
    if worker is not None:
        with contextlib.suppress(Exception):
            worker.close()


def _leave_stop_signals_to_the_caller() -> None:
    """Do nothing on an interrupt or a wish to end: the caller got it too, and needs its workers to end well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A program that an env starts inherits what is ignored, but no handler: the env can still end it by SIGTERM.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _limit_threads() -> None:
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    torch = sys.modules.get("torch")
    if torch is not None and os.environ["OMP_NUM_THREADS"] == "1":
        torch.set_num_threads(1)


def _bind(
    worker: Worker, pipe: Connection, binding: Binding, shape: BlockShape, like: EnvReport, spin: bool, restarts: int
) -> tuple[Served, list[EnvReport]]:
    memory = SharedMemory(shape.nbytes, recv_handle(pipe))
    memory.close_fd()
    block = Block(memory.bytes, shape)
    rows = slice(binding.first_row, binding.first_row + binding.num_rows)
    worker.count_restarts_from(restarts)
    reports = worker.bind(binding, block.buffers[rows], block.invalid[rows], like)
    return Served(worker, pipe, block, Signals(block.signals, shape.num_slots, spin)), reports


def progress_of(block: Block, signals: Signals, slot: int) -> npt.NDArray[np.uint64]:
    """Return the one number in which a worker says which of its env objects it steps."""
    start = signals.progress_offset(slot)
    return block.signals[start : start + 8].view(np.uint64)


class Served:
    """A bound worker that answers signals.

    Args:
        worker: The worker.
        pipe: To the caller.
        block: The shared memory.
        signals: The signals in it.
    """

    def __init__(self, worker: Worker, pipe: Connection, block: Block, signals: Signals) -> None:
        self._worker, self._pipe, self._signals = worker, pipe, signals
        self._slot = worker.spec.index
        self._records = block.records[self._slot]
        self._message = block.messages[self._slot]
        worker.progress = progress_of(block, signals, self._slot)

    def serve(self) -> None:
        """Answer requests until one says stop."""
        signals, slot = self._signals, self._slot
        while (command := signals.next_command(slot)) != STOP:
            if command == STEP:
                self._answer_step()
            elif command == CALL:
                self._answer_call(self._pipe.recv_bytes())
        signals.finish(slot, OUTCOME)

    def _answer_step(self) -> None:
        try:
            outcome = self._worker.step_and_collect()
        except BaseException as error:
            self._reply_error(error)
            return
        if not outcome.infos and not len(outcome.records):
            self._signals.finish(self._slot, OUTCOME)
        else:
            self._reply_outcome(outcome)

    def _answer_call(self, message: bytes) -> None:
        try:
            value = run_pickled_call(self._worker, message)
        except BaseException as error:
            self._reply_error(error)
            return
        if isinstance(value, Outcome):
            self._reply_outcome(value)
        else:
            self._reply(VALUE, value)

    def _reply_outcome(self, outcome: Outcome) -> None:
        num_records = len(outcome.records)
        if num_records <= len(self._records):
            if num_records:  # an empty array may have another dtype
                self._records[:num_records] = outcome.records
            if not outcome.infos:
                self._signals.finish(self._slot, OUTCOME, num_records)
            else:
                self._reply(OUTCOME, (outcome.infos, None), num_records)
        else:
            self._reply(OUTCOME, (outcome.infos, outcome.records))

    def _reply(self, status: int, value: Any, num_records: int = 0) -> None:
        try:
            message = pickled(value)
        except Exception as error:
            self._reply_error(unpicklable(self._worker, error))
            return
        if len(message) <= len(self._message):
            self._message[: len(message)] = np.frombuffer(message, np.uint8)
            self._signals.finish(self._slot, status, num_records, len(message))
        else:  # signal first: the caller reads while the rest is written
            self._signals.finish(self._slot, status, num_records, len(message))
            self._pipe.send_bytes(message)

    def _reply_error(self, error: BaseException) -> None:
        self._reply(ERROR, call_failure(self._worker, error))
