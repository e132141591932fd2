"""Leaves of a nested space: where each lies in a row, and how its values get in and out.

Writers and readers are built once per layout and take the list of the row's views, one per leaf, so that stepping an
environment costs no lookup of types, offsets or bounds.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Path = tuple[str | int, ...]
Views = list[npt.NDArray[Any]]
Writer = Callable[[Any, Views], None]
Reader = Callable[[Views], Any]

_LOOP_LIMIT = 16
"""Up to so many elements a Python loop checks a range faster than NumPy's comparison and reduction."""

_logger = logging.getLogger("puffer_spaces")
_noted_casts: set[tuple[Path, str, str]] = set()


@dataclass(frozen=True, eq=False)
class Leaf:
    """One Box, Discrete, MultiDiscrete or MultiBinary inside a space, and its place in a row.

    Attributes:
        path: Keys and indices that lead to it; () where the space itself is the leaf.
        space: Its Gymnasium space.
        offset: Bytes from the start of the row.
        dtype: Dtype of its elements in the row.
        shape: Shape of its value; () for Discrete.
        zero_based: Whether the row holds choices 0..n-1 (rows of actions) instead of values from `start`.
    """

    path: Path
    space: spaces.Space[Any]
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    zero_based: bool = False

    @property
    def name(self) -> str:
        """The path as text, such as "inventory/0"; "" where the space itself is the leaf."""
        return "/".join(str(key) for key in self.path)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes in the row."""
        return self.size * self.dtype.itemsize

    @property
    def is_discrete(self) -> bool:
        """Whether its elements are choices: Discrete, MultiDiscrete or MultiBinary."""
        return not isinstance(self.space, spaces.Box)

    @property
    def nvec(self) -> npt.NDArray[np.int64]:
        """Number of choices of each element, int64 (size,); empty for a Box."""
        if isinstance(self.space, spaces.Discrete):
            return np.array([self.space.n], np.int64)
        if isinstance(self.space, spaces.MultiDiscrete):
            return np.asarray(self.space.nvec, np.int64).ravel()
        if isinstance(self.space, spaces.MultiBinary):
            return np.full(self.size, 2, np.int64)
        return np.empty(0, np.int64)

    @property
    def start(self) -> npt.NDArray[np.int64]:
        """First value of each element in the original space, int64 (size,); empty for a Box."""
        if isinstance(self.space, spaces.Discrete | spaces.MultiDiscrete):
            return np.asarray(self.space.start, np.int64).ravel()
        return np.zeros(len(self.nvec), np.int64)

    @property
    def low(self) -> npt.NDArray[Any]:
        """Smallest value of each element in the row, of `dtype`, (size,)."""
        if isinstance(self.space, spaces.Box):
            return self.space.low.ravel().astype(self.dtype)
        return (np.zeros_like(self.start) if self.zero_based else self.start).astype(self.dtype)

    @property
    def high(self) -> npt.NDArray[Any]:
        """Largest value of each element in the row, of `dtype`, (size,)."""
        if isinstance(self.space, spaces.Box):
            return self.space.high.ravel().astype(self.dtype)
        return (self.low + self.nvec - 1).astype(self.dtype)


def describe(path: Path) -> str:
    """Name a leaf in a message."""
    return f"leaf {'/'.join(str(key) for key in path)!r}" if path else "the value"


def leaf_writer(leaf: Leaf, index: int) -> Writer:
    """Return the function that checks a value of this leaf and writes it to `views[index]`."""
    if isinstance(leaf.space, spaces.Discrete):
        return _discrete_writer(leaf, index)
    if isinstance(leaf.space, spaces.Box):
        return _box_writer(leaf, index)
    return _choices_writer(leaf, index)


def leaf_reader(leaf: Leaf, index: int) -> Reader:
    """Return the function that reads this leaf's value from `views[index]`, in an array of the caller's own."""
    if isinstance(leaf.space, spaces.Discrete):
        return _discrete_reader(leaf, index)
    if isinstance(leaf.space, spaces.Box):
        return _box_reader(leaf, index)
    return _choices_reader(leaf, index)


def _discrete_writer(leaf: Leaf, index: int) -> Writer:
    start = int(leaf.start[0])
    stop = start + int(leaf.nvec[0])
    shift = start if leaf.zero_based else 0
    path = leaf.path

    def write(value: Any, views: Views) -> None:
        if type(value) is not int:
            value = _as_int(value, path)
        if not start <= value < stop:
            raise _out_of_range(path, value, start, stop - 1)
        views[index][()] = value - shift

    return write


def _discrete_reader(leaf: Leaf, index: int) -> Reader:
    low = int(leaf.low[0])
    stop = low + int(leaf.nvec[0])
    shift = int(leaf.start[0]) if leaf.zero_based else 0
    as_value = np.dtype(leaf.space.dtype).type
    path = leaf.path

    def read(views: Views) -> Any:
        value = views[index].item()
        if not low <= value < stop:
            raise _out_of_range(path, value, low, stop - 1)
        return as_value(value + shift)

    return read


def _choices_writer(leaf: Leaf, index: int) -> Writer:
    shape, path = leaf.shape, leaf.path
    start, nvec = leaf.start.reshape(shape), leaf.nvec.reshape(shape)
    in_range = _range_check(leaf, start)
    shift = start if leaf.zero_based and start.any() else None

    def write(value: Any, views: Views) -> None:
        if type(value) is not np.ndarray:
            value = _as_array(value, shape, path)
        if value.dtype.kind not in "iub":
            raise TypeError(f"{describe(path)} must hold integers; got {value.dtype} {value!r}. Return an int array.")
        if value.shape != shape:
            raise _wrong_shape(path, shape, value)
        if not in_range(value):
            raise _wrong_choice(path, value, start, nvec)
        views[index][...] = value if shift is None else value - shift

    return write


def _choices_reader(leaf: Leaf, index: int) -> Reader:
    path, shape, dtype = leaf.path, leaf.shape, np.dtype(leaf.space.dtype)
    low, nvec = leaf.low.astype(np.int64).reshape(shape), leaf.nvec.reshape(shape)
    in_range = _range_check(leaf, low)
    start = leaf.start.reshape(shape).astype(dtype)
    shift = start if leaf.zero_based and start.any() else None

    def read(views: Views) -> Any:
        view = views[index]
        if not in_range(view):
            raise _wrong_choice(path, view, low, nvec)
        value = view.astype(dtype)
        return value if shift is None else value + shift

    return read


def _range_check(leaf: Leaf, start: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], bool]:
    """Return a predicate: does each element of an integer array lie in [start, start + nvec)?"""
    bounds = [(low, low + count) for low, count in zip(start.ravel().tolist(), leaf.nvec.tolist(), strict=True)]
    low = start.astype(np.int64).reshape(leaf.shape)
    high = low + (leaf.nvec.reshape(leaf.shape) - 1)

    def small(values: npt.NDArray[Any]) -> bool:
        for value, (first, stop) in zip(values.ravel().tolist(), bounds, strict=True):  # noqa: SIM110 - all() is slower
            if not first <= value < stop:
                return False
        return True

    def large(values: npt.NDArray[Any]) -> bool:
        return bool(((values >= low) & (values <= high)).all())

    def binary(values: npt.NDArray[Any]) -> bool:
        if values.dtype.itemsize == 1:
            return not values.tobytes().translate(None, b"\x00\x01")
        return large(values)

    if isinstance(leaf.space, spaces.MultiBinary):
        return binary
    return small if leaf.size <= _LOOP_LIMIT else large


def _box_writer(leaf: Leaf, index: int) -> Writer:
    shape, dtype, path = leaf.shape, leaf.dtype, leaf.path

    def write(value: Any, views: Views) -> None:
        if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = _as_box_value(value, shape, dtype, path)
        views[index][...] = value

    return write


def _box_reader(leaf: Leaf, index: int) -> Reader:
    dtype = np.dtype(leaf.space.dtype)
    if dtype == leaf.dtype:
        return lambda views: views[index].copy()
    if dtype.kind == "f":
        return lambda views: views[index].astype(dtype)
    low, high, path = leaf.space.low, leaf.space.high, leaf.path  # type: ignore[attr-defined]
    # The nearest float to a large bound may lie beyond every integer of the dtype.
    largest = high.astype(leaf.dtype)
    largest = np.where(largest > np.nextafter(2.0**63, 0), np.nextafter(largest, 0), largest)

    def read_rounded(views: Views) -> Any:
        view = views[index]
        if np.isnan(view).any():
            raise ValueError(f"{describe(path)} must be a number; got nan in {view}. Look for nan in the policy.")
        return np.clip(np.clip(np.rint(view), low, largest).astype(dtype), low, high)

    return read_rounded


def _as_box_value(value: Any, shape: tuple[int, ...], dtype: np.dtype, path: Path) -> npt.NDArray[Any]:
    has_dtype = isinstance(value, np.ndarray | np.generic)
    array = _as_array(value, shape, path)
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"{describe(path)} must hold numbers; got {type(value).__name__} {value!r}. "
            f"Return an array {dtype} of shape {shape}."
        )
    if array.shape != shape:
        raise _wrong_shape(path, shape, array)
    if array.dtype == dtype:
        return array
    if array.dtype.kind in "iub" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
            raise ValueError(
                f"{describe(path)} must fit {dtype}; got {array.dtype} values in [{array.min()}, {array.max()}]. "
                "Return values within the declared dtype, or declare a wider one."
            )
    elif not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(
            f"{describe(path)} must be castable to {dtype} within its kind; got {array.dtype}. "
            "Return the declared dtype, or declare the one that is returned."
        )
    if has_dtype:
        _note_cast(path, array.dtype, dtype)
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except FloatingPointError:
        raise ValueError(
            f"{describe(path)} must fit {dtype}; got {array.dtype} values in [{array.min()}, {array.max()}]. "
            "Return values within the declared dtype, or declare a wider one."
        ) from None


def _as_array(value: Any, shape: tuple[int, ...], path: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{describe(path)} must be an array of shape {shape}; got ragged {value!r}. Return rows of one length."
        ) from None


def _note_cast(path: Path, got: np.dtype, declared: np.dtype) -> None:
    key = (path, str(got), str(declared))
    if key not in _noted_casts:
        _noted_casts.add(key)
        _logger.warning(
            "%s is declared %s and returned as %s: cast on each write (said once).", describe(path), declared, got
        )


def _as_int(value: Any, path: Path) -> int:
    try:
        return operator.index(value)
    except TypeError:
        pass
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "iub":
        return int(array.item())
    if array.dtype.kind in "iub":
        raise _wrong_shape(path, (), array)
    raise TypeError(f"{describe(path)} must be an integer; got {value!r} ({type(value).__name__}). Return an int.")


def _wrong_shape(path: Path, expected: tuple[int, ...], array: npt.NDArray[Any]) -> ValueError:
    return ValueError(
        f"{describe(path)} must have shape {expected}; got shape {array.shape}. "
        "Return what the space declares, or declare what is returned."
    )


def _out_of_range(path: Path, value: Any, low: Any, high: Any) -> ValueError:
    return ValueError(f"{describe(path)} must be in [{low}, {high}]; got {value}. Return a value that the space has.")


def _wrong_choice(
    path: Path, values: npt.NDArray[Any], low: npt.NDArray[Any], nvec: npt.NDArray[np.int64]
) -> ValueError:
    """Return the error for the first element of `values` that is not in [low, low + nvec)."""
    high = low + (nvec - 1)
    index = tuple(np.argwhere((values < low) | (values > high))[0].tolist())
    where = f"element {list(index)} of {describe(path)}"
    return ValueError(
        f"{where} must be in [{low[index]}, {high[index]}]; got {values[index]}. Return a value that the space has."
    )
