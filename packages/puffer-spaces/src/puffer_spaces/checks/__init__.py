"""`check_env`: does an environment keep the contract of `PufferEnv`? One function per property."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from puffer_spaces.adapt import as_puffer_env
from puffer_spaces.buffers import Buffers
from puffer_spaces.checks import episode_ends, interface, randomness, values
from puffer_spaces.checks.walk import Finding, Subject
from puffer_spaces.env import PufferEnv
from puffer_spaces.errors import CheckError

__all__ = ["CHECKS", "Finding", "check_env"]

Check = Callable[[Subject], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "spaces": interface.check_spaces,
    "results": interface.check_results,
    "buffers": interface.check_buffers,
    "global_random_state": randomness.check_global_random_state,
    "determinism": randomness.check_determinism,
    "seeds_differ": randomness.check_seeds_differ,
    "unseeded_reset": randomness.check_unseeded_reset,
    "world_numbers": randomness.check_world_numbers,
    "rewards": values.check_rewards,
    "observations": values.check_observations,
    "masks": values.check_masks,
    "action_mask": values.check_action_mask,
    "actions_unchanged": interface.check_actions_unchanged,
    "flags_cleared": episode_ends.check_flags_cleared,
    "autoreset": episode_ends.check_autoreset,
    "final_observations": episode_ends.check_final_observations,
    "silent_resets": episode_ends.check_silent_resets,
    "episode_records": episode_ends.check_episode_records,
    "snapshots": interface.check_snapshots,
    "rebinding": interface.check_rebinding,
    "render": interface.check_render,
    "close": interface.check_close,
}
"""The checks by the name of their property, in the order they run."""


def check_env(
    env: Any,
    *,
    seed: int = 0,
    num_steps: int = 300,
    raise_errors: bool = True,
    skip: tuple[str, ...] = (),
    close: bool = True,
) -> list[Finding]:
    """Check an environment against the contract of `PufferEnv`, by walking through it with random actions.

    Args:
        env: Whatever `as_puffer_env` takes. Give a creator or an id rather than an object where you can: then a second
            object is made for comparison.
        seed: Seed of the walks.
        num_steps: Steps of each walk. A walk must see some episodes end for the most useful checks.
        raise_errors: Raise on the first finding that breaks the contract.
        skip: Names of checks (keys of `CHECKS`) to leave out.
        close: Close the env twice at the end, as the last check. False leaves an object as it is.

    Returns:
        All findings: errors (when they are not raised), warnings and notes.

    Raises:
        CheckError: The env breaks the contract; the message says what is wrong and how to mend it.
        ValueError: `skip` names no check.
    """
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise ValueError(f"skip must name checks; got {sorted(unknown)}. They are {', '.join(CHECKS)}.")
    with randomness.kept_global_states():
        return _check(env, seed, num_steps, raise_errors, skip, close)


def _check(
    env: Any, seed: int, num_steps: int, raise_errors: bool, skip: tuple[str, ...], close: bool
) -> list[Finding]:
    findings: list[Finding] = []
    subject, failure = _make_subject(env, seed, num_steps)
    if subject is None:
        return _report(failure, findings, raise_errors)
    for name, check in CHECKS.items():
        if name in skip or (name == "close" and not close):
            continue
        try:
            for finding in check(subject):
                _report((finding, None), findings, raise_errors)
        except CheckError:
            if close and subject.create is not None:
                subject.env.close()
            raise
        except Exception as error:
            _report((_crash(name, subject.name, error), error), findings, raise_errors)
            break
    return findings


def _make_subject(env: Any, seed: int, num_steps: int) -> tuple[Subject | None, tuple[Finding, Exception | None]]:
    is_object = isinstance(env, PufferEnv) or (not callable(env) and not isinstance(env, str))
    create: Callable[..., PufferEnv] | None = None
    takes_buf = False
    if not is_object:

        def create(buf: Buffers | None = None) -> PufferEnv:
            return as_puffer_env(env, buf=buf)

        takes_buf = _names_buf(env)
    try:
        adapted = as_puffer_env(env)
    except Exception as error:
        return None, (_crash("construction", getattr(env, "__name__", repr(env)), error), error)
    nothing = Finding("construction", "note", "the env was made.", "")
    return Subject(adapted, create, takes_buf, seed, num_steps), (nothing, None)


def _names_buf(creator: Any) -> bool:
    try:
        return "buf" in inspect.signature(creator).parameters
    except (TypeError, ValueError):
        return False


def _crash(name: str, env_name: str, error: Exception) -> Finding:
    message = f"{env_name} raised {type(error).__name__}: {str(error).removesuffix('.')}."
    return Finding(name, "error", message, "Mend this first; the checks after it were not made.")


def _report(found: tuple[Finding, Exception | None], findings: list[Finding], raise_errors: bool) -> list[Finding]:
    finding, cause = found
    if finding not in findings:
        findings.append(finding)
    if finding.severity == "error" and raise_errors:
        raise CheckError(str(finding)) from cause
    return findings
