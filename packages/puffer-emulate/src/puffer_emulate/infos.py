"""Infos that stay as they were: many envs hand out one dict again and again and change it in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, type(None)})


def own_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Copy an info with the containers and arrays in it; other objects stay the env's."""
    return {key: value if type(value) in _IMMUTABLE else own_value(value) for key, value in info.items()}


def own_value(value: Any) -> Any:
    """Copy the containers and arrays of a value."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return own_info(value)
    if type(value) in (list, tuple, set):
        return type(value)(item if type(item) in _IMMUTABLE else own_value(item) for item in value)
    return value


def episode_metrics(info: Mapping[str, Any], extras: Sequence[str]) -> tuple[float | None, float, tuple[float, ...]]:
    """Read (score, perf, extras) of an episode from its last info.

    `score` is None and the others are nan where the info has no such number.
    """
    score = _number(info.get("score"))
    return (
        None if math.isnan(score) else score,
        _number(info.get("perf")),
        tuple(_number(info.get(name)) for name in extras),
    )


def _number(value: Any) -> float:
    if isinstance(value, (bool, int, float, np.generic)) or (isinstance(value, np.ndarray) and value.size == 1):
        try:
            return float(np.asarray(value).reshape(()))
        except (TypeError, ValueError):
            return math.nan
    return math.nan
