"""The folder of a run: `runs/<run-id>/` with its config, metrics and checkpoints."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from puffer_train.checkpoint_folder import CheckpointFolder
from puffer_train.metrics import MetricsFile

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.jsonl"
CHECKPOINTS_NAME = "checkpoints"


@dataclass
class RunFolder:
    """One run on disk.

        runs/<run-id>/config.toml       every setting and where its value comes from
                      metrics.jsonl     one JSON object an interval
                      checkpoints/      update_<number>.pt, best.pt

    Use `create` for a new run and `reopen` for one that goes on.
    """

    path: Path
    checkpoints: CheckpointFolder
    metrics: MetricsFile = field(repr=False)

    @classmethod
    def create(cls, runs_folder: str | Path, env_id: str, run_id: str | None = None, *, keep_last: int = 3) -> Self:
        """Make a new folder.

        Args:
            runs_folder: Where runs are kept; created if it does not exist.
            env_id: Becomes part of the name.
            run_id: The name; None makes one of the env's id and the time.
            keep_last: Numbered checkpoints to keep; 0 keeps all.

        Raises:
            ValueError: If the run exists already.
        """
        path = make_run_folder(Path(runs_folder), env_id, run_id)
        return cls(path, CheckpointFolder(path / CHECKPOINTS_NAME, keep_last), MetricsFile(path / METRICS_NAME))

    @classmethod
    def reopen(cls, path: str | Path, *, update: int, agent_steps: int, keep_last: int = 3) -> Self:
        """Go on in a folder: what lies after the checkpoint (metrics, numbered checkpoints) is removed.

        Args:
            path: The run's folder.
            update: Update number of the checkpoint that the run goes on from.
            agent_steps: Its agent steps.
            keep_last: Numbered checkpoints to keep; 0 keeps all.
        """
        path = Path(path)
        checkpoints = CheckpointFolder(path / CHECKPOINTS_NAME, keep_last)
        checkpoints.remove_after(update)
        return cls(path, checkpoints, MetricsFile(path / METRICS_NAME, after_agent_steps=agent_steps))

    def write_config(self, text: str) -> None:
        """Write config.toml as a whole."""
        temporary = self.path / f".{CONFIG_NAME}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.path / CONFIG_NAME)

    def save_checkpoint(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> Path:
        """Write a numbered checkpoint; `metadata` gets the time of saving."""
        return self.checkpoints.save(state, {**metadata, "saved_at": time.time()})

    def close(self) -> None:
        """Close the metrics file; a second call does nothing."""
        self.metrics.close()


def make_run_folder(runs_folder: Path, env_id: str, run_id: str | None) -> Path:
    """Create and return the folder of a new run; no two processes get the same.

    Raises:
        ValueError: If `run_id` is given and exists, or is no plain name.
    """
    if run_id is not None:
        if Path(run_id).name != run_id or run_id in (".", ".."):
            raise ValueError(f"a run id must be a plain folder name; got {run_id!r}.")
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


def run_folder_of(checkpoint: str | Path) -> Path | None:
    """Return the run folder in which a checkpoint lies, or None if it lies elsewhere."""
    folder = Path(checkpoint).resolve().parent
    return folder.parent if folder.name == CHECKPOINTS_NAME and (folder.parent / CONFIG_NAME).is_file() else None
