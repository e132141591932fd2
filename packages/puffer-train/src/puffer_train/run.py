"""The folder of a run: `runs/<run-id>/` with its config, metrics and checkpoints."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from puffer_train.atomic import replacing
from puffer_train.checkpoint_folder import CheckpointFolder
from puffer_train.errors import RunError
from puffer_train.metrics_file import MetricsFile

try:
    import fcntl
except ImportError:  # Windows, where nothing keeps two processes from one run
    fcntl = None  # type: ignore[assignment]

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.jsonl"
CHECKPOINTS_NAME = "checkpoints"

_RESERVED = ("latest", "best")


@dataclass
class RunFolder:
    """One run on disk.

        runs/<run-id>/config.toml       every setting and where its value comes from
                      metrics.jsonl     one JSON object an interval
                      checkpoints/      update_<number>.pt, best.pt

    Use `create` for a new run and `reopen` for one that goes on. The folder is held by this process until `close`, the
    end of a `with` block, or the end of the process in whatever way.
    """

    path: Path
    checkpoints: CheckpointFolder
    metrics: MetricsFile = field(repr=False)
    _lock: int = field(repr=False)

    @classmethod
    def create(cls, runs_folder: str | Path, env_id: str, run_id: str | None = None, *, keep_last: int = 3) -> Self:
        """Make a new folder.

        Args:
            runs_folder: Where runs are kept; created if it does not exist.
            env_id: Becomes part of the name.
            run_id: The name; None makes one of the env's id and the time.
            keep_last: Numbered checkpoints to keep; 0 keeps all.

        Raises:
            ValueError: If the run exists already, or the name is none for a folder.
            OSError: If the disk refuses.
        """
        path = make_run_folder(Path(runs_folder), env_id, run_id)
        try:
            lock = _lock_folder(path)
            metrics = MetricsFile(path / METRICS_NAME)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path, CheckpointFolder(path / CHECKPOINTS_NAME, keep_last), metrics, lock)

    @classmethod
    def reopen(cls, path: str | Path, *, update: int, agent_steps: int, keep_last: int = 3) -> Self:
        """Go on in a folder: what lies after the checkpoint (metrics, numbered checkpoints) is removed.

        Args:
            path: The run's folder.
            update: Update number of the checkpoint that the run goes on from.
            agent_steps: Its agent steps.
            keep_last: Numbered checkpoints to keep; 0 keeps all.

        Raises:
            ValueError: If another process writes to the run, or metrics.jsonl is damaged. Nothing was removed then.
            OSError: If the disk refuses.
        """
        path = Path(path)
        lock = _lock_folder(path)
        try:
            metrics = MetricsFile(path / METRICS_NAME, after_agent_steps=agent_steps)
        except BaseException:
            os.close(lock)
            raise
        checkpoints = CheckpointFolder(path / CHECKPOINTS_NAME, keep_last)
        checkpoints.remove_after(update)
        return cls(path, checkpoints, metrics, lock)

    def write_config(self, text: str) -> None:
        """Write config.toml as a whole."""
        with self._writing(), replacing(self.path / CONFIG_NAME) as temporary:
            # Paths that are no UTF-8 come as surrogates and go as the bytes that they were.
            temporary.write_text(text, encoding="utf-8", errors="surrogateescape")

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with self._writing():
            self.metrics.log(row)

    def save_checkpoint(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> Path:
        """Write a numbered checkpoint; `metadata` gets the time of saving."""
        with self._writing():
            return self.checkpoints.save(state, {**metadata, "saved_at": time.time()})

    def close(self) -> None:
        """Close the metrics file and let go of the folder; a second call does nothing."""
        self.metrics.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; a run that failed before it had a row of metrics or a checkpoint is deleted."""
        if error is not None and self._is_empty:
            error.add_note(f"nothing had been learned: {self.path} is removed again")
            self.discard()
        self.close()

    @property
    def _is_empty(self) -> bool:
        rows = self.metrics.path  # a folder that somebody took away is not empty but gone
        return rows.is_file() and rows.stat().st_size == 0 and not self.checkpoints.paths()

    def discard(self) -> None:
        """Close and delete a run that never began."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.path.is_dir():
            raise RunError(f"the run folder must stay where it is; {self.path} is gone.")
        try:
            yield
        except OSError as error:
            raise RunError(
                f"the run folder must stay writable; {error.filename or self.path}: {error.strerror}. "
                "What was written before is whole."
            ) from error


def make_run_folder(runs_folder: Path, env_id: str, run_id: str | None) -> Path:
    """Create and return the folder of a new run; no two processes get the same.

    Raises:
        ValueError: If `run_id` is given and exists, or is no plain name.
    """
    if run_id is not None:
        if not run_id.strip() or Path(run_id).name != run_id or run_id == ".." or not run_id.isprintable():
            raise ValueError(f"a run id must be a plain folder name; got {run_id!r}.")
        if run_id in _RESERVED:
            raise ValueError(f"a run id must not be {run_id}, which names a checkpoint of any run. Give another name.")
        path = runs_folder / run_id
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ValueError(
                f"a new run must have a name of its own; {path} exists. Go on with it by --resume {run_id}."
            ) from None
        return path
    name = f"{env_id.replace('/', '-').replace(':', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 10_000):
        path = runs_folder / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise RuntimeError(f"a free name for a run must be found in {runs_folder}; {name} and its followers exist.")


def _lock_folder(path: Path) -> int:
    """Hold a folder and return the descriptor that does so; the system lets go of it when the process ends."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(f"one process at a time can write to a run; another one does to {path}.") from None
    except OSError:  # a file system without locks
        pass
    return descriptor


def run_folder_of(checkpoint: str | Path) -> Path | None:
    """Return the run folder in which a checkpoint lies, as it was written where it has a name; None if it has none."""
    path = Path(checkpoint)
    for folder in (path.parent, path.resolve().parent):
        run = folder.parent
        if folder.name == CHECKPOINTS_NAME and run.name not in ("", "..") and (run / CONFIG_NAME).is_file():
            return run
    return None
