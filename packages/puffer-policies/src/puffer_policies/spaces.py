"""What a policy needs to know of an env."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from puffer_spaces import Layout


def env_spaces(env: Any) -> tuple[spaces.Space[Any], spaces.Space[Any], Layout, Layout | None]:
    """Return what a policy needs to know of an env, vector env or plain Gymnasium env.

    Returns:
        One agent's observation and action space, as rows of the buffers have them, the layout of observations and that
        of actions, if the env has one.

    Raises:
        TypeError: The object has no spaces.
    """
    observation_space = getattr(env, "single_observation_space", getattr(env, "observation_space", None))
    action_space = getattr(env, "single_action_space", getattr(env, "action_space", None))
    if not isinstance(observation_space, spaces.Space) or not isinstance(action_space, spaces.Space):
        raise TypeError(
            f"env must have single_observation_space and single_action_space; got {type(env).__name__}. "
            "Pass a PufferEnv or a vector env."
        )
    layout = getattr(env, "observation_layout", None)
    return observation_space, action_space, layout or Layout(observation_space), getattr(env, "action_layout", None)
