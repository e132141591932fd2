"""Rows of observations as structured tensors, and as features for a network."""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import torch
from gymnasium import spaces

from puffer_policies.distributions import torch_dtype
from puffer_spaces import Layout, Leaf

Tensor = torch.Tensor


class _LeafPlan(NamedTuple):
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_cast: bool


class _DictPlan(NamedTuple):
    keys: tuple[str, ...]
    children: tuple[Any, ...]


class _TuplePlan(NamedTuple):
    children: tuple[Any, ...]


_plans: dict[int, tuple[weakref.ref[Any], Any]] = {}


def read_rows(observations: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return rows in the shape and dtype that a network computes with: (rows, ...) -> (rows, *shape).

    Raises:
        ValueError: A row has another number of elements.
    """
    if observations.ndim == 0 or math.prod(observations.shape[1:]) != math.prod(shape):
        raise ValueError(
            f"observations must be (rows, {', '.join(map(str, shape))}); got {tuple(observations.shape)}. "
            "Pass rows of the space that the policy was built for, one observation as observations[None]."
        )
    return observations.reshape(observations.shape[0], *shape).to(dtype)


def unflatten_observations(flat: Tensor, space: spaces.Space[Any] | Layout) -> Any:
    """Return a batch of flat rows in the structure of their space, each leaf with its own dtype and shape.

    No data is copied. It compiles: the structure is a constant of the trace.

    Args:
        flat: (..., *row_shape), rows as the env's buffer holds them: uint8 where leaves differ in dtype.
        space: The original observation space, or its `Layout`.

    Returns:
        Nested dicts and tuples of tensors (..., *leaf shape).

    Raises:
        ValueError: The rows are not of this space.
    """
    return _read(flat, _plan(space))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _plan(space: spaces.Space[Any] | Layout) -> Any:
    known = _plans.get(id(space))
    if known is not None and known[0]() is space:
        return known[1]
    layout = space if isinstance(space, Layout) else Layout(space)
    plan = _plan_node(layout.space, iter(layout.leaves), layout)
    key = id(space)
    _plans[key] = (weakref.ref(space, lambda _: _plans.pop(key, None)), plan)
    return plan


def _plan_node(space: spaces.Space[Any], leaves: Any, layout: Layout) -> Any:
    if isinstance(space, spaces.Dict):
        nodes = tuple(_plan_node(child, leaves, layout) for child in space.spaces.values())
        return _DictPlan(tuple(space.spaces), nodes)
    if isinstance(space, spaces.Tuple):
        return _TuplePlan(tuple(_plan_node(child, leaves, layout) for child in space.spaces))
    return leaf_plan(next(leaves), layout)


def leaf_plan(leaf: Leaf, layout: Layout) -> _LeafPlan:
    """Say where a leaf lies in the last dimension of a flattened row, and whether its bytes are another dtype's."""
    unit = 1 if layout.is_mixed else leaf.dtype.itemsize
    start = leaf.offset // unit
    return _LeafPlan(start, start + leaf.nbytes // unit, tuple(leaf.shape), torch_dtype(leaf.dtype), layout.is_mixed)


def _read(flat: Tensor, plan: Any) -> Any:
    if isinstance(plan, _DictPlan):
        return {key: _read(flat, child) for key, child in zip(plan.keys, plan.children, strict=True)}
    if isinstance(plan, _TuplePlan):
        return tuple([_read(flat, child) for child in plan.children])
    return read_leaf(flat, plan)


def read_leaf(flat: Tensor, plan: _LeafPlan) -> Tensor:
    """Return a leaf of rows as a view of its own dtype and shape: (..., row) -> (..., *leaf shape).

    Raises:
        ValueError: The rows are too short, or not bytes where leaves have several dtypes.
    """
    size = math.prod(plan.shape)
    if (
        not plan.is_cast
        and plan.start == 0
        and flat.ndim > 1
        and tuple(flat.shape[-len(plan.shape) :]) == plan.shape != ()
    ):
        return flat
    part = flat[..., plan.start : plan.stop]
    if part.shape[-1] != plan.stop - plan.start or (plan.is_cast and part.dtype != torch.uint8):
        raise ValueError(
            f"flat must hold rows of at least {plan.stop} elements{' of uint8' if plan.is_cast else ''}; got "
            f"{flat.dtype} {tuple(flat.shape)}. Pass rows of this space as the env's buffer holds them."
        )
    if plan.is_cast:
        part = part.view(plan.dtype)
    return part.reshape(*flat.shape[:-1], *plan.shape) if size else part.new_zeros(*flat.shape[:-1], *plan.shape)
