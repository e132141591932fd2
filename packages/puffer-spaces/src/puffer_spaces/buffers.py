"""The arrays that an environment and its caller share. Rows are agents; each array starts on a cache line of its own.

::

    memory  |observations ..|pad|actions ..|pad|rewards|pad|terminals|pad|truncations|pad|masks|pad|final ..|
            ^0              ^64 k          ^64 k       ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

ALIGNMENT = 64
"""Bytes of a cache line: each array starts at a multiple of it, so no two arrays share one."""

Array = npt.NDArray[Any]


@dataclass(slots=True, eq=False)
class Buffers:
    """The arrays of one environment or of a whole batch, all with num_agents rows.

    What each row means is in the contract of `PufferEnv`. `buffers[2:4]` are views of rows 2 and 3,
    `buffers["rewards"]` is an array by name, so that a `Buffers` also stands where a dict of arrays is expected.
    """

    observations: Array
    """single_observation_space.dtype, (num_agents, *observation_shape): what each agent sees now."""
    actions: Array
    """int32 for Discrete, MultiDiscrete and MultiBinary, else the Box's dtype; (num_agents, *action_shape)."""
    rewards: npt.NDArray[np.float32]
    """float32 (num_agents,): reward of the action just taken."""
    terminals: npt.NDArray[np.bool_]
    """bool (num_agents,): the episode ended for this agent on this step."""
    truncations: npt.NDArray[np.bool_]
    """bool (num_agents,): an outside limit cut the episode on this step."""
    masks: npt.NDArray[np.bool_]
    """bool (num_agents,): the observation in this row belongs to an agent that will act."""
    final_observations: Array
    """Like observations: last observation of the episode that just ended, where terminals or truncations."""
    action_mask: npt.NDArray[np.bool_] | None = None
    """bool (num_agents, action_mask_size), True where an action is allowed; None where the env has no masks."""

    @classmethod
    def allocate(
        cls,
        single_observation_space: spaces.Space[Any],
        single_action_space: spaces.Space[Any],
        num_agents: int,
        action_mask_size: int = 0,
    ) -> Buffers:
        """Make zeroed buffers with all masks True, in one block of memory that starts on a cache line."""
        size = cls.nbytes(single_observation_space, single_action_space, num_agents, action_mask_size)
        block = np.zeros(size + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        memory = block[start : start + size]
        buffers = cls.from_memory(memory, single_observation_space, single_action_space, num_agents, action_mask_size)
        buffers.clear()
        return buffers

    @classmethod
    def nbytes(
        cls,
        single_observation_space: spaces.Space[Any],
        single_action_space: spaces.Space[Any],
        num_agents: int,
        action_mask_size: int = 0,
    ) -> int:
        """Return the bytes that `from_memory` needs for these spaces, a multiple of the cache line."""
        plan = _plan(single_observation_space, single_action_space, num_agents, action_mask_size)
        return sum(_padded(_size(shape, dtype)) for shape, dtype in plan.values())

    @classmethod
    def from_memory(
        cls,
        memory: Any,
        single_observation_space: spaces.Space[Any],
        single_action_space: spaces.Space[Any],
        num_agents: int,
        action_mask_size: int = 0,
    ) -> Buffers:
        """View a writable block (bytearray, mmap, shared memory, array) of at least `nbytes(...)` bytes as buffers.

        The contents stay as they are, so that a second process can attach to rows in use. Call `clear` on fresh
        memory; an env that binds its rows sets their masks to True.

        Raises:
            ValueError: The block is too small or read-only.
        """
        block = np.frombuffer(memory, np.uint8)
        plan = _plan(single_observation_space, single_action_space, num_agents, action_mask_size)
        needed = sum(_padded(_size(shape, dtype)) for shape, dtype in plan.values())
        if block.size < needed or not block.flags.writeable:
            raise ValueError(
                f"memory must be writable and hold {needed} bytes; got {block.size} bytes, "
                f"{'writable' if block.flags.writeable else 'read-only'}. Ask Buffers.nbytes for the size."
            )
        arrays: dict[str, Array] = {}
        offset = 0
        for name, (shape, dtype) in plan.items():
            arrays[name] = np.ndarray(shape, dtype, block, offset)
            offset += _padded(_size(shape, dtype))
        return cls(**arrays)

    @classmethod
    def from_mapping(cls, arrays: Mapping[str, Any] | Buffers) -> Buffers:
        """Take a dict of arrays, PufferLib's form of buffers. A missing `final_observations` is allocated."""
        if isinstance(arrays, Buffers):
            return arrays
        if not isinstance(arrays, Mapping):
            raise TypeError(
                f"buf must be Buffers or a dict of arrays; got {type(arrays).__name__}. Pass None for new ones."
            )
        names = [field.name for field in fields(cls)]
        given = {name: arrays[name] for name in names if name in arrays}
        missing = [name for name in names[:6] if name not in given]
        if missing:
            raise ValueError(f"buf must have the arrays {names[:6]}; got none for {missing}. Pass Buffers, or all six.")
        if given.get("final_observations") is None:
            given["final_observations"] = np.zeros_like(given["observations"])
        return cls(**given)

    @property
    def num_agents(self) -> int:
        """Number of rows."""
        return len(self.rewards)

    def clear(self) -> None:
        """Zero every array and set all masks to True."""
        for name in ("observations", "actions", "rewards", "terminals", "truncations", "final_observations"):
            getattr(self, name)[...] = 0
        self.masks[...] = True
        if self.action_mask is not None:
            self.action_mask[...] = True

    def keys(self) -> Iterator[str]:
        """Names of the arrays, so that `dict(**buffers)` works."""
        return (field.name for field in fields(self))

    def __contains__(self, name: object) -> bool:
        return name in {field.name for field in fields(self)}

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self:
                raise KeyError(key)
            return getattr(self, key)
        if not isinstance(key, slice):
            raise TypeError(f"buffers must be indexed by a slice of rows or the name of an array; got {key!r}.")
        rows: dict[str, Any] = {}
        for field in fields(self):
            array = getattr(self, field.name)
            rows[field.name] = None if array is None else array[key]
        return type(self)(**rows)


def action_dtype(single_action_space: spaces.Space[Any]) -> np.dtype:
    """Return the dtype of the actions array: the Box's own, int32 for everything discrete."""
    if isinstance(single_action_space, spaces.Box):
        return np.dtype(single_action_space.dtype)
    return np.dtype(np.int32)


def _plan(
    single_observation_space: spaces.Space[Any],
    single_action_space: spaces.Space[Any],
    num_agents: int,
    action_mask_size: int,
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    num_agents = int(num_agents)
    if num_agents < 1:
        raise ValueError(f"num_agents must be at least 1; got {num_agents}. Give the buffers a row per agent.")
    observations = ((num_agents, *_shape(single_observation_space)), np.dtype(single_observation_space.dtype))
    flags = ((num_agents,), np.dtype(np.bool_))
    plan = {
        "observations": observations,
        "actions": ((num_agents, *_shape(single_action_space)), action_dtype(single_action_space)),
        "rewards": ((num_agents,), np.dtype(np.float32)),
        "terminals": flags,
        "truncations": flags,
        "masks": flags,
        "final_observations": observations,
    }
    if action_mask_size:
        plan["action_mask"] = ((num_agents, int(action_mask_size)), np.dtype(np.bool_))
    return plan


def _shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    if space.shape is None:
        raise ValueError(f"a single space must have one shape and dtype; got {space}. Give Layout(space).row_space.")
    return tuple(space.shape)


def _size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
