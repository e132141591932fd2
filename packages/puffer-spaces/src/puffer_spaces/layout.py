"""Any nested Gymnasium space as one flat row, and back.

::

    Dict(image=Box uint8 (3, 5), pos=Box float32 (2,), tool=Discrete(4))

    uint8 row  |image 15 bytes|pad 1|pos 8 bytes|tool 8 bytes|     each offset a multiple of its item size
               ^0                   ^16         ^24          ^32

Where all leaves have one dtype the row keeps it and has no padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces.leaves import Leaf, Path, Reader, Views, Writer, describe, leaf_reader, leaf_writer
from puffer_spaces.spaces import as_gymnasium_space, check_choices

LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Layout:
    """How a row of a buffer holds a value of a space. The round trip is exact.

    Discrete is one int64 with low = start, MultiDiscrete and MultiBinary have the dtype of their space, Box its own
    dtype and shape, Dict and Tuple nest to any depth, in the order of the space. A space that is one leaf keeps its
    shape (() becomes (1,)); any other is flat.

    Attributes:
        space: The space, with foreign classes converted to Gymnasium's.
        leaves: One Leaf per Box, Discrete, MultiDiscrete or MultiBinary, in row order.
        is_mixed: Whether leaves differ in dtype, so that the row is uint8.
        dtype: Dtype of the row.
        row_shape: Shape of the row.
        nbytes: Bytes of the row.
        row_space: The space of a row: a Box.
        struct_dtype: Structured dtype of the row, with one field per leaf, named by its path ("value" without one).

    Raises:
        TypeError: The space has a leaf of another kind.
        ValueError: The space has no element.
    """

    _zero_based = False

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = as_gymnasium_space(space)
        found = list(_find_leaves(self.space, ()))
        if not found:
            raise ValueError(f"space must have at least one leaf; got {space}. Add a Box or Discrete to it.")
        dtypes, self.is_mixed = self._choose_dtypes([leaf for _, leaf in found])
        self.leaves, self.nbytes = _place(found, dtypes, self.is_mixed, self._zero_based)
        self.dtype = np.dtype(np.uint8) if self.is_mixed else dtypes[0]
        if not self.nbytes:
            raise ValueError(f"space must have at least one element; got {space}. Give its leaves a shape without 0.")
        self._is_one_leaf = len(self.leaves) == 1 and not self.leaves[0].path
        self.row_shape = self._make_row_shape()
        self.row_space = self._make_row_space()
        self.struct_dtype = _struct_dtype(self.leaves, self.nbytes)
        self._names = self.struct_dtype.names or ()
        self._write, self._read = _compile(self.space, (), iter(enumerate(self.leaves)))

    def __reduce__(self) -> tuple[type[Layout], tuple[spaces.Space[Any]]]:
        return type(self), (self.space,)

    def __eq__(self, other: object) -> bool:
        # Gymnasium's Dicts are equal whatever the order of their keys, rows are not.
        if type(other) is not type(self) or not isinstance(other, Layout):
            return False
        return self.space == other.space and self.struct_dtype == other.struct_dtype

    def __hash__(self) -> int:
        return hash((type(self), self.struct_dtype))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.space}) as {self.dtype} {self.row_shape}"

    def bind(self, row: npt.NDArray[Any]) -> BoundRow:
        """Return the fast way to write and read one row many times: its views are made once.

        Args:
            row: Writable, C-contiguous array of this layout's dtype with as many elements as a row.

        Raises:
            ValueError: The row is another.
        """
        _check_writable(row)
        return BoundRow(self._write, self._read, self._views(row))

    def flatten_into(self, value: Any, row: npt.NDArray[Any]) -> None:
        """Check a value of the space and write it into a row.

        Lists and scalars are accepted where arrays are declared. A Box value is cast within its kind, with one note
        per leaf and dtype; its bounds are not checked. Keys that the space does not have are ignored.

        Raises:
            ValueError: A leaf has another shape, or a discrete one is out of range; the message has its path.
            TypeError: A leaf is of another kind.
            KeyError: A key is missing.
        """
        _check_writable(row)
        self._write(value, self._views(row))

    def flatten(self, value: Any) -> npt.NDArray[Any]:
        """Return a new row that holds a value of the space."""
        row = np.zeros(self.row_shape, self.dtype)
        self.flatten_into(value, row)
        return row

    def unflatten(self, row: npt.NDArray[Any]) -> Any:
        """Return the value that a row holds, with dtypes and structure of the space, in arrays of the caller's own.

        Raises:
            ValueError: A discrete leaf is out of range; the message has its path.
        """
        return self._read(self._views(row))

    def unflatten_batch(self, rows: npt.NDArray[Any]) -> Any:
        """Return the structure of the space with a view of all rows at each leaf.

        Args:
            rows: (..., *row_shape).

        Returns:
            Nested dicts and tuples of arrays (..., *leaf.shape) of `leaf.dtype` that share memory with `rows` if these
            are C-contiguous.
        """
        rows = np.asarray(rows)
        lead = rows.shape[: rows.ndim - len(self.row_shape)]
        if rows.dtype != self.dtype or rows.shape != lead + self.row_shape:
            raise ValueError(
                f"rows must be {self.dtype} and end in the shape {self.row_shape}; got {rows.dtype} {rows.shape}. "
                "Pass an array of rows of this layout's row_space."
            )
        flat = np.ascontiguousarray(rows.reshape((*lead, self.nbytes // self.dtype.itemsize)))
        structs = flat.view(self.struct_dtype)[..., 0]
        views = [_original(leaf, structs[name]) for leaf, name in zip(self.leaves, self._names, strict=True)]
        return _rebuild(self.space, iter(views))

    def _views(self, row: npt.NDArray[Any]) -> Views:
        if type(row) is not np.ndarray:
            row = np.asarray(row)
        if row.dtype != self.dtype or row.nbytes != self.nbytes or not row.flags.c_contiguous:
            raise ValueError(
                f"row must be {self.dtype} {self.row_shape} and C-contiguous; got {row.dtype} {row.shape}. "
                "Pass one row of an array with this layout's row_space."
            )
        if self._is_one_leaf:
            return [row.reshape(self.leaves[0].shape)]
        struct = row.view(self.struct_dtype).reshape(())
        return [struct[name] for name in self._names]

    def _choose_dtypes(self, leaf_spaces: list[spaces.Space[Any]]) -> tuple[list[np.dtype], bool]:
        """Return the dtype of each leaf in the row, and whether the row must be bytes."""
        dtypes = [np.dtype(np.int64 if isinstance(leaf, spaces.Discrete) else leaf.dtype) for leaf in leaf_spaces]
        return dtypes, len(set(dtypes)) > 1

    def _make_row_shape(self) -> tuple[int, ...]:
        if self._is_one_leaf:
            return self.leaves[0].shape or (1,)
        return (self.nbytes // self.dtype.itemsize,)

    def _make_row_space(self) -> spaces.Space[Any]:
        if isinstance(self.space, spaces.Box) and self.space.shape == self.row_shape:
            return self.space
        if self.is_mixed:
            return spaces.Box(0, 255, self.row_shape, np.uint8)
        low = np.concatenate([leaf.low for leaf in self.leaves]).reshape(self.row_shape)
        high = np.concatenate([leaf.high for leaf in self.leaves]).reshape(self.row_shape)
        return spaces.Box(low, high, dtype=self.dtype.type)


class ActionLayout(Layout):
    """How a row of actions, as a policy chooses it, holds an action of a space.

    Discrete leaves are choices 0..n-1 in int32; `unflatten` adds each leaf's `start`. By the kinds of leaves the row is

    - discrete only: Discrete for a single Discrete, else MultiDiscrete with one element per choice (a MultiBinary
      element is a choice of 2);
    - Box only: a Box, of the common dtype where they differ (integer leaves are then rounded and clipped);
    - both: uint8, with an offset per leaf as in `Layout`.
    """

    _zero_based = True

    def _choose_dtypes(self, leaf_spaces: list[spaces.Space[Any]]) -> tuple[list[np.dtype], bool]:
        for leaf in leaf_spaces:
            if isinstance(leaf, spaces.Discrete):
                check_choices(spaces.Discrete(int(leaf.n)))
            elif isinstance(leaf, spaces.MultiDiscrete):
                check_choices(spaces.MultiDiscrete(leaf.nvec))
        if all(isinstance(leaf, spaces.Box) for leaf in leaf_spaces):
            common = np.result_type(*(leaf.dtype for leaf in leaf_spaces))
            return [common] * len(leaf_spaces), False
        dtypes = [np.dtype(leaf.dtype if isinstance(leaf, spaces.Box) else np.int32) for leaf in leaf_spaces]
        return dtypes, any(isinstance(leaf, spaces.Box) for leaf in leaf_spaces)

    def _make_row_shape(self) -> tuple[int, ...]:
        return () if isinstance(self.space, spaces.Discrete) else super()._make_row_shape()

    def _make_row_space(self) -> spaces.Space[Any]:
        if self.is_mixed or not self.leaves[0].is_discrete:
            return super()._make_row_space()
        if isinstance(self.space, spaces.Discrete):
            return spaces.Discrete(int(self.space.n))
        nvec = np.concatenate([leaf.nvec for leaf in self.leaves]).reshape(self.row_shape)
        return spaces.MultiDiscrete(nvec, dtype=np.int32)


class BoundRow:
    """One row of a buffer with the views of its leaves, for envs that write or read it at every step."""

    __slots__ = ("_read", "_views", "_write")

    def __init__(self, write: Writer, read: Reader, views: Views) -> None:
        self._write = write
        self._read = read
        self._views = views

    def write(self, value: Any) -> None:
        """Check a value of the space and write it, as `Layout.flatten_into`."""
        self._write(value, self._views)

    def read(self) -> Any:
        """Return the value of the row, as `Layout.unflatten`."""
        return self._read(self._views)


def action_space_for(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space of a row of actions for an action space: `ActionLayout(space).row_space`."""
    return ActionLayout(space).row_space


def _check_writable(row: Any) -> None:
    # A list would be written to a copy of it, which nobody sees.
    if not isinstance(row, np.ndarray) or not row.flags.writeable:
        got = "a read-only array" if isinstance(row, np.ndarray) else f"{type(row).__name__} {row!r}"
        raise ValueError(f"row must be a writable array; got {got}. Pass a row of the env's buffers.")


def _find_leaves(space: spaces.Space[Any], path: Path) -> Iterator[tuple[Path, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _find_leaves(child, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            yield from _find_leaves(child, (*path, index))
    elif isinstance(space, LEAF_SPACES):
        yield path, space
    else:
        raise TypeError(
            f"{describe(path)} must be a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple space; got {space}. "
            "Encode it as one of these, for instance as a Box with a fixed length."
        )


def _place(
    found: list[tuple[Path, spaces.Space[Any]]], dtypes: list[np.dtype], is_mixed: bool, zero_based: bool
) -> tuple[tuple[Leaf, ...], int]:
    leaves = []
    offset = 0
    for (path, space), dtype in zip(found, dtypes, strict=True):
        if is_mixed:
            offset = _round_up(offset, dtype.itemsize)
        leaves.append(Leaf(path, space, offset, dtype, tuple(space.shape or ()), zero_based))
        offset += leaves[-1].nbytes
    return tuple(leaves), _round_up(offset, max(dtype.itemsize for dtype in dtypes)) if is_mixed else offset


def _struct_dtype(leaves: tuple[Leaf, ...], nbytes: int) -> np.dtype:
    names: list[str] = []
    for leaf in leaves:
        name = leaf.name or "value"
        while name in names:
            name += "_"
        names.append(name)
    formats = [(leaf.dtype, leaf.shape) for leaf in leaves]
    offsets = [leaf.offset for leaf in leaves]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes})


def _round_up(offset: int, multiple: int) -> int:
    return math.ceil(offset / multiple) * multiple


def _compile(space: spaces.Space[Any], path: Path, leaves: Iterator[tuple[int, Leaf]]) -> tuple[Writer, Reader]:
    """Return the functions that write and read a value of a (sub)space, given the views of the whole row."""
    if isinstance(space, spaces.Dict):
        return _compile_dict(space, path, leaves)
    if isinstance(space, spaces.Tuple):
        return _compile_tuple(space, path, leaves)
    index, leaf = next(leaves)
    return leaf_writer(leaf, index), leaf_reader(leaf, index)


def _compile_dict(space: spaces.Dict, path: Path, leaves: Iterator[tuple[int, Leaf]]) -> tuple[Writer, Reader]:
    compiled = [(key, *_compile(child, (*path, key), leaves)) for key, child in space.spaces.items()]
    writers = [(key, write) for key, write, _ in compiled]
    readers = [(key, read) for key, _, read in compiled]

    def write_dict(value: Any, views: Views) -> None:
        for key, write in writers:
            try:
                part = value[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise _missing_key(path, key, value) from None
            write(part, views)

    def read_dict(views: Views) -> dict[Any, Any]:
        return {key: read(views) for key, read in readers}

    return write_dict, read_dict


def _compile_tuple(space: spaces.Tuple, path: Path, leaves: Iterator[tuple[int, Leaf]]) -> tuple[Writer, Reader]:
    compiled = [_compile(child, (*path, index), leaves) for index, child in enumerate(space.spaces)]
    writers = [write for write, _ in compiled]
    readers = [read for _, read in compiled]

    def write_tuple(value: Any, views: Views) -> None:
        if type(value) is not tuple and not isinstance(value, tuple | list | np.ndarray):
            raise TypeError(f"{describe(path)} must be a tuple; got {type(value).__name__} {value!r}. Return a tuple.")
        if len(value) != len(writers):
            raise ValueError(
                f"{describe(path)} must be a tuple of length {len(writers)}; got length {len(value)}. "
                "Return one value for each space of the Tuple."
            )
        for write, part in zip(writers, value, strict=True):
            write(part, views)

    def read_tuple(views: Views) -> tuple[Any, ...]:
        return tuple([read(views) for read in readers])

    return write_tuple, read_tuple


def _missing_key(path: Path, key: Any, value: Any) -> Exception:
    where = describe((*path, key))
    if hasattr(value, "keys"):
        return KeyError(
            f"{where} must be given; got keys {sorted(map(str, value.keys()))}. Return every key of the space."
        )
    return TypeError(f"{where} must be in a dict; got {type(value).__name__} {value!r}. Return a dict.")


def _original(leaf: Leaf, view: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a batch of a leaf's values as the space has them: the view itself, unless choices start elsewhere."""
    if leaf.zero_based and leaf.start.any():
        values: npt.NDArray[Any] = view.astype(leaf.space.dtype)
        values += leaf.start.astype(leaf.space.dtype).reshape(leaf.shape)
        return values
    return view


def _rebuild(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _rebuild(child, parts) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple([_rebuild(child, parts) for child in space.spaces])
    return next(parts)
