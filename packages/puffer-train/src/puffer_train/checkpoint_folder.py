"""The checkpoints of a run, and how one is found among all runs.

The name of a numbered file is `update_<number>.pt`. Which one is the latest or the best is read in the files, never in
their times.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from puffer_train.atomic import TEMPORARY_GLOB, replacing
from puffer_train.checkpoint import read_metadata, write_checkpoint
from puffer_train.errors import CheckpointError

_FILE_NAME = re.compile(r"update_(\d+)\.pt")
_BEST_NAME = "best.pt"


@dataclass
class CheckpointFolder:
    """The checkpoints of one run: the last few by update number, and the best by score.

    Args:
        folder: Where the files lie. It is created by the first `save`.
        keep_last: How many numbered files are kept; 0 keeps all.
    """

    folder: Path
    keep_last: int = 3

    @property
    def best_path(self) -> Path:
        """The file with the highest `score` in its metadata; it may not exist."""
        return self.folder / _BEST_NAME

    def paths(self) -> list[Path]:
        """Return the numbered files in the order of their numbers."""
        return [path for _, path in sorted(_numbered_files(self.folder))]

    def path_of(self, update: int) -> Path:
        """Return where the file of an update is, or would be."""
        return self.folder / f"update_{update:08d}.pt"

    def save(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> Path:
        """Write `update_<metadata["update"]>.pt`, renew the best file, delete the oldest files.

        Returns:
            The new file's path.
        """
        if self.folder.is_dir():
            for leftover in self.folder.glob(TEMPORARY_GLOB):
                leftover.unlink(missing_ok=True)
        path = write_checkpoint(self.path_of(int(metadata["update"])), state, metadata)
        if self._is_best(metadata.get("score")):
            _copy(path, self.best_path)
        if self.keep_last > 0:
            for old in [other for other in self.paths() if other != path][: -self.keep_last + 1 or None]:
                old.unlink(missing_ok=True)
        return path

    def remove_after(self, update: int) -> None:
        """Delete numbered files above `update`: a resumed run writes them again."""
        for number, path in _numbered_files(self.folder):
            if number > update:
                path.unlink(missing_ok=True)

    def _is_best(self, score: Any) -> bool:
        if score is None or not np.isfinite(score):
            return False
        try:
            best = read_metadata(self.best_path).get("score")
        except CheckpointError:
            return True
        return best is None or float(score) > float(best)


def default_path(env_id: str, update: int) -> Path:
    """Return where a checkpoint goes that has no run folder: `runs/<env>/checkpoints/update_<number>.pt`."""
    return CheckpointFolder(Path("runs") / env_id.replace("/", "_").replace(":", "_") / "checkpoints").path_of(update)


def find_checkpoint(runs_folder: str | Path, env_id: str, which: str = "latest") -> Path:
    """Find the checkpoint of an environment among all runs.

    Args:
        runs_folder: The folder that holds one folder a run.
        env_id: The exact id. `ocean-squared` never finds `ocean-squared-two`.
        which: "latest", the highest update number (of equal ones, the one written last, by the time inside the file);
            "best", the highest score; the name of a run (its latest); or the path of a file or of a run folder.

    Raises:
        CheckpointError: If there is none, with what there is; or if the file is of another environment.
    """
    runs_folder = Path(runs_folder)
    if which in ("latest", "best"):
        return _find_among(runs_folder, env_id, which)
    run = runs_folder / which
    path = run if run.is_dir() and which == run.name else Path(which)
    if path.is_dir():
        path = _newest_whole(path)
    elif not path.is_file():
        raise CheckpointError(
            f"a checkpoint must be latest, best, a run in {runs_folder}, or a file; there is no {which}."
        )
    found_id = read_metadata(path).get("env_id")
    if found_id != env_id:
        raise CheckpointError(f"the checkpoint must be of {env_id}; {path} is of {found_id}.")
    return path


def _newest_whole(folder: Path) -> Path:
    """Return the newest checkpoint of a run that can be read; a disk may have spoilt the last one."""
    numbered = CheckpointFolder(folder / "checkpoints").paths() or CheckpointFolder(folder).paths()
    refusals = []
    for path in reversed(numbered):
        try:
            read_metadata(path)
        except CheckpointError as error:
            refusals.append(str(error))
        else:
            return path
    if not refusals:
        raise CheckpointError(f"a run folder must hold a checkpoint; {folder} has none.")
    raise CheckpointError(f"a run folder must hold a checkpoint that can be read; of the newest: {refusals[0]}")


def _find_among(runs_folder: Path, env_id: str, which: str) -> Path:
    candidates: list[tuple[tuple[float, float, str], Path]] = []
    other_ids: set[str] = set()
    is_any_of_env = False
    for path, metadata in _all_checkpoints(runs_folder):
        if metadata.get("env_id") != env_id:
            other_ids.add(str(metadata.get("env_id")))
            continue
        is_any_of_env = True
        first = metadata.get("score") if which == "best" else metadata.get("update")
        if first is not None:
            candidates.append(((float(first), float(metadata.get("saved_at", 0.0)), str(path)), path))
    if not candidates and is_any_of_env:
        raise CheckpointError(
            f"the best checkpoint of {env_id} must have a score; of those in {runs_folder} none has one, as no episode "
            "ended before they were written. Use latest, or train for longer."
        )
    if not candidates:
        there = f"there are some of {', '.join(sorted(other_ids))}" if other_ids else "there is none at all"
        raise CheckpointError(
            f"a checkpoint of {env_id} must be in {runs_folder}; {there}. Train one with: puffer train {env_id}"
        )
    return max(candidates)[1]


def _all_checkpoints(runs_folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for folder in sorted(runs_folder.glob("*/checkpoints")):
        checkpoints = CheckpointFolder(folder)
        for path in [*checkpoints.paths(), checkpoints.best_path]:
            with contextlib.suppress(CheckpointError):
                yield path, read_metadata(path)


def _numbered_files(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    return [(int(match[1]), path) for path in folder.iterdir() if (match := _FILE_NAME.fullmatch(path.name))]


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(source, temporary)
