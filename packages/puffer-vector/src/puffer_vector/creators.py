"""What builds env objects: one creator per object, or one that builds objects of many worlds."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from puffer_spaces import EnvSpec, PufferEnv, as_puffer_env, make_env, spec
from puffer_vector.arguments import checked_args, checked_kwargs


@dataclass(frozen=True)
class Creator:
    """Builds env objects of one kind.

    Attributes:
        target: Class or function, or an EnvSpec.
        args: Positional arguments of the target.
        kwargs: Keyword arguments of the target.
        batched: Whether the target takes `num_envs` and builds an object of that many worlds.
    """

    target: Callable[..., Any] | EnvSpec
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    batched: bool = False

    @property
    def name(self) -> str:
        """Name for messages and for `vec.env_name`."""
        if isinstance(self.target, EnvSpec):
            return self.target.id
        target = self.target.func if isinstance(self.target, functools.partial) else self.target
        return str(getattr(target, "__name__", type(target).__name__))

    def build(self, buf: Any = None, seed: int | None = None, num_worlds: int | None = None) -> PufferEnv:
        """Build one object.

        Args:
            buf: Buffers to build it in, for targets that take them.
            seed: Passed to targets that name it.
            num_worlds: Worlds of a batched object.
        """
        kwargs = dict(self.kwargs)
        if self.batched:
            kwargs["num_envs"] = num_worlds
        if isinstance(self.target, EnvSpec):
            return make_env(self.target, buf=buf, seed=seed, **kwargs)
        target = functools.partial(self.target, *self.args, **kwargs) if self.args or kwargs else self.target
        return as_puffer_env(target, buf=buf, seed=seed)


@dataclass(frozen=True)
class Instance:
    """Stands for a creator where a finished env object was given; it can be used once, in this process."""

    env: Any
    batched: bool = False

    @property
    def name(self) -> str:
        """Name for messages and for `vec.env_name`."""
        return type(self.env).__name__

    def build(self, buf: Any = None, seed: int | None = None, num_worlds: int | None = None) -> PufferEnv:  # noqa: ARG002
        """Return the object, bound to `buf`."""
        return as_puffer_env(self.env, buf=buf)


def resolve_creators(
    env: Any,
    num_envs: int,
    env_args: Sequence[Any] | None,
    env_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    extra_kwargs: Mapping[str, Any],
    other_names: Sequence[str] = (),
) -> list[Creator | Instance]:
    """Return one batched creator, or one creator for each of `num_envs` env objects.

    Args:
        env: Id, EnvSpec, class, function or env object, or a sequence of num_envs of them.
        num_envs: Number of worlds for a batched creator, else of objects.
        env_args: Positional arguments; with a sequence of envs, a sequence of them.
        env_kwargs: Keyword arguments, or a sequence with those of each env.
        extra_kwargs: Keyword arguments of every env.
        other_names: Names that the caller of `make` may have meant by one of extra_kwargs that envs do not take.

    Raises:
        TypeError: Something is not what an env or its arguments can be.
        ValueError: The lengths do not agree.
    """
    for one in env if isinstance(env, list | tuple) else [env]:
        _check_names(one, extra_kwargs, other_names)
    many = isinstance(env, list | tuple)
    several_kwargs = isinstance(env_kwargs, list | tuple)
    if not many and not several_kwargs:
        creator = _creator(env, checked_args(env_args), {**checked_kwargs(env_kwargs), **extra_kwargs})
        if isinstance(creator, Instance) and num_envs != 1:
            raise ValueError(
                f"env must be a creator for more than one env, since an object can be stepped in one place only; got "
                f"{env!r} with num_envs={num_envs}. Pass its class or a function that returns a new one."
            )
        return [creator] if creator.batched else [creator] * num_envs
    envs = list(env) if many else [env] * num_envs
    args = _per_env("env_args", env_args if many else [env_args] * len(envs), len(envs))
    kwargs = _per_env("env_kwargs", env_kwargs if several_kwargs else [env_kwargs] * len(envs), len(envs))
    if len(envs) != num_envs:
        raise ValueError(
            f"num_envs must be the number of env creators; got num_envs={num_envs}, {len(envs)} creators. "
            f"Use num_envs={len(envs)}."
        )
    creators = []
    for one, one_args, one_kwargs in zip(envs, args, kwargs, strict=True):
        creator = _creator(one, checked_args(one_args), {**checked_kwargs(one_kwargs), **extra_kwargs})
        creators.append(
            Creator(creator.target, creator.args, creator.kwargs) if isinstance(creator, Creator) else creator
        )
    return creators


def _per_env(name: str, values: Any, num_envs: int) -> list[Any]:
    if not isinstance(values, list | tuple | None):
        raise TypeError(
            f"{name} must be a list with one entry for each env, as there are several creators; got {values!r}. "
            f"Give {num_envs} entries."
        )
    if not values:
        return [None] * num_envs
    if len(values) != num_envs:
        raise ValueError(
            f"{name} must have one entry for each of the {num_envs} envs; got {len(values)}. Give one mapping or "
            "sequence per env, or pass one creator to share them."
        )
    return list(values)


def _creator(env: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Creator | Instance:
    if isinstance(env, str):
        env = spec(env)
    if isinstance(env, EnvSpec):
        if args:
            raise TypeError(f"env_args must be empty for a registered env; got {args!r} for {env.id}. Use env_kwargs.")
        return Creator(env, (), kwargs, env.batched and "num_envs" not in {**env.kwargs, **kwargs})
    if not isinstance(env, type) and callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None)):
        if args or kwargs:
            raise TypeError(
                f"an env object takes no arguments any more; got {args!r}, {dict(kwargs)!r}. Pass its class."
            )
        return Instance(env)
    if not callable(env):
        raise TypeError(
            f"env must be a registered id, an env class, a function that returns an env, or a list of them; "
            f"got {env!r}. An env object has reset and step."
        )
    return Creator(env, args, kwargs, _takes_num_envs(env, args, kwargs))


def _check_names(env: Any, kwargs: Mapping[str, Any], other_names: Sequence[str]) -> None:
    """Check that a creator can take keyword arguments, as far as its signature tells."""
    try:
        signature = inspect.signature(env, follow_wrapped=False)
    except (TypeError, ValueError):  # an id, an env object, a builtin
        return
    try:
        signature.bind_partial(**kwargs)
    except TypeError as error:
        near = [close for name in kwargs for close in difflib.get_close_matches(name, other_names, 1)]
        hint = f" Did you mean {near[0]}= of make?" if near else ""
        name = getattr(env, "__name__", repr(env))
        raise TypeError(
            f"keyword arguments that make does not know must be arguments of the env; {name}{signature} {error}.{hint}"
        ) from None


def _takes_num_envs(target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a creator builds an object of `num_envs` worlds and leaves the number to its caller."""
    bound = target
    while isinstance(bound, functools.partial):
        if "num_envs" in bound.keywords:
            return False
        bound = bound.func
    try:
        parameters = inspect.signature(target).parameters
        given = inspect.signature(target).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return False
    return (
        "num_envs" in parameters
        and parameters["num_envs"].kind is not inspect.Parameter.POSITIONAL_ONLY
        and "num_envs" not in given
    )
