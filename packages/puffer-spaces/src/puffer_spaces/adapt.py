"""The one door into the contract: whatever steps like an environment becomes a PufferEnv here."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from puffer_spaces.buffers import Buffers
from puffer_spaces.copied import CopiedEnv
from puffer_spaces.env import PufferEnv
from puffer_spaces.errors import MissingAdapter
from puffer_spaces.registry import EnvSpec, make_env
from puffer_spaces.resets import reset_env
from puffer_spaces.single_agent import SingleAgentEnv

ENTRY_POINT_GROUP = "puffer.adapters"
"""Each entry point of this group is an `Adapter`."""

__all__ = ["Adapter", "adapters", "as_puffer_env", "reset_env"]


class Adapter(Protocol):
    """What an installed package offers to turn foreign environments into PufferEnvs."""

    def matches(self, env: Any) -> bool:
        """Return whether this adapter takes the object."""

    def adapt(self, env: Any, buf: Buffers | None = None) -> PufferEnv:
        """Return a PufferEnv around the object."""


def as_puffer_env(env: Any, buf: Buffers | Mapping[str, Any] | None = None, seed: int | None = None) -> PufferEnv:
    """Return a PufferEnv of an environment or of what creates one.

    Args:
        env: A PufferEnv in either form, an object that an installed adapter takes, a class or function that returns
            one of them, a registered id or an EnvSpec. A creator gets `buf=` and `seed=` if its signature names them.
        buf: Buffers to bind the env to. An env that may hold pointers to its own arrays (`rebinds_buffers` False) and
            was not built with `buf` is copied into them after each step.
        seed: Passed to a creator that names it. In the short form also the seed of a first reset that is given none.

    Raises:
        MissingAdapter: No installed package takes the object; the message has the install line.
        TypeError: The object is neither an environment nor a creator.
    """
    buffers = None if buf is None else Buffers.from_mapping(buf)
    if isinstance(env, str | EnvSpec):
        return make_env(env, buf=buffers, seed=seed)
    if not isinstance(env, type) and (isinstance(env, PufferEnv) or _looks_like_env(env)):
        return _adapted(env, buffers, seed)
    if not callable(env):
        raise TypeError(
            f"env must be an environment, a creator or a registered id; got {env!r}. An environment has reset and step."
        )
    named = _creator_arguments(env)
    arguments: dict[str, Any] = {}
    if "buf" in named:
        arguments["buf"] = buffers
    if "seed" in named and seed is not None:
        arguments["seed"] = seed
    created = env(**arguments)
    if isinstance(created, type) or not (isinstance(created, PufferEnv) or _looks_like_env(created)):
        raise TypeError(
            f"a creator must return an environment, which has reset and step; got {created!r} from {env!r}. "
            "Return the env from it."
        )
    return _adapted(created, buffers, seed)


def adapters() -> tuple[Adapter, ...]:
    """Return the adapters of installed packages, in the order of their names."""
    return _loaded_adapters()


@functools.cache
def _loaded_adapters() -> tuple[Adapter, ...]:
    found = sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return tuple(entry.load() for entry in found)


def _creator_arguments(creator: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(creator).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_name)


def _looks_like_env(env: Any) -> bool:
    return callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None))


def _adapted(env: Any, buffers: Buffers | None, seed: int | None) -> PufferEnv:
    if isinstance(env, PufferEnv):
        if env.buffers is None:
            return SingleAgentEnv(env, buf=buffers, seed=seed)
        return env if buffers is None else _bound(env, buffers)
    for adapter in adapters():
        if adapter.matches(env):
            return adapter.adapt(env, buf=buffers)
    raise MissingAdapter(
        f"env must be a PufferEnv or something an installed adapter takes; got {type(env).__module__}."
        f"{type(env).__qualname__}. For Gymnasium, gym, PettingZoo and dm_env environments run "
        "pip install ./packages/puffer-emulate (the extra puffer-vector[gymnasium] brings it too)."
    )


def _bound(env: PufferEnv, buffers: Buffers) -> PufferEnv:
    if np.shares_memory(env.observations, buffers.observations):
        return env
    if env.rebinds_buffers:
        env.set_buffers(buffers)
        return env
    return CopiedEnv(env, buffers)
