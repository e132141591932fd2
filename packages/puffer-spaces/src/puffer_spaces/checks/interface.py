"""Checks of the face of an env: spaces, results, buffers, closing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from puffer_spaces.buffers import Buffers
from puffer_spaces.checks.walk import ActionSampler, Finding, Subject, digest, walk, walk_on
from puffer_spaces.copied import CopiedEnv
from puffer_spaces.env import PufferEnv
from puffer_spaces.resets import reset_arguments
from puffer_spaces.spaces import action_nvec

_ARRAYS = ("observations", "actions", "rewards", "terminals", "truncations", "masks", "final_observations")
_SHORT_WALK = 32


def check_spaces(subject: Subject) -> Iterator[Finding]:
    """Check that bounds are ordered and that the action mask fits the choices."""
    env = subject.env
    for name in ("single_observation_space", "single_action_space"):
        space = getattr(env, name)
        if isinstance(space, spaces.Box) and not np.all(space.low <= space.high):
            yield Finding("spaces", "error", f"{name} must have low <= high; got {space}.", "Mend its bounds.")
    if env.action_mask_size:
        if isinstance(env.single_action_space, spaces.Box):
            yield Finding(
                "spaces",
                "error",
                f"action_mask_size must be 0 for a Box action space; got {env.action_mask_size}.",
                "Only choices can be masked.",
            )
        elif env.action_mask_size != int(action_nvec(env.single_action_space).sum()):
            yield Finding(
                "spaces",
                "error",
                f"action_mask_size must be the number of choices, {int(action_nvec(env.single_action_space).sum())}; "
                f"got {env.action_mask_size}.",
                "Set action_mask_size = sum(nvec).",
            )


def check_results(subject: Subject) -> Iterator[Finding]:
    """Check what `reset` and `step` return: the bound arrays and a list of dicts."""
    env = subject.env
    takes = reset_arguments(type(env))
    if not takes.seed:
        yield Finding(
            "results",
            "warning",
            f"reset of {subject.name} takes no seed: its runs cannot be repeated.",
            "Give it the argument seed=None.",
        )
    arguments: dict[str, Any] = {"seed": subject.seed} if takes.seed else {}
    first = env.reset(**arguments)
    if not (isinstance(first, tuple) and len(first) == 2):
        yield Finding(
            "results",
            "error",
            f"reset must return (observations, infos); got {type(first).__name__}.",
            "Return self.observations and a list of dicts.",
        )
        return
    yield from _other_array("reset", 0, first[0], env)
    if not isinstance(first[1], list):
        yield _other_infos("reset", first[1])
    ActionSampler(env, 0).draw_into(env)
    result = env.step(env.actions)
    if not (isinstance(result, tuple) and len(result) == 5):
        yield Finding(
            "results",
            "error",
            f"step must return 5 values; got {type(result).__name__}"
            f"{f' of length {len(result)}' if isinstance(result, tuple) else ''}.",
            "Return (self.observations, self.rewards, self.terminals, self.truncations, infos).",
        )
        return
    for index in range(4):
        yield from _other_array("step", index, result[index], env)
    if not isinstance(result[4], list) or not all(isinstance(info, dict) for info in result[4]):
        yield _other_infos("step", result[4])


def _other_array(method: str, index: int, array: object, env: PufferEnv) -> Iterator[Finding]:
    name = ("observations", "rewards", "terminals", "truncations")[index]
    bound = getattr(env.buffers, name)
    if array is not bound and not (isinstance(array, np.ndarray) and np.may_share_memory(array, bound)):
        yield Finding(
            "buffers",
            "error",
            f"{method} must return the bound array of {name}; got another {type(array).__name__}.",
            f"Write into self.{name}[...] and return self.{name}.",
        )


def _other_infos(method: str, infos: object) -> Finding:
    return Finding(
        "results",
        "error",
        f"infos of {method} must be a list of dicts; got {type(infos).__name__}.",
        "Return [] when there is nothing to say.",
    )


def check_buffers(subject: Subject) -> Iterator[Finding]:
    """Check that the env keeps the arrays it was bound to, and writes into them."""
    env = subject.env
    for _ in walk(env, subject.seed, _SHORT_WALK):
        pass
    for name in _ARRAYS:
        if getattr(env, name) is not getattr(env.buffers, name):
            yield Finding(
                "buffers",
                "warning" if name == "actions" else "error",  # step is given the actions, so that one is harmless
                f"self.{name} must stay the bound array; {subject.name} put another one in its place.",
                f"Write self.{name}[...] = values instead of self.{name} = values.",
            )


def check_rebinding(subject: Subject) -> Iterator[Finding]:
    """Check that an env brought to other buffers leaves the old ones alone."""
    env, old = subject.env, subject.env.buffers
    if old is None or not subject.is_deterministic:
        return
    new = Buffers.allocate(env.single_observation_space, env.single_action_space, env.num_agents, env.action_mask_size)
    expected = [digest(env) for _ in walk(env, subject.seed, _SHORT_WALK)]
    if env.rebinds_buffers:
        env.set_buffers(new)
        moved: PufferEnv = env
    elif subject.create is not None and subject.takes_buf:
        moved = subject.create(buf=new)
    else:
        return
    before = {name: getattr(old, name).tobytes() for name in _ARRAYS}
    seen = [digest(moved) for _ in walk(moved, subject.seed, _SHORT_WALK)]
    touched = [name for name in _ARRAYS if getattr(old, name).tobytes() != before[name]]
    if isinstance(moved, CopiedEnv):
        yield Finding(
            "rebinding",
            "warning",
            f"{subject.name} takes buf and does not use it: its rows are copied at each step.",
            "Pass buf to super().__init__(buf).",
        )
    if moved is env:
        env.set_buffers(old)
        cause = "set_buffers must rebind every pointer and view"
    else:
        moved.close()
        cause = "an env built with buf= must use those arrays"
    if seen != expected or touched:
        where = f"wrote to the old {', '.join(touched)}" if touched else "did not write what it wrote before"
        yield Finding(
            "rebinding",
            "error",
            f"{cause}; {subject.name} {where} after it was bound anew.",
            "Pass buf to super().__init__(buf) and take pointers from self.observations and its fellows after it.",
        )


def check_actions_unchanged(subject: Subject) -> Iterator[Finding]:
    """Check that the actions array is only read."""
    env = subject.env
    given: list[bytes] = []
    for moment in walk(env, subject.seed, _SHORT_WALK, lambda env: given.append(env.actions.tobytes())):
        if moment.step and env.actions.tobytes() != given[-1]:
            yield Finding(
                "actions_unchanged",
                "error",
                f"step must leave self.actions as they are; {subject.name} changed them at step {moment.step}.",
                "Clip or convert a copy.",
            )
            return


def check_snapshots(subject: Subject) -> Iterator[Finding]:
    """Check that `set_state` brings back exactly what followed `get_state`."""
    env = subject.env
    if not env.has_state:
        if type(env).get_state is not PufferEnv.get_state and type(env.driver_env) is type(env):
            yield Finding(
                "snapshots",
                "warning",
                f"{subject.name} defines get_state, but has_state is False, so nobody will use it.",
                "Set has_state = True.",
            )
        return
    for _ in walk(env, subject.seed, 20):
        pass
    state = env.get_state()
    if not isinstance(state, bytes):
        yield Finding(
            "snapshots", "error", f"get_state must return bytes; got {type(state).__name__}.", "Serialise the state."
        )
        return
    kept = {name: array.copy() for name in _ARRAYS if (array := getattr(env, name)) is not None}
    steps = range(21, 21 + _SHORT_WALK)
    expected = [(digest(env), moment.records.tobytes()) for moment in walk_on(env, ActionSampler(env, 7), steps)]
    env.set_state(state)
    for name, array in kept.items():
        getattr(env, name)[...] = array
    seen = [(digest(env), moment.records.tobytes()) for moment in walk_on(env, ActionSampler(env, 7), steps)]
    different = [step for step, one, two in zip(steps, expected, seen, strict=True) if one != two]
    if different:
        yield Finding(
            "snapshots",
            "error",
            f"set_state must bring back the moment of get_state; {subject.name} went another way "
            f"{different[0] - 20} steps after it.",
            "Keep everything that step reads: game state, random generators, counts of the running episodes.",
        )


def check_render(subject: Subject) -> Iterator[Finding]:
    """Check that `render_mode="rgb_array"` gives a picture."""
    if subject.env.render_mode != "rgb_array":
        return
    for _ in itertools.islice(walk(subject.env, subject.seed, 1), 2):
        pass
    frame = subject.env.render()
    is_picture = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    if not is_picture:
        got = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        yield Finding(
            "render",
            "error",
            f'render must return uint8 (height, width, 3) in mode "rgb_array"; got {got}.',
            "Draw one.",
        )


def check_close(subject: Subject) -> Iterator[Finding]:
    """Check that `close` may be called twice."""
    subject.env.close()
    try:
        subject.env.close()
    except Exception as error:
        yield Finding(
            "close",
            "error",
            f"close must be harmless the second time; {subject.name} raised {type(error).__name__}: {error}.",
            "Remember that it is closed and return.",
        )
