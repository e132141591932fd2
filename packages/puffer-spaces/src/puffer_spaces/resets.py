"""Resetting an env with the arguments that its own `reset` takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from puffer_spaces.buffers import Array
from puffer_spaces.seeding import world_seed

if TYPE_CHECKING:
    from puffer_spaces.env import PufferEnv


@dataclass(frozen=True, slots=True)
class ResetArguments:
    """Which arguments the `reset` of a class takes."""

    seed: bool
    first_world: bool
    options: bool
    seed_is_required: bool


_known: dict[type, ResetArguments] = {}


def reset_arguments(cls: type) -> ResetArguments:
    """Return which arguments the `reset` of a class takes. It is inspected once per class."""
    known = _known.get(cls)
    if known is None:
        known = _known[cls] = _inspect(cls)
    return known


def _inspect(cls: type) -> ResetArguments:
    try:
        parameters = inspect.signature(cls.reset).parameters  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return ResetArguments(seed=True, first_world=False, options=False, seed_is_required=False)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return ResetArguments(
        seed="seed" in parameters or takes_any,
        first_world="first_world" in parameters,
        options="options" in parameters or takes_any,
        seed_is_required="seed" in parameters and parameters["seed"].default is inspect.Parameter.empty,
    )


def reset_env(
    env: PufferEnv, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
) -> tuple[Array, list[dict[str, Any]]]:
    """Reset an env with what its `reset` takes.

    An env whose `reset` does not take `first_world` gets `seed=world_seed(seed, first_world)`. With `seed=None`
    nothing is passed where the argument has a default, so that the env continues its sequence. Rewards and flags are
    zeroed first.

    Args:
        env: The env.
        seed: Seed of the whole run, or None.
        first_world: Number of the env's first world in the whole vector env.
        options: Passed if given.

    Returns:
        (observations, infos), infos as a list of dicts.

    Raises:
        TypeError: `options` are given and the env's `reset` takes none, or the env is in the short form.
    """
    if getattr(env, "buffers", None) is None:
        raise TypeError(
            f"env must be a PufferEnv with its buffers bound; got {type(env).__name__}. Use as_puffer_env(env)."
        )
    takes = reset_arguments(type(env))
    arguments: dict[str, Any] = {}
    if seed is not None:
        if takes.first_world:
            arguments["seed"] = seed
            arguments["first_world"] = first_world
        elif takes.seed:
            arguments["seed"] = world_seed(seed, first_world)
    else:
        if takes.first_world:
            arguments["first_world"] = first_world
        if takes.seed_is_required:
            arguments["seed"] = None
    if options is not None:
        if not takes.options:
            raise no_options(env, options)
        arguments["options"] = options
    env.rewards.fill(0)
    env.terminals.fill(False)
    env.truncations.fill(False)
    result = env.reset(**arguments)
    infos = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    return env.observations, list_of_infos(infos)


def no_options(env: Any, options: Any) -> TypeError:
    """Return the error for options that an env's `reset` cannot take."""
    return TypeError(
        f"reset of {type(env).__name__} must take options to be given any; got {options!r}. "
        "Add options=None to its arguments."
    )


def list_of_infos(infos: Any) -> list[dict[str, Any]]:
    """Return infos as a list of the dicts that are not empty: None, one dict or a sequence of dicts are taken."""
    if not infos:
        return []
    if isinstance(infos, Mapping):
        return [dict(infos)]
    if not isinstance(infos, list | tuple) or not all(info is None or isinstance(info, Mapping) for info in infos):
        raise TypeError(f"infos must be a list of dicts; got {infos!r}. Return [] where there is nothing to say.")
    return [info for info in infos if info]
