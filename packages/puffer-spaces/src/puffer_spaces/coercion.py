"""Rewards and flags as environments return them, made plain."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_reward(value: Any, where: str = "reward") -> float:
    """Return a reward as a float. Python and NumPy scalars and arrays of one element are accepted.

    Raises:
        ValueError: An array has another number of elements than one.
        TypeError: The value is no number.
    """
    if type(value) is float:
        return value
    return float(_one(value, where))


def as_flag(value: Any, where: str = "terminated") -> bool:
    """Return an episode flag as a bool. Python and NumPy scalars and arrays of one element are accepted.

    Raises:
        ValueError: An array has another number of elements than one.
        TypeError: The value is no flag.
    """
    if value is True or value is False:
        return value is True
    return bool(_one(value, where))


def _one(value: Any, where: str) -> Any:
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return value
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{where} must be one number; got {value!r} ({type(value).__name__}). Return a float or a bool."
        )
    if array.size != 1:
        raise ValueError(
            f"{where} must be one number; got an array of shape {array.shape}. Return one per agent and step."
        )
    return array.item()
