"""Environments of the old gym API as PufferEnvs. Nothing of gym is imported: what counts is what an env has."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

from puffer_emulate.adapter import KindAdapter
from puffer_emulate.copies import env_name
from puffer_emulate.seedless import note_seedless
from puffer_emulate.single_agent import SingleAgentAdapter
from puffer_emulate.snapshots import layers_of
from puffer_emulate.worlds import World, shown
from puffer_spaces import PufferEnv, as_flag, as_gymnasium_space, as_info


class GymnasiumView:
    """An env of an older API, seen through Gymnasium's.

    - `reset` may return the observation alone, or with an info, and may take a seed or not. If not, `env.seed(seed)` is
      called; an env with neither is said once to be as its constructor seeded it.
    - `step` may return four values. `info["TimeLimit.truncated"]` then tells a truncation from an end.
    - Spaces are converted by what they have.

    Args:
        env: The env.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self._name = env_name(env)
        self.observation_space = as_gymnasium_space(env.observation_space)
        self.action_space = as_gymnasium_space(env.action_space)
        self._takes = _arguments_of_reset(env)
        children = getattr(self.observation_space, "spaces", ())
        self._is_pair = isinstance(children, tuple) and len(children) == 2 and isinstance(children[1], spaces.Dict)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return (observation, info)."""
        arguments: dict[str, Any] = {}
        if seed is not None:
            if "seed" in self._takes:
                arguments["seed"] = seed
            else:
                self._seed(seed)
        if options is not None:
            if "options" not in self._takes:
                raise TypeError(
                    f"reset of {self._name} must take options to be given any; got {options!r}. "
                    "It takes none: pass what it offers to its constructor."
                )
            arguments["options"] = options
        result = self.env.reset(**arguments)
        has_info = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
        if not has_info or (self._is_pair and self.observation_space.contains(result)):
            return result, {}
        return result[0], dict(result[1])

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step; return (observation, reward, terminated, truncated, info)."""
        result = self.env.step(action)
        count = len(result) if isinstance(result, tuple | list) else 0
        if count == 5:
            return tuple(result)
        if count != 4:
            raise TypeError(
                f"step of {self._name} must return (observation, reward, done, info), or terminated and "
                f"truncated in place of done; got {shown(result)}."
            )
        observation, reward, done, info = result
        info = as_info(info, f"info of {self._name}")
        is_done = as_flag(done, f"done of {self._name}")
        is_cut = is_done and as_flag(info.get("TimeLimit.truncated", False), 'info["TimeLimit.truncated"]')
        return observation, reward, is_done and not is_cut, is_cut, info

    def render(self) -> Any:
        """Draw the env."""
        parameters = inspect.signature(self.env.render).parameters
        if "mode" in parameters:
            return self.env.render(mode=getattr(self.env, "render_mode", None) or "rgb_array")
        return self.env.render()

    def _seed(self, seed: int) -> None:
        if callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        else:
            note_seedless(self.env)


class LegacyGymPufferEnv(SingleAgentAdapter):
    """One or more worlds of an env of the old gym API, or of one that speaks Gymnasium's without deriving from it.

    The arguments are those of `SingleAgentAdapter`. An env object can only be one world.
    """

    def _world_of(self, env: Any) -> World:
        if not is_legacy_gym(env):
            raise TypeError(
                f"env must have reset, step, observation_space and action_space; got "
                f"{type(env).__module__}.{type(env).__qualname__}."
            )
        view = GymnasiumView(env)
        return World(view, getattr(env, "close", _nothing), None, layers_of(view))


def is_legacy_gym(env: Any) -> bool:
    """Return whether an object looks like one env with the gym API. A batch of envs (`num_envs`) does not."""
    if isinstance(env, type | gymnasium.Env | PufferEnv) or hasattr(env, "num_envs"):
        return False
    has_spaces = all(
        (space := getattr(env, kind, None)) is not None and not callable(space)
        for kind in ("observation_space", "action_space")
    )
    return has_spaces and callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))


def _arguments_of_reset(env: Any) -> frozenset[str]:
    # Old wrappers pass any arguments on, so the env inside decides.
    innermost = getattr(env, "unwrapped", None) or layers_of(env)[-1]
    try:
        return frozenset(inspect.signature(innermost.reset).parameters)
    except (TypeError, ValueError):
        return frozenset()


def _nothing() -> None:
    """Close an env that has nothing to close."""


adapter = KindAdapter(is_legacy_gym, LegacyGymPufferEnv)
"""The entry point of the group `puffer.adapters`."""
