"""One call for any environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from puffer_emulate.copies import is_creator
from puffer_emulate.gymnasium import GymnasiumPufferEnv
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
        env: A Gymnasium env, or a class or function that makes one.
        num_envs: Worlds in the one object that is returned; None is one world. An env that is already an object is
            made again from its `spec` for the others.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed for a first reset that is given none. None: each env seeds itself.
        episode_extras: Names of numbers in the last info of an episode that its record keeps beside score and perf.
        **kwargs: Arguments of the creator.

    Returns:
        An env whose rows are the worlds, in this process. `puffer_vector.make` spreads a creator over processes.

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
        if num_envs not in (None, env.num_envs) or kwargs:
            raise TypeError(
                f"a PufferEnv needs no emulation; got one of {env.num_envs} worlds, num_envs={num_envs} and {kwargs}. "
                "Vectorise it with puffer_vector.make."
            )
        return env
    arguments: dict[str, Any] = {
        "buf": buf,
        "seed": seed,
        "num_envs": 1 if num_envs is None else num_envs,
        "episode_extras": episode_extras,
    }
    if is_creator(env):
        return GymnasiumPufferEnv(env_creator=env, env_kwargs=kwargs, **arguments)
    return GymnasiumPufferEnv(env, env_kwargs=kwargs, **arguments)
