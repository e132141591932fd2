"""A fence around somebody else's logger: it may be slow, fail or refuse values, and training goes on."""

import functools
import queue
import threading
import warnings
from collections.abc import Callable, Mapping

from puffer_train.loggers.protocol import Logger
from puffer_train.metrics import FiniteFilter


class GuardedLogger:
    """Calls a logger from a thread of its own, with finite plain numbers only.

    An error in `log` or `close` becomes one warning, after which the logger is called no more. A logger that falls more
    than `max_waiting` rows behind loses rows, with one warning. `close` waits `close_timeout_s` and then lets go.

    Args:
        logger: The logger to fence.
        close_timeout_s: Seconds that `close` waits for rows that the logger has not taken yet.
        max_waiting: Rows that may wait.
    """

    def __init__(self, logger: Logger, *, close_timeout_s: float = 10.0, max_waiting: int = 1000) -> None:
        self._logger = logger
        self._close_timeout_s = close_timeout_s
        self._name = type(logger).__name__
        self._filter = FiniteFilter()
        self._rows: queue.Queue[dict[str, float] | None] = queue.Queue(max_waiting)
        self._error: Exception | None = None
        self._is_error_told = False
        self._is_loss_told = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._deliver, name=f"puffer-logger-{self._name}", daemon=True)
        self._thread.start()

    def log(self, row: Mapping[str, float]) -> None:
        """Hand a row to the logger's thread; never waits and never raises."""
        if self._is_closed or self._tell_error():
            return
        try:
            self._rows.put_nowait(self._filter(row))
        except queue.Full:
            if not self._is_loss_told:
                self._is_loss_told = True
                warnings.warn(
                    f"{self._name} is too slow; rows are lost. Training goes on.", RuntimeWarning, stacklevel=2
                )

    def close(self) -> None:
        """Deliver what waits, close the logger, and give up after `close_timeout_s`; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._rows.put(None, timeout=self._close_timeout_s)
            self._thread.join(self._close_timeout_s)
        except queue.Full:
            pass
        if self._thread.is_alive():
            warnings.warn(
                f"{self._name} did not finish within {self._close_timeout_s} s; its last rows are lost.",
                RuntimeWarning,
                stacklevel=2,
            )
        self._tell_error()

    def _deliver(self) -> None:
        while (row := self._rows.get()) is not None:
            if self._error is None:
                self._attempt(functools.partial(self._logger.log, row))
        if self._error is None:
            self._attempt(self._logger.close)

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # whatever a foreign logger raises must not end the training
            self._error = error

    def _tell_error(self) -> bool:
        if self._error is None:
            return False
        if not self._is_error_told:
            self._is_error_told = True
            warnings.warn(
                f"{self._name} failed and gets no more rows: {type(self._error).__name__}: {self._error}. "
                "Training goes on.",
                RuntimeWarning,
                stacklevel=3,
            )
        return True
