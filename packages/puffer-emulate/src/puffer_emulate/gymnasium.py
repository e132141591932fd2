"""Gymnasium environments as PufferEnvs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from puffer_emulate.adapter import KindAdapter
from puffer_emulate.copies import env_name
from puffer_emulate.single_agent import SingleAgentAdapter
from puffer_emulate.snapshots import layers_of
from puffer_emulate.worlds import World
from puffer_spaces import Buffers, MissingSuite

_OUTER_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
_REMEDY = "Pass a class or function that makes the env, in place of the object."


class GymnasiumPufferEnv(SingleAgentAdapter):
    """One or more worlds of a Gymnasium environment, with any observation and action space that has a layout.

    The arguments are those of `SingleAgentAdapter`, PufferLib's by position. An env object can only be one world; for
    more it is made again from its `spec`.

    The wrappers that `gymnasium.make` puts outermost are stepped around: the order of calls and the shape of what
    the env returns are checked here anyway, and a `TimeLimit` is counted here. Wrappers below another one stay.
    """

    def _world_of(self, env: Any) -> World:
        _check_env(env)
        inner, time_limit = env, None
        while type(inner) in _OUTER_WRAPPERS:
            if type(inner) is TimeLimit:
                limit = inner._max_episode_steps
                time_limit = limit if time_limit is None else min(limit, time_limit)
            inner = inner.env
        return World(inner, env.close, time_limit, layers_of(inner))

    def _recipe_of(self, env: Any) -> SpecCreator:
        return SpecCreator(env)


class SpecCreator:
    """Makes envs like an object that `gymnasium.make` made, from its spec.

    Args:
        env: The object. Only its spec and the kinds of its wrappers are kept.

    Raises:
        ValueError: The object has no spec.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.__name__ = env_name(env)
        spec = env.spec
        if spec is None:
            raise ValueError(
                f"an env object must have a spec to be made again; {self.__name__} has none, since it was not made by "
                f"gymnasium.make. {_REMEDY}"
            )
        self.spec = spec
        self.kinds = _kinds(env)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make one more.

        Raises:
            ValueError: The spec does not lead to the same stack of wrappers.
        """
        try:
            made = gymnasium.make(self.spec, disable_env_checker=True)
        except Exception as error:
            raise ValueError(f"{self.__name__} must be made again from its spec, but: {error}. {_REMEDY}") from error
        if _kinds(made) != self.kinds:
            raise ValueError(
                f"{self.__name__} made again from its spec must have the layers {_names(self.kinds)}; "
                f"got {_names(_kinds(made))}. {_REMEDY}"
            )
        return made


def make_gymnasium(
    env_id: str,
    num_envs: int = 1,
    buf: Buffers | Mapping[str, Any] | None = None,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    **kwargs: Any,
) -> GymnasiumPufferEnv:
    """Make worlds of a registered Gymnasium environment: the entry point of the ids `gym-<id>`.

    Args:
        env_id: Gymnasium's id, as "CartPole-v1".
        num_envs: Worlds in this object.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed for a first reset that is given none.
        max_episode_steps: Steps until an episode is truncated; None for the registered limit, -1 for none.
        render_mode: What `render` returns.
        **kwargs: Arguments of the env's constructor.

    Raises:
        MissingSuite: If the env needs a package that is not installed.
    """
    arguments = dict(kwargs, max_episode_steps=max_episode_steps, disable_env_checker=True)
    if render_mode is not None:
        arguments["render_mode"] = render_mode
    try:
        return GymnasiumPufferEnv(
            env_creator=gymnasium.make, env_args=(env_id,), env_kwargs=arguments, buf=buf, seed=seed, num_envs=num_envs
        )
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise MissingSuite(f"gym-{env_id} must have its packages installed; {str(error).rstrip('.')}.") from error


def _check_env(env: Any) -> None:
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise TypeError(
            f"env must be one Gymnasium environment; got the vector env {type(env).__name__}. "
            "Pass a creator of the single env, and num_envs."
        )
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"env must be a gymnasium.Env; got {type(env).__module__}.{type(env).__qualname__}. "
            "Derive it from gymnasium.Env, or return one from the creator."
        )
    for kind in ("observation_space", "action_space"):
        if not isinstance(getattr(env, kind, None), gymnasium.Space):
            raise TypeError(
                f"{kind} of {env_name(env)} must be a gymnasium.spaces space; got {getattr(env, kind, None)!r}. "
                "Set it in the env's __init__."
            )


def _kinds(env: Any) -> list[type]:
    return [type(layer) for layer in layers_of(env) if type(layer) is not PassiveEnvChecker]


def _names(kinds: list[type]) -> str:
    return " of ".join(kind.__name__ for kind in kinds)


def is_gymnasium(env: Any) -> bool:
    """Return whether an object is a Gymnasium environment."""
    return isinstance(env, gymnasium.Env)


adapter = KindAdapter(is_gymnasium, GymnasiumPufferEnv)
"""The entry point of the group `puffer.adapters`."""
