"""metrics.jsonl: what a run reports, on disk."""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from puffer_train.atomic import replacing
from puffer_train.metrics import FiniteFilter


class MetricsFile:
    """metrics.jsonl: one JSON object a line, each line written at once.

    A line that a crash cut short is removed when the file is opened again.

    Args:
        path: The file. It is created if it does not exist.
        after_agent_steps: On resume, lines with more `agent_steps` than this are removed.

    Raises:
        ValueError: If a line has to be looked at and is no JSON object.
    """

    def __init__(self, path: str | Path, after_agent_steps: int | None = None) -> None:
        self.path = Path(path)
        self._filter = FiniteFilter()
        self._cut(after_agent_steps)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one line. Values that are not finite numbers are left out with one warning.

        Raises:
            OSError: If the disk refuses, also a part of the line.
        """
        line = (json.dumps(self._filter(row), allow_nan=False) + "\n").encode()
        if os.write(self._descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        """Sync and close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _cut(self, after_agent_steps: int | None) -> None:
        if not self.path.exists():
            return
        old = self.path.read_bytes()
        lines = old[: old.rfind(b"\n") + 1].splitlines(keepends=True)
        if after_agent_steps is not None:
            lines = [line for line in lines if self._agent_steps(line) <= after_agent_steps]
        new = b"".join(lines)
        if new != old:
            with replacing(self.path) as temporary:
                temporary.write_bytes(new)

    def _agent_steps(self, line: bytes) -> float:
        try:
            return float(json.loads(line).get("agent_steps", 0))
        except (ValueError, AttributeError, TypeError):
            raise ValueError(
                f"each line of {self.path} must be a JSON object; got {line[:60]!r}. Mend the line or take it out."
            ) from None


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Return the lines of a metrics.jsonl, or of the one in a run's folder, as dicts.

    A line that a crash cut short is left out.
    """
    path = Path(path)
    text = (path / "metrics.jsonl" if path.is_dir() else path).read_bytes()
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
