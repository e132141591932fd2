"""Checks of what happens where an episode ends: flags, autoreset in the same step, final observations, records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces.checks.walk import Finding, Subject, walk
from puffer_spaces.env import PufferEnv
from puffer_spaces.resets import reset_env

_NUM_STARTS = 32
_MAX_ROWS = 64
_MAX_ELEMENTS = 1024
_MANY_ENDS = 3
_POISON = 0xA5


def check_flags_cleared(subject: Subject) -> Iterator[Finding]:
    """Check that no reward or flag of the step before is left: what stands there must not change what comes out."""
    if not subject.is_deterministic:
        return
    env = subject.env

    def leave_traces(env: PufferEnv) -> None:
        env.rewards.fill(7)
        env.terminals.fill(True)
        env.truncations.fill(True)

    def values() -> dict[str, npt.NDArray[Any]]:
        return {name: getattr(env, name).copy() for name in ("rewards", "terminals", "truncations")}

    clean = [values() for _ in walk(env, subject.seed, subject.num_steps)]
    for moment in walk(env, subject.seed, subject.num_steps, leave_traces):
        if not moment.step:
            continue
        stale = [name for name, array in values().items() if array.tobytes() != clean[moment.step][name].tobytes()]
        if stale:
            yield Finding(
                "flags_cleared",
                "error",
                f"{', '.join(stale)} must be cleared at the start of each step; {subject.name} kept what stood "
                f"there at step {moment.step}.",
                "Zero rewards, terminals and truncations first (clears_flags = False lets the base class do it).",
            )
            return


def check_autoreset(subject: Subject) -> Iterator[Finding]:
    """Check that a world starts again in the very step that ends it."""
    env = subject.env
    walked = walk(env, subject.seed, subject.num_steps)
    flags = np.array([(env.terminals | env.truncations)[:_MAX_ROWS] for moment in walked if moment.step])
    if not flags.any():
        yield Finding(
            "autoreset",
            "note",
            f"no episode of {subject.name} ended within {subject.num_steps} random steps: ends were not checked.",
            "Pass num_steps=, or parameters that make episodes short.",
        )
        return
    row = _row_that_stays_ended(flags)
    if row is not None:
        yield Finding(
            "autoreset",
            "error",
            f"an env must reset its worlds itself; after its first end, row {row} of {subject.name} is flagged at "
            "each step.",
            "On the step that ends an episode, reset the world and write its first observation.",
        )
        return
    yield from _late_reset(subject)


def _row_that_stays_ended(flags: npt.NDArray[np.bool_]) -> int | None:
    """Return a row whose first episode took three steps or more and that is flagged at each step after it."""
    num_steps = len(flags)
    for row in np.flatnonzero(flags.any(0)):
        first = int(np.argmax(flags[:, row]))
        if first >= 2 and num_steps - first > 10 and flags[first:, row].all():
            return int(row)
    return None


def _late_reset(subject: Subject) -> Iterator[Finding]:
    env = subject.env
    starts = _Starts(env, subject.seed)
    at_end, one_later, num_ends = 0, 0, 0
    waiting = np.zeros(env.num_agents, bool)
    for moment in walk(env, subject.seed, subject.num_steps):
        if not moment.step:
            continue
        for row in np.flatnonzero(waiting)[:_MAX_ROWS]:
            one_later += starts.has(env.observations[row])
        ended = (env.terminals | env.truncations) & env.masks
        waiting = np.zeros(env.num_agents, bool)
        for row in np.flatnonzero(ended)[:_MAX_ROWS]:
            num_ends += 1
            at_end += starts.has(env.observations[row])
            waiting[row] = True
        if num_ends >= _MAX_ROWS and not waiting.any():
            break
    if num_ends >= _MANY_ENDS and at_end == 0 and one_later >= 0.8 * (num_ends - waiting.sum()):
        yield Finding(
            "autoreset",
            "error",
            f"observations of the step that ends an episode must be the first of the next one; in {subject.name} that "
            f"one comes a step later (at {num_ends} of {num_ends} ends).",
            "Reset in the same step: old observation to final_observations, new one to observations.",
        )


class _Starts:
    """First observations of episodes, to tell whether another observation could be one."""

    def __init__(self, env: PufferEnv, seed: int) -> None:
        size = env.observations[0].size
        self._seen = np.linspace(0, size - 1, min(size, _MAX_ELEMENTS)).astype(np.int64)
        rows = []
        for index in range(_NUM_STARTS):
            reset_env(env, seed + index)
            rows.append(env.observations[env.masks][:8].reshape(-1, size)[:, self._seen].astype(np.float64))
        samples = np.concatenate(rows)
        low, high = samples.min(0), samples.max(0)
        margin = 0.5 * (high - low)
        self._low, self._high = low - margin, high + margin
        self._allowed = max(self._num_outside_others(samples, index) for index in range(len(samples)))

    @staticmethod
    def _num_outside_others(samples: npt.NDArray[np.float64], index: int) -> int:
        others = np.delete(samples, index, axis=0)
        if not len(others):
            return 0
        low, high = others.min(0), others.max(0)
        margin = 0.5 * (high - low)
        return int(((samples[index] < low - margin) | (samples[index] > high + margin)).sum())

    def has(self, observation: npt.NDArray[Any]) -> bool:
        """Return whether an observation is no further from the samples than they are from each other."""
        flat = observation.reshape(-1)[self._seen].astype(np.float64)
        return int(((flat < self._low) | (flat > self._high)).sum()) <= self._allowed


def check_final_observations(subject: Subject) -> Iterator[Finding]:
    """Check that the last observation of an episode is kept where the episode ends."""
    env = subject.env
    if not env.has_final_observations:
        yield Finding(
            "final_observations",
            "warning",
            f"{subject.name} keeps no final observations: a learner cannot bootstrap its truncated episodes.",
            "Write self.final_observations before the reset, and set has_final_observations = True.",
        )
        return
    num_ends = num_equal = num_moved = 0
    previous = env.observations.copy()

    def poison(env: PufferEnv) -> None:
        previous[...] = env.observations
        env.final_observations.view(np.uint8).fill(_POISON)

    for moment in walk(env, subject.seed, subject.num_steps, poison):
        if not moment.step:
            continue
        for row in np.flatnonzero(env.terminals | env.truncations)[:_MAX_ROWS]:
            final = env.final_observations[row]
            if (np.ascontiguousarray(final).view(np.uint8) == _POISON).all():
                yield Finding(
                    "final_observations",
                    "error",
                    f"final_observations must hold the last observation where an episode ends; {subject.name} "
                    f"wrote none in row {row} at step {moment.step}.",
                    "Copy the last observation there before the reset.",
                )
                return
            num_ends += 1
            num_equal += bool(env.masks[row]) and np.array_equal(final, env.observations[row])
            num_moved += not np.array_equal(previous[row], env.observations[row])
    if num_ends >= _MANY_ENDS and num_equal == num_ends and num_moved == num_ends:
        yield Finding(
            "final_observations",
            "warning",
            f"final_observations of {subject.name} equal the new observations at all {num_ends} ends.",
            "Copy the last observation before the reset overwrites it.",
        )


def check_silent_resets(subject: Subject) -> Iterator[Finding]:
    """Check that no world starts again without a flag."""
    env = subject.env
    num_flags = num_reports = num_returns = 0
    first: npt.NDArray[Any] | None = None
    has_left = np.zeros(env.num_agents, bool)
    for moment in walk(env, subject.seed, subject.num_steps):
        if first is None:
            first = env.observations.copy()
            continue
        ended = env.terminals | env.truncations
        num_flags += int(ended.sum())
        num_reports += len(moment.records) + sum("episode_length" in info or "episode" in info for info in moment.infos)
        at_start = (env.observations == first).reshape(env.num_agents, -1).all(1)
        num_returns += int((at_start & has_left & ~ended).sum())
        has_left = ~at_start & ~ended | has_left & ~at_start
    if num_reports and not num_flags:
        yield Finding(
            "silent_resets",
            "error",
            f"an episode that ends must be flagged; {subject.name} reported {num_reports} finished episodes in "
            f"{subject.num_steps} steps and set no terminal or truncation.",
            "Set self.terminals or self.truncations on the step that ends it, and do not clear them in reset.",
        )
    elif num_returns >= _MANY_ENDS * env.num_agents and not num_flags:
        yield Finding(
            "silent_resets",
            "warning",
            f"{subject.name} came back to its first observation {num_returns} times in {subject.num_steps} steps and "
            "set no terminal or truncation.",
            "If these are resets, set a flag on the step that ends the episode.",
        )


def check_episode_records(subject: Subject) -> Iterator[Finding]:
    """Check each episode record against the flags and the summed rewards."""
    env = subject.env
    returns = np.zeros(env.num_agents)
    lengths = np.zeros(env.num_agents, np.int64)
    num_flags = num_records = 0
    for moment in walk(env, subject.seed, subject.num_steps):
        if not moment.step:
            continue
        returns[moment.previous_masks] += env.rewards[moment.previous_masks]
        lengths[moment.previous_masks] += 1
        ended = env.terminals | env.truncations
        rows = moment.records["world"] * subject.agents_per_world + moment.records["agent"]
        problem = _record_problem(moment.records, rows, moment.step, ended, returns, lengths)
        if problem is None and len(rows) and set(rows.tolist()) != set(np.flatnonzero(ended).tolist()):
            missing = sorted(set(np.flatnonzero(ended).tolist()) - set(rows.tolist()))
            problem = f"rows {missing} are flagged at step {moment.step} and have none"
        num_flags += int(ended.sum())
        num_records += len(rows)
        if problem is None and num_records and not len(rows) and ended.any():
            problem = f"row {int(np.argmax(ended))} is flagged at step {moment.step} and has none"
        if problem is not None:
            yield Finding(
                "episode_records",
                "error",
                f"each flag must have one record with the summed rewards and steps of its episode; {problem}.",
                "Append (step, world, agent, return, length) where a flag is set, before the sums restart.",
            )
            return
        returns[ended] = 0
        lengths[ended] = 0
    if num_flags and not num_records:
        yield Finding(
            "episode_records",
            "note",
            f"{subject.name} keeps no episode records; its infos are the only statistics.",
            "Keep them in a puffer_spaces.Episodes and drain it in episodes().",
        )


def _record_problem(
    records: npt.NDArray[np.void],
    rows: npt.NDArray[np.int64],
    step: int,
    ended: npt.NDArray[np.bool_],
    returns: npt.NDArray[np.float64],
    lengths: npt.NDArray[np.int64],
) -> str | None:
    for record, row in zip(records, rows.tolist(), strict=True):
        if not 0 <= row < len(ended):
            return f"a record of step {step} names world {record['world']}, agent {record['agent']}, which do not exist"
        if not ended[row]:
            return f"row {row} has a record at step {step} and no flag"
        if record["step"] != step:
            return f"a record of step {step} says step {record['step']}"
        if record["episode_length"] != lengths[row]:
            return f"row {row} says length {record['episode_length']} at step {step}, and stepped {lengths[row]} times"
        tolerance = 1e-4 * max(1.0, abs(returns[row])) + 1e-6 * lengths[row]
        if not abs(record["episode_return"] - returns[row]) <= tolerance:
            return f"row {row} says return {record['episode_return']} at step {step}, and got {returns[row]}"
    return None
