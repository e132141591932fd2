"""Environments of the dm_env API as PufferEnvs. Nothing of dm_env is imported: what counts is what an env has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from puffer_emulate.adapter import KindAdapter
from puffer_emulate.copies import env_name
from puffer_emulate.seedless import note_seedless
from puffer_emulate.single_agent import SingleAgentAdapter
from puffer_emulate.snapshots import layers_of
from puffer_emulate.worlds import World, shown
from puffer_spaces import as_reward


class TimeStepView:
    """A dm_env environment, seen through Gymnasium's API.

    A last step with discount 0 is a termination, with any other discount a truncation. A discount strictly between 0
    and 1 is told in the info. A seed goes to `env.seed` or to the random state of `env.task`, where there is one.

    Args:
        env: The env.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = space_of_spec("observation", env.observation_spec())
        self.action_space = space_of_spec("action", env.action_spec())

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return (observation, info)."""
        if seed is not None:
            self._seed(seed)
        return self._checked(self.env.reset()).observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; return (observation, reward, terminated, truncated, info)."""
        time_step = self._checked(self.env.step(action))
        is_last = bool(time_step.last())
        discount = 1.0 if time_step.discount is None else as_reward(time_step.discount, "discount")
        info = {"discount": discount} if 0 < discount < 1 else {}
        reward = 0.0 if time_step.reward is None else time_step.reward
        return time_step.observation, reward, is_last and discount == 0, is_last and discount != 0, info

    def render(self) -> Any:
        """Draw the env, if it has a `render` of its own or physics that can be drawn."""
        return self.env.render() if hasattr(self.env, "render") else self.env.physics.render()

    def _checked(self, time_step: Any) -> Any:
        if not all(hasattr(time_step, name) for name in ("last", "observation", "reward", "discount")):
            raise TypeError(
                f"reset and step of {env_name(self.env)} must return a dm_env.TimeStep; got {shown(time_step)}. "
                "Return dm_env.restart, transition, termination or truncation."
            )
        return time_step

    def _seed(self, seed: int) -> None:
        random_state: Any = getattr(getattr(self.env, "task", None), "random", None)
        if callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        elif callable(getattr(random_state, "seed", None)):
            random_state.seed(seed)
        else:
            note_seedless(self.env)


class DmEnvPufferEnv(SingleAgentAdapter):
    """One or more worlds of a dm_env environment.

    The arguments are those of `SingleAgentAdapter`. An env object can only be one world.
    """

    def _world_of(self, env: Any) -> World:
        if not is_dm_env(env):
            raise TypeError(
                f"env must have reset, step, observation_spec and action_spec; got "
                f"{type(env).__module__}.{type(env).__qualname__}."
            )
        view = TimeStepView(env)
        return World(view, env.close, None, layers_of(view))


def is_dm_env(env: Any) -> bool:
    """Return whether an object looks like a dm_env environment."""
    names = ("reset", "step", "observation_spec", "action_spec", "close")
    return not isinstance(env, type) and all(callable(getattr(env, name, None)) for name in names)


def space_of_spec(name: str, spec: Any) -> spaces.Space[Any]:
    """Convert a dm_env spec, or a nest of them, to a Gymnasium space.

    Args:
        name: What the error calls it.
        spec: DiscreteArray, BoundedArray, Array, or a dict, list or tuple of them.

    Raises:
        TypeError: An array holds neither numbers nor bools.
    """
    if isinstance(spec, Mapping):
        return spaces.Dict({key: space_of_spec(f"{name}/{key}", child) for key, child in spec.items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([space_of_spec(f"{name}/{index}", child) for index, child in enumerate(spec)])
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        raise TypeError(f"{name} must have a dm_env spec, or a dict or list of them; got {spec!r}. Return specs.Array.")
    dtype = np.dtype(spec.dtype)
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    if dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers or bools; got {spec!r}. Leave it out with a wrapper of the env.")
    smallest, largest = _range_of(dtype)
    low = np.broadcast_to(np.asarray(getattr(spec, "minimum", smallest), dtype), spec.shape)
    high = np.broadcast_to(np.asarray(getattr(spec, "maximum", largest), dtype), spec.shape)
    return spaces.Box(low, high, tuple(spec.shape), dtype.type)


def _range_of(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


adapter = KindAdapter(is_dm_env, DmEnvPufferEnv)
"""The entry point of the group `puffer.adapters`."""
