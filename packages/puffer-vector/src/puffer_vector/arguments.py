"""Checks of what a caller passes, before any env is built: what must hold, what was got, what to do."""

from __future__ import annotations

import math
import numbers
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def checked_integer(name: str, value: Any, smallest: int = 0, hint: str = "") -> int:
    """Return an integer of any kind, NumPy's too, as an int.

    Args:
        name: Name of the argument.
        value: What was passed.
        smallest: Least value it may have.
        hint: What to do where it is no integer.

    Raises:
        TypeError: It is no integer.
        ValueError: It is less than `smallest`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        hint = hint or f"Pass a whole number such as {max(smallest, 1)}."
        raise TypeError(f"{name} must be an integer; got {value!r}. {hint}") from None
    if number < smallest:
        raise ValueError(f"{name} must be at least {smallest}; got {number}.")
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Return a bool.

    Raises:
        TypeError: It is something else, of which the truth may not be what it says.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def checked_choice(name: str, value: Any, choices: Sequence[str | None]) -> Any:
    """Return one of some words.

    Raises:
        ValueError: It is none of them.
    """
    if not isinstance(value, str | None) or value not in choices:
        known = ", ".join(f'"{choice}"' for choice in choices if choice is not None)
        none = " or None" if None in choices else ""
        raise ValueError(f"{name} must be one of {known}{none}; got {value!r}.")
    return value


def checked_seconds(name: str, value: Any) -> float | None:
    """Return a time in seconds, or None for no limit.

    Raises:
        TypeError: It is no number.
        ValueError: It is not positive.
    """
    if value is None:
        return None
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, or None for no limit; got {value!r}. Pass 10.0, say.")
    seconds = float(value)
    if not seconds > 0:
        raise ValueError(f"{name} must be positive, or None for no limit; got {value!r}.")
    return None if math.isinf(seconds) else seconds


def checked_folder(name: str, value: Any) -> Path | None:
    """Return the path of a folder, made where there is none, or None.

    Raises:
        TypeError: It is no path.
        ValueError: There can be no such folder.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f'{name} must be the path of a folder, or None; got {value!r}. Pass "flights", say.')
    folder = Path(value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{name} must be a folder that can be written to; got {value!r} ({error.strerror}). Name another one."
        ) from error
    return folder


def checked_args(value: Any) -> tuple[Any, ...]:
    """Return the positional arguments of one env.

    Raises:
        TypeError: It is no list or tuple.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise TypeError(f"env_args must be a list of positional arguments; got {value!r}. Pass [{value!r}].")
    return tuple(value)


def checked_kwargs(value: Any) -> Mapping[str, Any]:
    """Return the keyword arguments of one env.

    Raises:
        TypeError: It is no mapping from names.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(
            f"env_kwargs must be a dict of keyword arguments, or a list with one for each env; got {value!r}. "
            'Pass {"name": value}.'
        )
    return value
