"""A fence around somebody else's logger: it may be slow, fail or refuse values, and training goes on."""

import contextlib
import queue
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from puffer_train.metrics import FiniteFilter


class GuardedLogger:
    """Calls a logger from a thread of its own, with finite plain numbers only.

    A logger that answers within `patience_s` has each row before `log` returns. After the first row that took longer
    nobody waits for it any more; when `max_waiting` rows are in line, further ones are lost. An error in `log` loses
    that row. Each kind of trouble is told by one warning. `close` waits `close_timeout_s` and then lets go.

    Args:
        logger: The logger to fence: `log(row)` and, if it has one, `close()`.
        patience_s: Seconds that `log` waits for the logger.
        close_timeout_s: Seconds that `close` waits for rows in line and for the logger's own `close`.
        max_waiting: Rows that may be in line.
    """

    def __init__(
        self, logger: Any, *, patience_s: float = 1.0, close_timeout_s: float = 10.0, max_waiting: int = 1000
    ) -> None:
        self._logger = logger
        self._patience_s = patience_s
        self._close_timeout_s = close_timeout_s
        self._name = type(logger).__name__
        self._filter = FiniteFilter()
        self._rows: queue.Queue[dict[str, float] | None] = queue.Queue(max_waiting)
        self._is_idle = threading.Event()
        self._is_slow = False
        self._errors: list[Exception] = []
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def log(self, row: Mapping[str, float]) -> None:
        """Give a row to the logger. Never raises, and waits `patience_s` at most."""
        if self._is_closed:
            return
        numbers = self._filter(row)
        if self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name=f"puffer-logger-{self._name}", daemon=True)
            self._thread.start()
        self._is_idle.clear()
        try:
            self._rows.put_nowait(numbers)
        except queue.Full:
            self._tell("loss", "is too slow; rows are lost")
            return
        if not self._is_slow:
            self._is_slow = not self._is_idle.wait(self._patience_s)
        self._tell_error()

    def close(self) -> None:
        """Deliver what is in line and close the logger, or give up after `close_timeout_s`; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is None:
            self._attempt(getattr(self._logger, "close", lambda: None))
        else:
            with contextlib.suppress(queue.Full):
                self._rows.put(None, timeout=self._close_timeout_s)
                self._thread.join(self._close_timeout_s)
            if self._thread.is_alive():
                self._tell("close", f"did not finish within {self._close_timeout_s} s; its last rows are lost")
        self._tell_error()

    def _deliver(self) -> None:
        while (row := self._rows.get()) is not None:
            self._attempt(self._logger.log, row)
            if self._rows.empty():
                self._is_idle.set()
        self._attempt(getattr(self._logger, "close", lambda: None))

    def _attempt(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:  # whatever a foreign logger raises must not end the training
            self._errors.append(error)

    def _tell_error(self) -> None:
        if self._errors:
            error = self._errors[0]
            self._errors.clear()
            self._tell("error", f"failed and lost a row: {type(error).__name__}: {error}")

    def _tell(self, kind: str, what: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            warnings.warn(f"{self._name} {what}. Training goes on.", RuntimeWarning, stacklevel=4)
