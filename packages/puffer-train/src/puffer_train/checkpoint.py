"""The file of a checkpoint: written whole or not at all, read without running code.

A file holds `{"format", "version", "metadata", "state"}` and, anywhere in it, only tensors and plain values. It is
saved by `torch.save` and loaded with `weights_only=True`. Its metadata says of which environment it is.
"""

import pickle
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from puffer_train.atomic import replacing
from puffer_train.errors import CheckpointError

FORMAT = "puffer-checkpoint"
FORMAT_VERSION = 1

_BYTES_KEY = "__bytes__"


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
    with replacing(path) as temporary:
        _save(content, temporary)
    return path


def read_checkpoint(path: str | Path, needs: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a checkpoint onto the CPU without running anything that is in it.

    Args:
        path: The file.
        needs: Keys that the state must have.

    Returns:
        `(state, metadata)` as they were written. Names that `torch.compile` put into `state["policy"]` are taken out.

    Raises:
        CheckpointError: If the file is missing, damaged, of another kind, of a newer format, holds Python objects, or
            lacks what is needed.
    """
    content = _load(Path(path), mmap=False)
    state = _from_plain(content["state"])
    missing = [name for name in needs if name not in state]
    if missing:
        raise CheckpointError(f"the checkpoint must hold the state of a PuffeRL; {path} lacks {', '.join(missing)}.")
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


def _save(content: dict[str, Any], path: Path) -> None:
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:  # torch's own, after the disk refused a write
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _load(path: Path, *, mmap: bool) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"a checkpoint must be a file; there is none at {path}.")
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            if file.read(1) == pickle.PROTO:
                raise CheckpointError(_refusal(path))
        raise CheckpointError(
            f"a checkpoint must be a whole file that puffer-train wrote; {path} is damaged or of another kind."
        )
    try:
        if not mmap:
            _check_sums(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_refusal(path)) from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"a checkpoint must be a whole file; {path} is damaged.") from error
    if not _is_ours(content):
        raise CheckpointError(f"a checkpoint must be one that puffer-train wrote; {path} is of another kind.")
    if content["version"] > FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint's format version must be at most {FORMAT_VERSION}; {path} has {content['version']}. "
            "Use a newer puffer-train."
        )
    return dict(content)


def _check_sums(path: Path) -> None:
    """Compare the checksums in a file with its content, which torch does not.

    Raises:
        zipfile.BadZipFile: If a part is not what was written.
    """
    with zipfile.ZipFile(path) as archive:
        bad = archive.testzip()
    if bad is not None:
        raise zipfile.BadZipFile(bad)


def _refusal(path: Path) -> str:
    return (
        f"a checkpoint must hold only tensors and plain values; {path} holds Python objects. It was refused, because a "
        "pickle can run code."
    )


def _is_ours(content: Any) -> bool:
    kinds = {"version": int, "metadata": dict, "state": dict}
    return (
        isinstance(content, dict)
        and content.get("format") == FORMAT
        and all(isinstance(content.get(name), kind) for name, kind in kinds.items())
    )


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
