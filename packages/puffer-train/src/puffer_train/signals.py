"""Ctrl-C and SIGTERM as a wish to stop, while a command runs."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Catches SIGINT and SIGTERM inside a `with` block, and puts the old handlers back after it.

    The first signal only sets `received`; who trains looks at it between steps. A second one raises KeyboardInterrupt,
    so that an impatient Ctrl-C ends at once. Outside the main thread Python allows no handlers, and none is installed.

    Args:
        grace_s: Seconds after the first signal in which others are the same wish: a launcher passes on to its processes
            what a terminal or a batch system may have sent to them too.
    """

    def __init__(self, grace_s: float = 0.0) -> None:
        self.received: int | None = None
        self._grace_s = grace_s
        self._received_at = 0.0
        self._old_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old_handlers = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._old_handlers = {}

    @property
    def exit_code(self) -> int:
        """The exit code of a process that a signal ended: 128 + the signal's number; 0 if there was none."""
        return 0 if self.received is None else 128 + self.received

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at >= self._grace_s:
            raise KeyboardInterrupt
