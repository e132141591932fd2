"""Which agent of its world each row holds, for policies that tell agents apart."""

from __future__ import annotations

from typing import Any

import torch


def agents_per_world(vec: Any) -> int:
    """Return how many rows of a vector env belong to one world, padding included; all worlds have as many."""
    return int(vec.num_agents // vec.num_envs)


def number_arguments(policy: Any, numbers: torch.Tensor, rows: Any = slice(None)) -> tuple[torch.Tensor, ...]:
    """Return what the calls of an adapted policy get behind their other arguments.

    Args:
        policy: Takes numbers of agents if its `takes_agent_ids` says so.
        numbers: int64 (num_agents,), the number of each row's agent in its world, from 0.
        rows: Those that the call is about, an index.

    Returns:
        The numbers, or nothing.
    """
    return (numbers[rows],) if getattr(policy, "takes_agent_ids", False) else ()
