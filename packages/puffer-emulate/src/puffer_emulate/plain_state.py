"""Bytes of plain values and arrays. Reading them can build nothing else, so a state from elsewhere cannot run code."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np


def dump_state(values: Mapping[str, Any]) -> bytes:
    """Encode a dict of Python's plain values, lists of them, and arrays of numbers."""
    encoded = {
        name: {"dtype": value.dtype.str, "shape": value.shape, "data": value.tobytes()}
        if isinstance(value, np.ndarray)
        else value
        for name, value in values.items()
    }
    return pickle.dumps(encoded, protocol=5)


def load_state(state: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Decode what `dump_state` encoded.

    Args:
        state: The bytes.
        names: Names that must be there.

    Raises:
        ValueError: It is something else.
        pickle.UnpicklingError: It holds more than plain values.
    """
    if not isinstance(state, bytes) or not state:
        raise ValueError(f"state must be the bytes of get_state; got {state!r}. Pass what get_state returned.")
    values = _PlainUnpickler(io.BytesIO(state)).load()
    if not isinstance(values, dict) or not set(names) <= set(values):
        raise ValueError("state must come from get_state of such an env; got other data.")
    return {name: _decoded(value) for name, value in values.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "data"}:
        return np.frombuffer(value["data"], value["dtype"]).reshape(value["shape"]).copy()
    return value


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a state may hold plain values only; got {module}.{name}")
