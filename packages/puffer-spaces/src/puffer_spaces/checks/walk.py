"""What the checks share: a subject, the findings about it, and a seeded random walk through it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces.env import PufferEnv
from puffer_spaces.resets import list_of_infos, reset_env
from puffer_spaces.spaces import action_nvec, joint_space

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        check: Name of the property, such as "flags_cleared".
        severity: "error" breaks the contract, "warning" is allowed and costs something, "note" says what could not be
            checked.
        message: What is wrong, with values.
        fix: How to mend it.
    """

    check: str
    severity: Severity
    message: str
    fix: str

    def __str__(self) -> str:
        return f"[{self.severity}] {self.check}: {self.message} {self.fix}".rstrip()


@dataclass
class Subject:
    """The env under examination, and how long to walk through it.

    Attributes:
        env: The env.
        create: Makes another one like it, bound to buffers if some are given; None when an object was passed.
        takes_buf: Whether the creator's signature names `buf`.
        seed: Seed of the walks.
        num_steps: Steps of a walk.
        is_deterministic: Set by the first check of randomness; some later ones compare two walks.
    """

    env: PufferEnv
    create: Callable[..., PufferEnv] | None
    takes_buf: bool
    seed: int
    num_steps: int
    is_deterministic: bool = True

    @property
    def name(self) -> str:
        """Name of the env's class."""
        return type(self.env.driver_env).__name__

    @property
    def agents_per_world(self) -> int:
        """Rows of one world."""
        return int(self.env.num_agents) // int(self.env.num_envs)


@dataclass
class Moment:
    """What an env gave at one moment of a walk; `step` 0 is the reset. Arrays are the env's own."""

    step: int
    result: Any
    infos: list[dict[str, Any]]
    records: npt.NDArray[np.void]
    previous_masks: npt.NDArray[np.bool_]
    """The masks that came with the observation before this step: whose transition is valid."""


def walk(
    env: PufferEnv,
    seed: int,
    num_steps: int,
    before_step: Callable[[PufferEnv], None] | None = None,
    action_seed: int = 0,
) -> Iterator[Moment]:
    """Reset an env and step it with seeded random actions, as its masks allow; yield after each."""
    actions = ActionSampler(env, action_seed)
    env.final_observations.fill(0)
    _, infos = reset_env(env, seed)
    env.episodes()
    no_records = env.episodes()
    yield Moment(0, None, infos, no_records, env.masks.copy())
    yield from walk_on(env, actions, range(1, num_steps + 1), before_step)


def walk_on(
    env: PufferEnv,
    actions: ActionSampler,
    steps: range,
    before_step: Callable[[PufferEnv], None] | None = None,
) -> Iterator[Moment]:
    """Step an env that has been reset; yield after each step."""
    for step in steps:
        masks = env.masks.copy()
        actions.draw_into(env)
        if before_step is not None:
            before_step(env)
        result = env.step(env.actions)
        infos = list_of_infos(result[4]) if isinstance(result, tuple) and len(result) == 5 else []
        yield Moment(step, result, infos, env.episodes(), masks)


class ActionSampler:
    """Draws actions for all rows of an env. Equal seeds and masks draw equal actions."""

    def __init__(self, env: PufferEnv, seed: int, extra_rows: int = 0) -> None:
        self._rng = np.random.default_rng([seed, 0x5EED])
        self._num_rows = int(env.num_agents) + extra_rows
        self._layout = env.action_layout
        self._original = None
        self._nvec = None
        if self._layout.is_mixed:
            self._original = self._layout.space
            self._original.seed(seed)
        else:
            self._joint = joint_space(env.single_action_space, self._num_rows)
            self._joint.seed(seed)
        if not isinstance(env.single_action_space, spaces.Box):
            self._nvec = action_nvec(env.single_action_space)

    def draw(self) -> npt.NDArray[Any]:
        """Return actions of all rows, masks left aside."""
        if self._original is None:
            return np.asarray(self._joint.sample())
        rows = np.zeros((self._num_rows, *self._layout.row_shape), self._layout.dtype)
        for row in rows:
            self._layout.flatten_into(self._original.sample(), row)
        return rows

    def draw_into(self, env: PufferEnv) -> None:
        """Write actions that the env's action mask allows into its rows."""
        env.actions[...] = self.draw()
        if env.action_mask is None or self._nvec is None:
            return
        choices = env.actions.reshape(len(env.actions), -1)
        first = 0
        for head, num_choices in enumerate(self._nvec):
            allowed = env.action_mask[:, first : first + num_choices]
            priority = self._rng.random(allowed.shape) * allowed
            choices[:, head] = np.where(allowed.any(1), priority.argmax(1), choices[:, head])
            first += num_choices


def digest(env: PufferEnv, rows: slice = slice(None)) -> bytes:
    """Hash what rows of an env hold: observations, rewards, flags, masks, and final observations where one is due."""
    seen = hashlib.blake2b(digest_size=16)
    for array in (env.observations, env.rewards, env.terminals, env.truncations, env.masks):
        seen.update(np.ascontiguousarray(array[rows]).tobytes())
    if env.has_final_observations:
        ended = (env.terminals | env.truncations)[rows]
        seen.update(np.ascontiguousarray(env.final_observations[rows][ended]).tobytes())
    return seen.digest()
