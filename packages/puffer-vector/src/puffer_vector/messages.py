"""What crosses between the caller and workers in other processes: envs to build, calls, and errors, all pickled."""

from __future__ import annotations

import pickle
import reprlib
import traceback
from typing import Any

import cloudpickle

from puffer_vector.errors import PASSED_ON, WorkerError
from puffer_vector.worker import SlotSpec, Worker


def pickled(value: Any) -> bytes:
    """Return a value as bytes, the fast way if it can be."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return bytes(cloudpickle.dumps(value))


def pickled_spec(spec: SlotSpec, backend: str) -> bytes:
    """Return what a worker builds as bytes; functions and classes of the caller's script by value.

    Raises:
        TypeError: A creator cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(spec))
    except Exception as error:
        raise TypeError(
            f"the env creator must be picklable for {backend}; {spec.creators[0].name} is not: {error}. "
            "Build what cannot be pickled inside the creator."
        ) from error


def pickled_call(method: str, arguments: tuple[Any, ...]) -> bytes:
    """Return a call of a method of `Worker` as bytes.

    Raises:
        TypeError: An argument cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps((method, arguments)))
    except Exception as error:
        raise TypeError(
            f"what {method} passes to envs in other processes must be picklable; got {reprlib.repr(arguments)}: "
            f"{error}. Pass plain values or arrays."
        ) from error


def run_pickled_call(worker: Worker, message: bytes) -> Any:
    """Carry out, in the worker, a call that `pickled_call` made.

    Raises:
        WorkerError: The call cannot be unpickled here.
        Exception: What the method raised.
    """
    try:
        method, arguments = pickle.loads(message)
    except Exception as error:
        reason = f"what the caller sent cannot be unpickled in a worker: {type(error).__name__}: {error}"
        raise worker.describe_failure(reason, 0, error) from error
    return getattr(worker, method)(*arguments)


def start_failure(worker: Worker | None, error: BaseException) -> Exception:
    """Return the error about a worker that could not build or bind its envs."""
    if isinstance(error, (WorkerError, *PASSED_ON)):
        return error
    if worker is None:
        text = "".join(traceback.format_exception(error))
        return WorkerError(f"its env creator cannot be unpickled in a worker: {error}", 0, remote_traceback=text)
    return worker.describe_failure(f"starting it raised {type(error).__name__}: {error}", 0, error)


def slow_start_text(limit_s: float | None) -> str:
    """Say that a worker took too long to build its envs."""
    return f"it was not ready within {limit_s} s and was killed: its env hangs while it is built, or timeout_s is short"


def call_failure(worker: Worker, error: BaseException) -> Exception:
    """Return what a call of a bound worker raised, in a form that reaches the caller with its traceback."""
    if not isinstance(error, Exception):
        return worker.describe_failure(f"the env raised {error!r}", int(worker.progress[0]), error)
    if isinstance(error, WorkerError):
        return error
    text = "Traceback in the worker:\n" + "".join(traceback.format_exception(error))
    try:
        error.add_note(text)
        pickle.loads(pickled(error))
    except Exception:  # an exception class that cannot be built from its arguments
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(text)
    return error


def unpicklable(worker: Worker, error: Exception) -> WorkerError:
    """Return the error about a result that cannot be sent."""
    reason = f"what an env returns to another process must be picklable: {error}"
    return worker.describe_failure(reason, int(worker.progress[0]), error)
