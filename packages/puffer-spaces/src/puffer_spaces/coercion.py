"""Rewards, flags and infos as environments return them, and actions as callers give them, made plain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def as_reward(value: Any, where: str = "reward") -> float:
    """Return a reward as a float. Python and NumPy scalars and arrays of one element are accepted.

    Raises:
        ValueError: An array has another number of elements than one.
        TypeError: The value is no number.
    """
    if type(value) is float:
        return value
    try:
        return float(_one(value, where))
    except OverflowError:
        raise ValueError(f"{where} must fit a float; got an integer of {value.bit_length()} bits. Scale it.") from None


def as_flag(value: Any, where: str = "terminated") -> bool:
    """Return an episode flag as a bool. Python and NumPy scalars and arrays of one element are accepted.

    Raises:
        ValueError: An array has another number of elements than one, or the value is nan.
        TypeError: The value is no flag.
    """
    if value is True or value is False:
        return value is True
    flag = _one(value, where)
    if flag != flag:
        raise ValueError(f"{where} must be true or false; got nan. Return a bool.")
    return bool(flag)


def as_info(value: Any, where: str = "info") -> Mapping[Any, Any]:
    """Return an info as a mapping. None is an empty one.

    Raises:
        TypeError: The value is no mapping.
    """
    if value is None:
        return {}
    if type(value) is dict or isinstance(value, Mapping):
        return value
    raise TypeError(f"{where} must be a dict; got {value!r} ({type(value).__name__}). Return {{}} where there is none.")


def copy_actions(actions: Any, target: npt.NDArray[Any], name: str) -> None:
    """Copy actions into the array an env reads, within their kind and without wrapping integers around.

    Args:
        actions: Array or nested sequence of the shape of `target`.
        target: (num_agents, *action_shape).
        name: What errors call the env.

    Raises:
        ValueError: The shape is another, or an integer does not fit.
        TypeError: The dtype is of another kind.
    """
    array = np.asarray(actions)
    if array.shape != target.shape:
        raise ValueError(f"actions of {name} must have shape {target.shape}; got {array.shape}. Give one row an agent.")
    is_integer = target.dtype.kind in "iu"
    if not (array.dtype.kind in "iub" if is_integer else np.can_cast(array.dtype, target.dtype, "same_kind")):
        raise TypeError(f"actions of {name} must be castable to {target.dtype}; got {array.dtype}. Convert them first.")
    if is_integer and array.size and not np.can_cast(array.dtype, target.dtype):
        limits = np.iinfo(target.dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise ValueError(
                f"actions of {name} must fit {target.dtype}; got values in [{array.min()}, {array.max()}]. "
                "Give choices that the space has."
            )
    np.copyto(target, array, casting="unsafe")


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
