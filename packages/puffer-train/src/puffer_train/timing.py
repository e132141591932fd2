"""Where the time of a run goes, in numbers and in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

STAGES = ("env", "policy", "copy", "train")
"""What is timed: stepping environments and waiting for them, choosing actions, moving rows, the update."""

_WORDS = {
    "train": "in the update",
    "policy": "in the policy's forward pass",
    "env": "in the environments",
    "copy": "in moving rows",
    "other": "elsewhere",
}
_SHOWN_FROM = 0.005


def speeds(agent_steps: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """Return agent steps per second that parts of the work would reach if the rest took no time.

    Args:
        agent_steps: Steps of the interval.
        seconds: Of each stage.

    Returns:
        `env`: stepping environments; `vector`: that and moving rows in and out; `rollout`: that and the policy;
        `train`: the update. A part that took no time is left out.
    """
    vector = seconds["env"] + seconds["copy"]
    parts = {"env": seconds["env"], "vector": vector, "rollout": vector + seconds["policy"], "train": seconds["train"]}
    return {name: agent_steps / part for name, part in parts.items() if part > 0.0}


def with_other(seconds: Mapping[str, float], total_s: float) -> dict[str, float]:
    """Return the stages' seconds, and as `other` what is left of the whole time."""
    return {**seconds, "other": max(0.0, total_s - sum(seconds.values()))}


def where_time_goes(row: Mapping[str, float]) -> str:
    """Return a sentence such as `62 % of the time in the update, 20 % in the policy's forward pass, ...`.

    Args:
        row: What `mean_and_log` returns, or its entries `performance/<stage>` alone.

    Returns:
        The sentence, largest share first and what is elsewhere last; nothing if no time is in the row.
    """
    seconds = {name: row.get(f"performance/{name}", 0.0) for name in _WORDS}
    total = sum(seconds.values())
    shares = {name: value / total for name, value in seconds.items()} if total > 0.0 else {}
    names = sorted(shares, key=lambda name: (name == "other", -shares[name]))
    parts = [f"{100 * shares[name]:.0f} % {_WORDS[name]}" for name in names if shares[name] >= _SHOWN_FROM]
    if not parts:
        return ""
    first, *others = parts
    return ", ".join([first.replace(" %", " % of the time", 1), *others]) + "."
