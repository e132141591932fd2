"""What a wrapper of observations needs of the env it wraps."""

from __future__ import annotations

from typing import Any

from puffer_spaces import PufferEnv, as_puffer_env


def box_env(env: Any, wrapper: str) -> PufferEnv:
    """Return the env, whose observation is one Box.

    Raises:
        TypeError: The observation is a row of several leaves, or of choices.
    """
    inner = as_puffer_env(env)
    leaves = inner.observation_layout.leaves
    if len(leaves) != 1 or leaves[0].path or leaves[0].is_discrete:
        raise TypeError(
            f"{wrapper} takes observations of one Box; got {inner.original_observation_space}. "
            "Wrap the foreign env before it is emulated, where its parts still have names."
        )
    return inner
