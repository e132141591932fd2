"""Make several copies of a foreign environment, and see that they are copies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from puffer_emulate.snapshots import layers_of


def make_envs(
    env: Any,
    env_creator: Callable[..., Any] | None,
    env_args: Sequence[Any],
    env_kwargs: Mapping[str, Any],
    num_envs: int,
    make_recipe: Callable[[Any], Callable[[], Any]],
) -> list[Any]:
    """Make `num_envs` environments from an object or from what makes one.

    Args:
        env: An env, a creator of one, or None.
        env_creator: A creator, or None. One of the two must be given.
        env_args: Positional arguments of the creator.
        env_kwargs: Keyword arguments of the creator.
        num_envs: How many.
        make_recipe: Takes an object and returns what makes others like it.

    Raises:
        TypeError: Neither or both are given, or arguments for an object.
        ValueError: num_envs is less than 1, or a creator returned an object twice.
    """
    if (env is None) == (env_creator is None):
        given = "neither" if env is None else "both"
        raise TypeError(f"an adapter takes env or env_creator; got {given}. Give the env, or a function that makes it.")
    if isinstance(num_envs, bool) or int(num_envs) != num_envs or num_envs < 1:
        raise ValueError(f"num_envs must be an integer of at least 1; got {num_envs!r}.")
    creator = env_creator if env_creator is not None else env if is_creator(env) else None
    if isinstance(creator, str) or (creator is not None and not callable(creator)):
        raise TypeError(f"env_creator must be a class or function; got {creator!r}. Pass lambda: gymnasium.make(...).")
    if creator is None and (env_args or env_kwargs):
        raise TypeError(
            f"env_args and env_kwargs go to a creator; got an env object and {env_args!r}, {env_kwargs!r}. "
            "Pass env_creator."
        )
    envs = [env] if creator is None else []
    num_given = len(envs)
    if creator is None and num_envs > 1:
        creator = make_recipe(env)
    try:
        while creator is not None and len(envs) < num_envs:
            envs.append(creator(*env_args, **env_kwargs))
        _check_distinct(envs)
    except BaseException:
        # An env that was given stays its owner's to close.
        for made in envs[num_given:]:
            with contextlib.suppress(Exception):
                made.close()
        raise
    return envs


def is_creator(env: Any) -> bool:
    """Return whether something is a class or function that makes an env, rather than an env."""
    return isinstance(env, type) or (callable(env) and not hasattr(env, "step"))


def env_name(env: Any) -> str:
    """Return what errors call an env: its registered id, the name in a PettingZoo env's metadata, or its class."""
    innermost = layers_of(env)[-1]
    name = getattr(getattr(innermost, "spec", None), "id", None)
    if name is None and hasattr(env, "possible_agents"):
        name = (getattr(env, "metadata", None) or {}).get("name")
    return str(name or type(innermost).__name__)


def refuse_recipe(env: Any) -> NoReturn:
    """Raise ValueError: an object that does not know how it was made cannot be made again."""
    raise ValueError(
        f"an env object can be one world, since it does not know how it was made; got {env_name(env)}. "
        "Pass a class or function that makes the env, in place of the object."
    )


def check_alike(envs: Sequence[Any]) -> None:
    """Check that all worlds have the spaces of the first.

    Raises:
        ValueError: A world's space differs.
    """
    for kind in ("observation_space", "action_space"):
        first = getattr(envs[0], kind)
        for index, env in enumerate(envs[1:], 1):
            if getattr(env, kind) != first:
                raise ValueError(
                    f"all worlds of {env_name(envs[0])} must have one {kind}; got {first} in world 0 and "
                    f"{getattr(env, kind)} in world {index}. Let the creator make equal envs."
                )


def _check_distinct(envs: Sequence[Any]) -> None:
    owners: dict[int, int] = {}
    for index, env in enumerate(envs):
        first = owners.setdefault(id(layers_of(env)[-1]), index)
        if first != index:
            raise ValueError(
                f"a creator must make a new env each time; got one {env_name(env)} for worlds {first} and {index}. "
                "Make the env inside the creator."
            )
