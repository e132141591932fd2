"""The bytes of `VectorEnv.get_state`: arrays and JSON, so that reading them runs no code."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT = "puffer-vector state, version 1"
_HEADER = "header"


def pack(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Pack a header of plain values and named arrays.

    Raises:
        TypeError: The header holds something that is neither plain nor an array.
    """
    text = json.dumps({"format": FORMAT, **header}, default=_encoded)
    file = io.BytesIO()
    contents: dict[str, Any] = {_HEADER: np.frombuffer(text.encode(), np.uint8), **arrays}
    np.savez(file, **contents)
    return file.getvalue()


def unpack(state: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return what `pack` was given.

    Raises:
        ValueError: The bytes are no such state.
    """
    try:
        with np.load(io.BytesIO(state), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop(_HEADER).tobytes(), object_hook=_decoded)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"state must be what get_state returned; got {len(state)} other bytes ({error}).") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"state must have the format {FORMAT!r}; got another one. Make it with the same version.")
    return header, arrays


def _encoded(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"__array__": value.tolist(), "dtype": value.dtype.str, "shape": list(value.shape)}
    raise TypeError(
        f"infos that wait for recv must hold plain values or arrays to be saved; got {value!r}. "
        "Call recv before get_state, or return other infos."
    )


def _decoded(value: dict[str, Any]) -> Any:
    if "__array__" in value:
        return np.array(value["__array__"], np.dtype(value["dtype"])).reshape(value["shape"])
    return value


def pack_bytes(parts: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return byte strings as one array and their lengths."""
    return np.frombuffer(b"".join(parts), np.uint8), np.array([len(part) for part in parts], np.int64)


def unpack_bytes(joined: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the byte strings that `pack_bytes` joined."""
    ends = np.cumsum(lengths)
    whole = joined.tobytes()
    return [whole[int(end - length) : int(end)] for end, length in zip(ends, lengths, strict=True)]
