"""What a logger must be."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Logger(Protocol):
    """Takes one flat dict an interval.

    The step axis is a value among the others (`agent_steps`), never a separate argument: after a resume from an older
    checkpoint a tracker that refuses lower step numbers has nothing to refuse.
    """

    def log(self, row: Mapping[str, float]) -> None:
        """Record one interval; `row` has the keys of `puffer_train.metrics.interval_row`."""

    def close(self) -> None:
        """Finish; a second call does nothing."""


class NoLogger:
    """Records nothing."""

    def log(self, row: Mapping[str, float]) -> None:
        """Drop the row."""

    def close(self) -> None:
        """Do nothing."""
