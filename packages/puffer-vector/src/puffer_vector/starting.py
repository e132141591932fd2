"""How the processes of a vector env are started, and what becomes of them when their fork server ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

from puffer_vector.process_worker import STOP_SIGNALS, THREAD_VARIABLES

GUARD_HINT = (
    'If the script that calls make has no `if __name__ == "__main__":` around it, add one: each worker imports the '
    "script."
)
_LOST_EXIT_CODE = 255
"""What multiprocessing takes for the exit code of a process whose fork server ended before it could report one."""
_SERVER_END_S = 0.5
"""How long a fork server that closed its connections may take to be gone, in seconds."""


def make_context(name: str | None) -> Any:
    """Return the named context of multiprocessing; by default a fork server where there is one, else spawn.

    Raises:
        RuntimeError: This process is a worker that imports its script.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            'a script that makes a vector env of processes must do so below `if __name__ == "__main__":`, since '
            "each worker imports the script first."
        )
    if name is None:
        name = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    return multiprocessing.get_context(name)


def start_process(context: Any, target: Callable[..., None], args: tuple[Any, ...], name: str) -> Any:
    """Start a process.

    Raises:
        EOFError, ConnectionError: The fork server does not start it, and was not killed just now.
    """
    process = context.Process(target=target, args=args, name=name, daemon=False)
    _preload(context)
    with _one_thread_each(), _stop_signals_blocked(context):
        server = fork_server_id(context)
        try:
            process.start()
        except (EOFError, ConnectionError):
            if server is None or not _is_gone(server):
                raise
            process.start()  # with a new fork server
    return process


def fork_server_id(context: Any) -> int | None:
    """Return the process id of the running fork server, or None without one."""
    if context.get_start_method() != "forkserver":
        return None
    from multiprocessing import forkserver

    return getattr(forkserver._forkserver, "_forkserver_pid", None)


def exit_text(code: int | None, server: int | None) -> str:
    """Say how a process ended.

    Args:
        code: Its exit code.
        server: Process id of its fork server, or None without one.
    """
    if code == _LOST_EXIT_CODE and server is not None and _is_gone(server):
        return f"its fork server (process {server}), which was killed; make starts a new one"
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"exit code {code} ({signal.Signals(-code).name})"
    return f"exit code {code}"


def _is_gone(server: int) -> bool:
    """Return whether a fork server that looks dead has ended. It is left for multiprocessing to reap."""
    if not hasattr(os, "waitid"):  # on macOS; there its looks must do
        return True
    deadline = time.monotonic() + _SERVER_END_S
    while True:
        try:
            if os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        except ChildProcessError:  # reaped: there is a new one
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Give processes that are started now one thread a numerical library, which reads the environment when loaded."""
    added = [name for name in THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _stop_signals_blocked(context: Any) -> Iterator[None]:
    """Start processes with SIGINT and SIGTERM blocked.

    A worker unblocks them when it is ready for them. A fork server that is started on the way never does: its end
    would be the end of all its workers.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    if context.get_start_method() != "fork":
        resource_tracker.ensure_running()  # its start, on the way of the others, would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _preload(context: Any) -> None:
    """Have a fork server that is started now import what every worker needs, unless the caller chose for it."""
    if context.get_start_method() == "forkserver":
        from multiprocessing import forkserver

        if getattr(forkserver._forkserver, "_preload_modules", None) == ["__main__"]:
            context.set_forkserver_preload(["puffer_vector.process_worker"])
