"""Checkpoints: one file a time, written whole or not at all, read without running code.

A file holds `{"format", "version", "metadata", "state"}` and, anywhere in it, only tensors and plain values. It is
saved by `torch.save` and loaded with `weights_only=True`. The name of a numbered file is `update_<number>.pt`; its
metadata says of which environment it is, so that a lookup never depends on names or times of files.
"""

import contextlib
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

FORMAT = "puffer-checkpoint"
FORMAT_VERSION = 1

_BYTES_KEY = "__bytes__"
_FILE_NAME = re.compile(r"update_(\d+)\.pt")
_BEST_NAME = "best.pt"
_TEMPORARY_GLOB = ".*.tmp"


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged, refused, or belongs to something else."""


def write_checkpoint(path: str | Path, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> Path:
    """Write a checkpoint so that a kill at any moment leaves either the old file or the new one.

    The bytes go to a temporary file in the same folder, are synced to the disk, and take the name by one rename.

    Args:
        path: The file to write. Its folder is created.
        state: Tensors, None, bool, int, float, str, bytes, and lists, tuples and dicts of these. NumPy scalars become
            plain numbers; tensors are stored on the CPU.
        metadata: Plain values that describe the file: `env_id`, `update`, `agent_steps`, `score`, the config.

    Returns:
        The path.

    Raises:
        TypeError: If a value is of another kind; the message names where it is.
        OSError: If the disk refuses.
    """
    path = Path(path)
    content = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "metadata": _to_plain(dict(metadata), "metadata"),
        "state": _to_plain(dict(state), "state"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return path


def read_checkpoint(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a checkpoint onto the CPU without running anything that is in it.

    Returns:
        `(state, metadata)` as they were written. Names that `torch.compile` put into `state["policy"]` are taken out.

    Raises:
        CheckpointError: If the file is missing, damaged, of another kind, of a newer format, or holds Python objects.
    """
    content = _load(Path(path), mmap=False)
    state = _from_plain(content["state"])
    if isinstance(state.get("policy"), dict):
        state["policy"] = {name.replace("_orig_mod.", ""): value for name, value in state["policy"].items()}
    return state, _from_plain(content["metadata"])


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Read only the metadata of a checkpoint (its tensors are mapped, not read).

    Raises:
        CheckpointError: As for `read_checkpoint`.
    """
    metadata: dict[str, Any] = _from_plain(_load(Path(path), mmap=True)["metadata"])
    return metadata


def load_policy_state(policy: torch.nn.Module, saved: Mapping[str, torch.Tensor]) -> None:
    """Load weights into a policy whether or not either side is compiled or distributed.

    `torch.compile` puts `_orig_mod.` into names and DistributedDataParallel `module.` in front of them. Both sides are
    compared without them, so a policy that has a submodule called `module` of its own loads as well.

    Raises:
        CheckpointError: If names or shapes differ; the message lists the first ones.
    """
    own = policy.state_dict()
    saved_by_name = {_canonical_name(name): value for name, value in saved.items()}
    own_by_name = {_canonical_name(name): name for name in own}
    missing = sorted(own_by_name.keys() - saved_by_name.keys())
    surplus = sorted(saved_by_name.keys() - own_by_name.keys())
    shapes = [
        f"{name} is {tuple(saved_by_name[name].shape)} in the file and {tuple(own[own_name].shape)} in the policy"
        for name, own_name in own_by_name.items()
        if name in saved_by_name and saved_by_name[name].shape != own[own_name].shape
    ]
    if missing or surplus or shapes:
        differences = (
            [f"the file lacks {name}" for name in missing] + [f"the policy lacks {name}" for name in surplus] + shapes
        )
        raise CheckpointError(
            f"the checkpoint's weights must fit the policy; {'; '.join(differences[:3])}"
            f"{f' (and {len(differences) - 3} more)' if len(differences) > 3 else ''}. "
            "Use the policy settings that the checkpoint was trained with."
        )
    policy.load_state_dict({own_name: saved_by_name[name] for name, own_name in own_by_name.items()})


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

    def save(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> Path:
        """Write `update_<metadata["update"]>.pt`, renew the best file, delete the oldest files.

        Returns:
            The new file's path.
        """
        if self.folder.is_dir():
            for leftover in self.folder.glob(_TEMPORARY_GLOB):
                leftover.unlink(missing_ok=True)
        path = write_checkpoint(self.folder / f"update_{int(metadata['update']):08d}.pt", state, metadata)
        if self._is_best(metadata.get("score")):
            _copy_atomically(path, self.best_path)
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
    path = Path(which) if Path(which).exists() else runs_folder / which
    if path.is_dir():
        numbered = CheckpointFolder(path / "checkpoints").paths() or CheckpointFolder(path).paths()
        if not numbered:
            raise CheckpointError(f"a run folder must hold a checkpoint; got {path} with none.")
        path = numbered[-1]
    found_id = read_metadata(path).get("env_id")
    if found_id != env_id:
        raise CheckpointError(f"the checkpoint must be of {env_id}; {path} is of {found_id}.")
    return path


def _find_among(runs_folder: Path, env_id: str, which: str) -> Path:
    candidates: list[tuple[tuple[float, float, str], Path]] = []
    other_ids: set[str] = set()
    for path, metadata in _all_checkpoints(runs_folder):
        if metadata.get("env_id") != env_id:
            other_ids.add(str(metadata.get("env_id")))
            continue
        first = metadata.get("score") if which == "best" else metadata.get("update")
        if first is not None:
            candidates.append(((float(first), float(metadata.get("saved_at", 0.0)), str(path)), path))
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


def _load(path: Path, *, mmap: bool) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"a checkpoint must be a file; there is none at {path}.")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"a checkpoint must be a whole file that puffer-train wrote; {path} is damaged or of another kind. It was "
            "refused, because a pickle can run code."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"a checkpoint must hold only tensors and plain values; {path} holds Python objects. It was "
            "refused, because a pickle can run code."
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise CheckpointError(f"a checkpoint must be a whole file; {path} is damaged.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"a checkpoint must be one that puffer-train wrote; {path} is of another kind.")
    if content["version"] > FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint's format version must be at most {FORMAT_VERSION}; {path} has {content['version']}. "
            "Use a newer puffer-train."
        )
    return content


def _to_plain(value: Any, where: str) -> Any:
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous()
        # A view would drag its whole storage into the file.
        return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, bytes | bytearray):
        return {_BYTES_KEY: torch.from_numpy(np.frombuffer(value, dtype=np.uint8).copy())}
    if isinstance(value, Mapping):
        return {_plain_key(key, where): _to_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_to_plain(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, list):
        return [_to_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    for plain_type in (bool, int, float, str):
        if isinstance(value, plain_type):
            return plain_type(value)
    raise TypeError(
        f"{where} must be a tensor or a plain value (None, bool, int, float, str, bytes, list, tuple, dict); "
        f"got {type(value).__module__}.{type(value).__qualname__}."
    )


def _plain_key(key: Any, where: str) -> str | int:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int):
        return int(key)
    raise TypeError(f"keys of {where} must be str or int; got {key!r}.")


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_BYTES_KEY}:
            return value[_BYTES_KEY].numpy().tobytes()
        return {key: _from_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_from_plain(item) for item in value)
    return value


def _canonical_name(name: str) -> str:
    parts = [part for part in name.split(".") if part != "_orig_mod"]
    while parts[:1] == ["module"]:
        parts = parts[1:]
    return ".".join(parts)


def _copy_atomically(source: Path, target: Path) -> None:
    temporary = target.parent / f".{target.name}.{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
