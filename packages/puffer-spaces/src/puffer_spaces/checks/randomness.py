"""Checks of randomness: seeds decide everything, each world has its own, and global random state is left alone."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from puffer_spaces.checks.walk import ActionSampler, Finding, Subject, digest, walk
from puffer_spaces.env import PufferEnv
from puffer_spaces.resets import reset_arguments, reset_env

_NUM_SEEDS = 4
_WALK_OF_WORLDS = 64
_TOKEN = 0x9A5EED
"""A state that no env would set, so that seeding is noticed as well as drawing."""


def check_global_random_state(subject: Subject) -> Iterator[Finding]:
    """Check that neither Python's nor NumPy's (nor torch's) global generator is drawn from or seeded."""
    env = subject.env
    random.seed(_TOKEN)
    np.random.seed(_TOKEN)
    before = _global_states()
    if subject.create is not None:
        subject.create().close()
    for _ in walk(env, subject.seed, _WALK_OF_WORLDS):
        pass
    reset_env(env, subject.seed + 1)
    touched = [name for name, state in _global_states().items() if not _equal(before[name], state)]
    if touched:
        yield Finding(
            "global_random_state",
            "error",
            f"global random state must be left alone; {subject.name} changed that of {' and '.join(touched)}.",
            "Draw from a generator of the env's own: np.random.default_rng(seed).",
        )


@contextlib.contextmanager
def kept_global_states() -> Iterator[None]:
    """Bring the global generators back to where they were."""
    states = _global_states()
    try:
        yield
    finally:
        _restore(states)


def _global_states() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state()}
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.random.get_rng_state().numpy()
    return states


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    np.random.set_state(states["numpy.random"])
    if "torch" in states:
        torch = sys.modules["torch"]
        torch.random.set_rng_state(torch.from_numpy(states["torch"]))


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(two) and all(_equal(a, b) for a, b in zip(one, two, strict=True))
    return bool(np.array_equal(one, two))


def check_determinism(subject: Subject) -> Iterator[Finding]:
    """Check that a seed and the same actions give the same rows again, in this object and in a fresh one."""
    env = subject.env
    expected = [digest(env) for _ in walk(env, subject.seed, subject.num_steps)]
    again = [digest(env) for _ in walk(env, subject.seed, subject.num_steps)]
    where = "the second time"
    if again == expected and subject.create is not None:
        other = subject.create()
        try:
            again = [digest(other) for _ in walk(other, subject.seed, subject.num_steps)]
        finally:
            other.close()
        where = "in a second object"
    different = [step for step, (one, two) in enumerate(zip(expected, again, strict=True)) if one != two]
    if different:
        subject.is_deterministic = False
        yield Finding(
            "determinism",
            "error",
            f"equal seeds and actions must give equal rows; {subject.name} differed {where} from "
            f"{'the reset' if not different[0] else f'step {different[0]}'} on.",
            "Start every generator from the seed in reset, and let reset set all state that step reads.",
        )


def check_seeds_differ(subject: Subject) -> Iterator[Finding]:
    """Check that another seed gives another world, and that worlds of one object differ."""
    env = subject.env
    walks = []
    starts = []
    for index in range(_NUM_SEEDS):
        moments = []
        for moment in walk(env, subject.seed + index, _WALK_OF_WORLDS):
            moments.append(digest(env))
            if not moment.step:
                starts.append(env.observations.copy())
        walks.append(moments)
    if all(moments == walks[0] for moments in walks):
        yield Finding(
            "seeds_differ",
            "warning",
            f"{_NUM_SEEDS} seeds gave {subject.name} the same rows for {_WALK_OF_WORLDS} steps.",
            "If the env has anything random, draw it from a generator that reset(seed=) starts.",
        )
        return
    starts_are_random = any(not np.array_equal(start, starts[0]) for start in starts)
    by_world = starts[0].reshape(env.num_envs, -1)
    if env.num_envs > 1 and starts_are_random and all((start == start[:1]).all() for start in _by_world(starts, env)):
        yield Finding(
            "seeds_differ",
            "error",
            f"each of the {len(by_world)} worlds must have a seed of its own; all of {subject.name} start alike, and "
            "other seeds start otherwise.",
            "Seed world w with world_seed(seed, first_world + w).",
        )


def _by_world(starts: list[Any], env: PufferEnv) -> list[Any]:
    return [start.reshape(env.num_envs, -1) for start in starts]


def check_unseeded_reset(subject: Subject) -> Iterator[Finding]:
    """Check that a reset without a seed works and continues the random sequence."""
    env = subject.env
    starts = []
    for index in range(_NUM_SEEDS):
        reset_env(env, subject.seed + index)
        starts.append(env.observations.tobytes())
    if reset_arguments(type(env)).seed:
        try:
            env.reset(seed=None)
        except Exception as error:
            yield Finding(
                "unseeded_reset",
                "error",
                f"reset(seed=None) must continue the random sequence; {subject.name} raised {type(error).__name__}: "
                f"{error}.",
                "Reseed only where a seed is given.",
            )
            return
    reset_env(env, None)
    one = env.observations.tobytes()
    reset_env(env, None)
    two = env.observations.tobytes()
    reset_env(env, None)
    if len(set(starts)) == _NUM_SEEDS and one == two == env.observations.tobytes():
        yield Finding(
            "unseeded_reset",
            "warning",
            f"reset without a seed must continue the random sequence; {subject.name} started alike three times.",
            "Reseed only where a seed is given.",
        )


def check_world_numbers(subject: Subject) -> Iterator[Finding]:
    """Check that a world is the same whichever object holds it, and at whichever place in it."""
    env = subject.env
    if not reset_arguments(type(env)).first_world:
        if env.num_envs > 1:
            yield Finding(
                "world_numbers",
                "warning",
                f"reset of {subject.name} takes no first_world: its runs repeat only for the same split into objects.",
                "Give it first_world=0, and seed world w with world_seed(seed, first_world + w).",
            )
        return
    if env.num_envs == 1 or env.action_mask is not None or not subject.is_deterministic:
        return
    shift = subject.agents_per_world
    overlap = int(env.num_agents) - shift
    expected = [digest(env, slice(shift, None)) for _ in _walk_from(env, subject.seed, 0, shift)]
    seen = [digest(env, slice(0, overlap)) for _ in _walk_from(env, subject.seed, 1, shift)]
    different = [step for step, (one, two) in enumerate(zip(expected, seen, strict=True)) if one != two]
    if different:
        yield Finding(
            "world_numbers",
            "error",
            f"world first_world + w must depend on that number alone; worlds of {subject.name} differ when another "
            f"object holds them, from {'the reset' if not different[0] else f'step {different[0]}'} on.",
            "Seed world w with world_seed(seed, first_world + w) and let no worlds share a generator.",
        )


def _walk_from(env: PufferEnv, seed: int, first_world: int, shift: int) -> Iterator[None]:
    """Walk with actions that depend on the number of the world."""
    sampler = ActionSampler(env, seed, extra_rows=shift)
    first_row = first_world * shift
    reset_env(env, seed, first_world)
    yield None
    for _ in range(_WALK_OF_WORLDS):
        env.actions[...] = sampler.draw()[first_row : first_row + env.num_agents]
        env.step(env.actions)
        yield None
