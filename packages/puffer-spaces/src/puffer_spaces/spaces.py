"""Conversions of spaces: one agent's to a batch's, shapes and foreign spaces to Gymnasium's, to counts of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

_INT32 = np.iinfo(np.int32)


def joint_space(space: spaces.Space[Any], num_agents: int) -> spaces.Space[Any]:
    """Return the space of a batch with one row per agent.

    Discrete becomes MultiDiscrete (num_agents,), MultiDiscrete one of shape (num_agents, *shape) and MultiBinary one of
    (num_agents, *shape); `start` is kept, so every valid value of an agent is valid in its row. Discrete kinds
    sample int32, the dtype of the actions array. A Box becomes the Box of its repeated bounds. A seeded joint space
    draws different values for each row.

    Raises:
        TypeError: The space is of another kind, for which a row must be made first (`Layout(space).row_space`).
        ValueError: num_agents is less than 1, or a choice does not fit int32.
    """
    if num_agents < 1:
        raise ValueError(f"num_agents must be at least 1; got {num_agents}.")
    check_choices(space)
    if isinstance(space, spaces.Discrete):
        start = np.full(num_agents, space.start, np.int64)
        return spaces.MultiDiscrete(np.full(num_agents, space.n, np.int64), dtype=np.int32, start=start)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(
            _repeat(space.nvec, num_agents), dtype=np.int32, start=_repeat(space.start, num_agents)
        )
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((num_agents, *space.shape))
    if isinstance(space, spaces.Box):
        return spaces.Box(_repeat(space.low, num_agents), _repeat(space.high, num_agents), dtype=space.dtype.type)
    raise TypeError(
        f"joint_space takes Box, Discrete, MultiDiscrete or MultiBinary; got {type(space).__name__}. "
        "Make a row of it first: Layout(space).row_space."
    )


def check_choices(space: spaces.Space[Any]) -> None:
    """Check that the values of a discrete space fit int32, the dtype of the actions array.

    Raises:
        ValueError: One does not.
    """
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return
    counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
    for count, start in zip(np.ravel(counts).tolist(), np.ravel(space.start).tolist(), strict=True):
        if start < _INT32.min or start + count - 1 > _INT32.max:
            raise ValueError(
                f"a discrete space must have values that fit int32, the dtype of actions; got {space}. "
                "Split the choice into several."
            )


def _repeat(values: npt.NDArray[Any], num_agents: int) -> npt.NDArray[Any]:
    return np.repeat(values[None], num_agents, axis=0)


def space_of_shapes(
    shape: int | Sequence[int] | Mapping[str, Any] | spaces.Space[Any],
    low: float | None = None,
    high: float | None = None,
    dtype: Any = None,
) -> spaces.Space[Any]:
    """Make a Box of a shape, or a Dict of a mapping from names to shapes, as `PufferEnv.make_space` says."""
    if isinstance(shape, spaces.Space):
        return shape
    if isinstance(shape, Mapping):
        return spaces.Dict({name: space_of_shapes(leaf, low, high, dtype) for name, leaf in shape.items()})
    sizes = as_sizes("shape", shape)
    is_image = len(sizes) == 3 and low is None and high is None
    dtype = np.dtype((np.uint8 if is_image else np.float32) if dtype is None else dtype)
    smallest, largest = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-np.inf, np.inf)
    if dtype.kind == "b":
        smallest, largest = 0, 1
    return spaces.Box(smallest if low is None else low, largest if high is None else high, sizes, dtype.type)


def as_sizes(name: str, value: Any) -> tuple[int, ...]:
    """Return an integer or a sequence of them as a tuple of Python's, each at least 1.

    Raises:
        TypeError: It is something else.
        ValueError: One is less than 1.
    """
    values = [value] if hasattr(value, "__index__") and np.ndim(value) == 0 else value
    if not isinstance(values, list | tuple | np.ndarray) or not all(hasattr(size, "__index__") for size in values):
        raise TypeError(
            f"{name} must be an integer or a sequence of integers; got {value!r}. Give for example (84, 84)."
        )
    sizes = tuple(int(size) for size in values)
    if any(size < 1 for size in sizes):
        raise ValueError(f"{name} must have sizes of at least 1; got {value!r}. Leave a size of 0 out.")
    return sizes


def as_gymnasium_space(space: Any) -> spaces.Space[Any]:
    """Convert a space of another library by what it has: `low` and `high`, `n`, `nvec` or `spaces`.

    A plain dict of spaces becomes a Dict, a list or tuple of spaces a Tuple.

    Gymnasium's own spaces are returned as they are, containers with their children converted.

    Raises:
        TypeError: The object looks like none of them.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _converted_container(space)
    if isinstance(space, spaces.Space):
        return space
    if isinstance(space, Mapping):
        return spaces.Dict({key: as_gymnasium_space(child) for key, child in space.items()})
    if isinstance(space, list | tuple):
        return spaces.Tuple([as_gymnasium_space(child) for child in space])
    if hasattr(space, "spaces"):
        return as_gymnasium_space(space.spaces)
    if hasattr(space, "nvec"):
        nvec = np.asarray(space.nvec, np.int64)
        start = getattr(space, "start", None)
        return spaces.MultiDiscrete(nvec, dtype=_dtype_of(space, np.int64), start=start)
    if hasattr(space, "low") and hasattr(space, "high"):
        dtype = _dtype_of(space, np.float32)
        shape = tuple(getattr(space, "shape", None) or np.shape(space.low))
        return spaces.Box(space.low, space.high, shape, dtype)
    if hasattr(space, "n"):
        if type(space).__name__ == "MultiBinary":
            return spaces.MultiBinary(space.n if np.ndim(space.n) == 0 else tuple(space.n))
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0) or 0))
    raise TypeError(
        f"space must be a Gymnasium space or look like one (low and high, n, nvec or spaces); got {space!r}. "
        "Declare it with gymnasium.spaces."
    )


def action_nvec(space: Any) -> npt.NDArray[np.int64]:
    """Return the number of choices of each discrete element of an action space: int64 (num_choices,).

    Discrete has one element, MultiDiscrete one per entry, MultiBinary one of 2 per entry, Dict and Tuple those of their
    children in order.

    Raises:
        TypeError: The space has a Box or another leaf that is not discrete.
    """
    space = as_gymnasium_space(space)
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.nvec, np.int64).ravel()
    if isinstance(space, spaces.MultiBinary):
        return np.full(int(np.prod(space.shape)), 2, np.int64)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        children = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return np.concatenate([np.empty(0, np.int64), *(action_nvec(child) for child in children)])
    raise TypeError(f"action_nvec takes discrete spaces; got {space}. A Box has no choices to count.")


def _converted_container(space: spaces.Dict | spaces.Tuple) -> spaces.Space[Any]:
    if isinstance(space, spaces.Dict):
        children = {key: as_gymnasium_space(child) for key, child in space.spaces.items()}
        if all(children[key] is child for key, child in space.spaces.items()):
            return space
        return spaces.Dict(children)
    parts = [as_gymnasium_space(child) for child in space.spaces]
    return space if all(new is old for new, old in zip(parts, space.spaces, strict=True)) else spaces.Tuple(parts)


def _dtype_of(space: Any, default: type[np.generic]) -> type[np.generic]:
    dtype = getattr(space, "dtype", None)
    return default if dtype is None else np.dtype(dtype).type
