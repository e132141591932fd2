"""One call for any environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from puffer_emulate.copies import is_creator, refuse_recipe
from puffer_emulate.dm_env import DmEnvPufferEnv, is_dm_env
from puffer_emulate.gymnasium import GymnasiumPufferEnv, SpecCreator
from puffer_emulate.legacy_gym import LegacyGymPufferEnv, is_legacy_gym
from puffer_emulate.pettingzoo import PettingZooPufferEnv, is_pettingzoo
from puffer_spaces import Buffers, PufferEnv


def emulate(
    env: Any,
    num_envs: int | None = None,
    *,
    buf: Buffers | Mapping[str, Any] | None = None,
    seed: int | None = None,
    episode_extras: Sequence[str] = (),
    **kwargs: Any,
) -> PufferEnv:
    """Make a PufferEnv of a foreign environment.

    Args:
        env: A Gymnasium, PettingZoo, gym or dm_env env, or a class or function that makes one. A PufferEnv is returned.
        num_envs: Worlds in the one object that is returned; None is one world. A Gymnasium env that is an object
            is made again from its `spec` for the others; other objects can be one world.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed for a first reset that is given none. None: each env seeds itself.
        episode_extras: Names of numbers in the last info of an episode that its record keeps beside score and perf.
        **kwargs: Arguments of the creator.

    Returns:
        An env whose rows are the worlds, in this process. `puffer_vector.make(creator_of(env), num_envs=...)` spreads
        them over threads or processes.

    Raises:
        TypeError: What is given or made is no environment.
        ValueError: Several worlds cannot be made, or are not alike.
    """
    if isinstance(env, str):
        raise TypeError(
            f"env must be an environment or a creator; got the id {env!r}. "
            f'Use puffer_spaces.make_env("gym-{env.removeprefix("gym-")}"), or pass gymnasium.make(...).'
        )
    if isinstance(env, PufferEnv):
        return _unchanged(env, num_envs, kwargs)
    arguments: dict[str, Any] = {
        "buf": buf,
        "seed": seed,
        "num_envs": 1 if num_envs is None else num_envs,
        "episode_extras": episode_extras,
    }
    if not is_creator(env):
        return _adapter_of(env)(env, env_kwargs=kwargs, **arguments)
    made = env(**kwargs)
    if isinstance(made, PufferEnv):
        return _unchanged(made, num_envs, {})
    # The first env, made to see its kind, is the first world.
    waiting = [made]
    return _adapter_of(made)(env_creator=lambda: waiting.pop() if waiting else env(**kwargs), **arguments)


def _unchanged(env: PufferEnv, num_envs: int | None, kwargs: Mapping[str, Any]) -> PufferEnv:
    if num_envs not in (None, env.num_envs) or kwargs:
        raise TypeError(
            f"a PufferEnv needs no emulation; got one of {env.num_envs} worlds, num_envs={num_envs}, {dict(kwargs)}. "
            "Vectorise it with puffer_vector.make."
        )
    return env


def _adapter_of(env: Any) -> Callable[..., PufferEnv]:
    if is_pettingzoo(env):
        return PettingZooPufferEnv
    if is_dm_env(env):
        return DmEnvPufferEnv
    if is_legacy_gym(env):
        return LegacyGymPufferEnv
    return GymnasiumPufferEnv


def creator_of(env: Any) -> EnvCreator:
    """Return what makes PufferEnvs of any number of worlds of an environment, for `puffer_vector.make`.

    Args:
        env: A class or function that makes an env of any kind `emulate` takes, or a Gymnasium env, which is only a
            recipe: each world is made anew from its `spec`.

    Raises:
        TypeError: It is neither.
        ValueError: An object cannot be made again.
    """
    if is_creator(env):
        return EnvCreator(env)
    if is_pettingzoo(env) or is_dm_env(env) or is_legacy_gym(env):
        refuse_recipe(env)
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"env must be an environment or what makes one; got {env!r}. Pass its class.")
    return EnvCreator(SpecCreator(env))


class EnvCreator:
    """Makes one PufferEnv of `num_envs` worlds. It can be sent to another process if its env's creator can.

    Args:
        creator: Class or function that makes one foreign env.
    """

    def __init__(self, creator: Any) -> None:
        self.creator = creator
        self.__name__ = getattr(creator, "__name__", type(creator).__name__)

    def __call__(
        self,
        num_envs: int = 1,
        buf: Buffers | Mapping[str, Any] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> PufferEnv:
        """Make the env; `kwargs` are the foreign env's."""
        return emulate(self.creator, num_envs, buf=buf, seed=seed, **kwargs)
