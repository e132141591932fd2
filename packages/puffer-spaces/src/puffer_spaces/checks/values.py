"""Checks of what stands in the rows: observations, rewards, masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces.checks.walk import Finding, Subject, walk
from puffer_spaces.env import PufferEnv
from puffer_spaces.leaves import Leaf
from puffer_spaces.spaces import action_nvec


def check_observations(subject: Subject) -> Iterator[Finding]:
    """Check that observations, final ones included, are finite and within the declared bounds."""
    env = subject.env
    bounds = _Bounds(env)
    for moment in walk(env, subject.seed, subject.num_steps):
        problem = bounds.problem(env.observations[env.masks])
        name = "observations"
        if problem is None and moment.step and env.has_final_observations:
            problem = bounds.problem(env.final_observations[env.terminals | env.truncations])
            name = "final_observations"
        if problem is not None:
            yield Finding(
                "observations",
                "error",
                f"{name} must be finite and within the declared bounds; {problem} at step {moment.step}.",
                "Declare the bounds that hold, or bring the values into them.",
            )
            return


class _Bounds:
    """The bounds of an observation row, leaf by leaf where rows are bytes."""

    def __init__(self, env: PufferEnv) -> None:
        self._layout = env.observation_layout
        space = env.single_observation_space
        self._is_row = self._layout.row_shape == space.shape and self._layout.dtype == space.dtype
        self._low, self._high = space.low, space.high  # type: ignore[attr-defined]

    def problem(self, rows: npt.NDArray[Any]) -> str | None:
        """Say what is wrong with rows of observations, or None."""
        if not len(rows):
            return None
        if not (self._is_row and self._layout.is_mixed):
            return _out_of_bounds(rows, self._low, self._high, "")
        structs = np.ascontiguousarray(rows).view(self._layout.struct_dtype)[:, 0]
        names = self._layout.struct_dtype.names or ()
        for leaf, name in zip(self._layout.leaves, names, strict=True):
            problem = _out_of_bounds(structs[name], *_leaf_bounds(leaf), f" of leaf {leaf.name!r}")
            if problem is not None:
                return problem
        return None


def _leaf_bounds(leaf: Leaf) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    return leaf.low.reshape(leaf.shape), leaf.high.reshape(leaf.shape)


def _out_of_bounds(values: npt.NDArray[Any], low: Any, high: Any, where: str) -> str | None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return f"got {values[~np.isfinite(values)][0]}{where}"
    outside = (values < low) | (values > high)
    if not outside.any():
        return None
    index = tuple(np.argwhere(outside)[0])
    element = index[1:]
    lowest = np.broadcast_to(low, values.shape[1:])[element]
    highest = np.broadcast_to(high, values.shape[1:])[element]
    place = f" at index {tuple(map(int, element))}" if element else ""
    return f"got {values[index]}{place}{where}, declared [{lowest}, {highest}]"


def check_rewards(subject: Subject) -> Iterator[Finding]:
    """Check that rewards are finite."""
    env = subject.env
    for moment in walk(env, subject.seed, subject.num_steps):
        if moment.step and not np.isfinite(env.rewards).all():
            row = int(np.argmin(np.isfinite(env.rewards)))
            yield Finding(
                "rewards",
                "error",
                f"rewards must be finite; got {env.rewards[row]} in row {row} at step {moment.step}.",
                "Find the division or logarithm that made it.",
            )
            return


def check_masks(subject: Subject) -> Iterator[Finding]:
    """Check the rows of agents that do not act: no flag, no reward, zero observations, and no world without agents."""
    env = subject.env
    for moment in walk(env, subject.seed, subject.num_steps):
        ended = (env.terminals | env.truncations) if moment.step else np.zeros(env.num_agents, bool)
        finding = (
            _dead_row_problem(env, moment.previous_masks, ended, moment.step)
            or _left_without_flag(env, moment.previous_masks, ended, moment.step)
            or _empty_world(env, subject.agents_per_world, moment.step)
        )
        if finding is not None:
            yield finding
            return


def _dead_row_problem(
    env: PufferEnv, previous: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_], step: int
) -> Finding | None:
    if step and (ended & ~previous).any():
        row = int(np.argmax(ended & ~previous))
        return Finding(
            "masks",
            "error",
            f"a row whose mask was False must get no flag; row {row} got one at step {step}.",
            "Flag an agent once, on the step it ends; when its world ends later, only refill the row.",
        )
    if step and (env.rewards[~previous] != 0).any():
        row = int(np.flatnonzero(~previous & (env.rewards != 0))[0])
        return Finding(
            "masks",
            "error",
            f"a row whose mask was False must get no reward; row {row} got {env.rewards[row]} at step {step}.",
            "Give the reward on the step the agent ends.",
        )
    absent = ~env.masks
    if absent.any() and env.observations[absent].any():
        return Finding(
            "masks",
            "error",
            f"a row with mask False must hold a zero observation; row {int(np.flatnonzero(absent)[0])} does not at "
            f"step {step}.",
            "Zero the observation of an agent that has ended.",
        )
    return None


def _left_without_flag(
    env: PufferEnv, previous: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_], step: int
) -> Finding | None:
    left = previous & ~env.masks & ~ended
    if not step or not left.any():
        return None
    return Finding(
        "masks",
        "error",
        f"an agent that leaves must be flagged; row {int(np.argmax(left))} went from mask True to False without a flag "
        f"at step {step}.",
        "Set its terminal, or its truncation where it only leaves.",
    )


def _empty_world(env: PufferEnv, agents_per_world: int, step: int) -> Finding | None:
    empty = ~env.masks.reshape(-1, agents_per_world).any(1)
    if not empty.any():
        return None
    return Finding(
        "masks",
        "error",
        f"a world must have an agent that acts; all rows of world {int(np.argmax(empty))} have mask False at step "
        f"{step}.",
        "Reset the world in the same step in which its last agent ends, with mask True in all rows.",
    )


def check_action_mask(subject: Subject) -> Iterator[Finding]:
    """Check that every agent that acts has an allowed choice."""
    env = subject.env
    if env.action_mask is None:
        return
    starts = np.concatenate([[0], np.cumsum(action_nvec(env.single_action_space))[:-1]])
    for moment in walk(env, subject.seed, subject.num_steps):
        allowed = np.logical_or.reduceat(env.action_mask, starts, axis=1)
        stuck = env.masks & ~allowed.all(1)
        if stuck.any():
            yield Finding(
                "action_mask",
                "error",
                f"an agent that acts must have an allowed choice; row {int(np.argmax(stuck))} has none at step "
                f"{moment.step}.",
                "Allow at least one choice of each head.",
            )
            return
