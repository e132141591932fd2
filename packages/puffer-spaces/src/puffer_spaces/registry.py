"""The list of environments by id, filled by `register` and by installed packages through entry points."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.metadata
import importlib.resources
import inspect
import math
import operator
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from puffer_spaces.errors import UnknownEnvError

if TYPE_CHECKING:
    from puffer_spaces.buffers import Buffers
    from puffer_spaces.env import PufferEnv

ENTRY_POINT_GROUP = "puffer.envs"
"""Each entry point of this group is a callable that returns an iterable of EnvSpecs."""

_SUITES = {"ocean-": "puffer-ocean", "puffer_": "puffer-ocean", "gym-": "puffer-emulate"}


@dataclass(frozen=True)
class Parameter:
    """A keyword argument of an environment, with what is needed to check it and to show it on a command line.

    Attributes:
        name: Keyword of the env's constructor.
        type: int, float, bool or str.
        default: Value when none is given.
        low: Smallest allowed value, or None.
        high: Largest allowed value, or None.
        doc: What it means, with its unit.
    """

    name: str
    type: type
    default: Any
    low: float | None = None
    high: float | None = None
    doc: str = ""

    def check(self, value: Any) -> Any:
        """Return `value` as this parameter's type.

        Raises:
            TypeError: The value is of another type.
            ValueError: The value is out of range.
        """
        if value is None and self.default is None:
            return None
        converted = self._converted(value)
        too_low = self.low is not None and not converted >= self.low
        too_high = self.high is not None and not converted <= self.high
        if too_low or too_high or (self.type is float and math.isnan(converted)):
            low = "-inf" if self.low is None else self.low
            high = "inf" if self.high is None else self.high
            raise ValueError(f"{self.name} must be in [{low}, {high}]; got {value!r}. The default is {self.default!r}.")
        return converted

    def _converted(self, value: Any) -> Any:
        if self.type is bool and isinstance(value, bool | np.bool_):
            return bool(value)
        if self.type not in (bool, int, float) and isinstance(value, self.type):
            return value
        # Arrays have the methods of numbers, and raise in them.
        with contextlib.suppress(TypeError, OverflowError):
            if self.type is int and not isinstance(value, bool):
                is_whole = isinstance(value, float) and value.is_integer()
                return int(value) if is_whole else operator.index(value)
            if self.type is float and not isinstance(value, bool | str) and hasattr(value, "__float__"):
                return float(value)
        raise TypeError(
            f"{self.name} must be {self.type.__name__}; got {value!r} ({type(value).__name__}). "
            f"The default is {self.default!r}."
        )


@dataclass(frozen=True)
class EnvSpec:
    """What the registry knows of an environment. Nothing is imported until it is made.

    Attributes:
        id: `<suite>-<name>`.
        entry_point: "module:attribute" or a callable: a PufferEnv class, or any creator `as_puffer_env` takes.
        kwargs: Arguments given to the entry point, below the caller's.
        parameters: Its keyword arguments, when they are known; then unknown or bad ones are refused before it is made.
        batched: Whether one object holds `num_envs` worlds, an argument of the entry point.
        config: "module:path/inside/it.toml", the training configuration beside the env, or None.
        policy: "module:Class" of a policy made for it, or None.
        version: Goes up when the rules change.
        aliases: Other ids of the same env.
    """

    id: str
    entry_point: str | Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    batched: bool = False
    config: str | None = None
    policy: str | None = None
    version: str = "1"
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.id, *self.aliases):
            if not isinstance(name, str) or not name or name.split() != [name]:
                raise ValueError(f"an environment id must be a name without spaces; got {name!r}. Use <suite>-<name>.")
        if isinstance(self.aliases, str) or not isinstance(self.kwargs, Mapping):
            raise TypeError(
                f"aliases of {self.id} must be a tuple and kwargs a dict; got {self.aliases!r} and {self.kwargs!r}. "
                'Give for example aliases=("name",) and kwargs={}.'
            )
        if not callable(self.entry_point):
            _split("entry_point", self.id, self.entry_point)
        for name in ("config", "policy"):
            if getattr(self, name) is not None:
                _split(name, self.id, getattr(self, name))


def _split(what: str, env_id: str, name: Any) -> tuple[str, str]:
    """Split "module:attribute" or "module:path" in two."""
    module, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not module or not rest:
        raise ValueError(f'{what} of {env_id} must be "module:name"; got {name!r}. Write the colon between the two.')
    return module, rest


_registered: dict[str, EnvSpec] = {}


def register(id: str | EnvSpec, entry_point: str | Callable[..., Any] | None = None, **fields: Any) -> EnvSpec:
    """Add an environment, in place of an earlier one with this id and of that one's aliases.

    Args:
        id: The id, or a whole EnvSpec.
        entry_point: "module:attribute" or a callable.
        **fields: The other fields of EnvSpec, such as `kwargs`.

    Returns:
        The spec that was added.

    Raises:
        TypeError: Neither an id and an entry point nor an EnvSpec is given.
        ValueError: The entry point names nothing, or another registered env has the id or an alias.
    """
    if isinstance(id, EnvSpec) and entry_point is None and not fields:
        new = id
    elif isinstance(id, str) and id and entry_point is not None:
        new = EnvSpec(id, entry_point, **fields)
    else:
        raise TypeError(f"register takes an id and an entry_point, or an EnvSpec; got {id!r} and {entry_point!r}.")
    names = (new.id, *new.aliases)
    for name in names:
        owner = _registered.get(name, new).id
        if owner != new.id:
            raise ValueError(
                f"an id or alias must belong to one environment; got {name!r} for {new.id}, which {owner} has. "
                "Give it another name."
            )
    for name, known in list(_registered.items()):
        if known.id == new.id:
            _registered.pop(name, None)
    _registered.update(dict.fromkeys(names, new))
    return new


def spec(id: str) -> EnvSpec:
    """Return the spec of an id or alias.

    Raises:
        TypeError: The id is no string.
        UnknownEnvError: There is none; the message has near ones.
    """
    if not isinstance(id, str):
        raise TypeError(f'an environment id must be a string; got {id!r}. Give for example "gym-CartPole-v1".')
    if id in _registered:
        return _registered[id]
    discovered, failures = _discovered()
    if id in discovered:
        return discovered[id]
    known = [*_registered, *discovered]
    near = difflib.get_close_matches(id, known, n=3, cutoff=0.6)
    if not near and id:
        near = sorted(name for name in known if id.lower() in name.lower())[:3]
    raise UnknownEnvError(id, near, (*failures, *_missing_package(id, known)))


def _missing_package(id: str, known: Iterable[str]) -> list[str]:
    """Return what to install where no id of a suite is known."""
    return [
        f"Ids that start with {prefix} come with {package}: pip install ./packages/{package}."
        for prefix, package in _SUITES.items()
        if id.startswith(prefix) and not any(name.startswith(prefix) for name in known)
    ]


def env_ids() -> list[str]:
    """Return every registered id, sorted, without aliases."""
    specs = {**_discovered()[0], **_registered}
    return sorted({known.id for known in specs.values()})


def make_env(
    id: str | EnvSpec,
    buf: Buffers | Mapping[str, Any] | None = None,
    seed: int | None = None,
    **kwargs: Any,
) -> PufferEnv:
    """Make one environment object.

    Args:
        id: Id, alias or spec.
        buf: Buffers to bind it to.
        seed: Given to a creator whose signature names it.
        **kwargs: Parameters of the env, above those of the spec.

    Raises:
        UnknownEnvError: No env has the id.
        TypeError: A parameter does not exist or is of another type.
        ValueError: A parameter is out of range.
    """
    from puffer_spaces.adapt import as_puffer_env

    env_spec = id if isinstance(id, EnvSpec) else spec(id)
    creator = load_object(env_spec.entry_point)
    arguments = {**env_spec.kwargs, **check_parameters(env_spec, creator, kwargs)}
    if arguments:
        creator = functools.partial(creator, **arguments)
    try:
        return as_puffer_env(creator, buf=buf, seed=seed)
    except Exception as error:
        error.add_note(f"raised while {env_spec.id} was made by {env_spec.entry_point!r}")
        raise


def check_parameters(env_spec: EnvSpec, creator: Callable[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Check keyword arguments against the spec's parameters; a spec without any leaves it to the creator.

    Raises:
        TypeError: A parameter does not exist or is of another type.
        ValueError: A parameter is out of range.
    """
    if not env_spec.parameters:
        return dict(kwargs)
    parameters = {parameter.name: parameter for parameter in env_spec.parameters}
    named = set(parameters) | _named_arguments(creator)
    checked = {}
    for name, value in kwargs.items():
        if name not in named:
            near = difflib.get_close_matches(name, sorted(named), n=2)
            hint = (
                f"Did you mean {' or '.join(near)}?" if near else f"Its parameters are {', '.join(sorted(parameters))}."
            )
            raise TypeError(f"{env_spec.id} must get parameters it has; got {name}={value!r}. {hint}")
        checked[name] = parameters[name].check(value) if name in parameters else value
    return checked


def load_config(env_spec: EnvSpec | str) -> dict[str, Any]:
    """Return the parsed TOML beside an environment, or {} where it has none."""
    if not isinstance(env_spec, EnvSpec):
        env_spec = spec(env_spec)
    if env_spec.config is None:
        return {}
    module, path = _split("config", env_spec.id, env_spec.config)
    return tomllib.loads(importlib.resources.files(module).joinpath(path).read_text(encoding="utf-8"))


def load_object(name: str | Callable[..., Any]) -> Any:
    """Import "module:attribute". What is no string is returned as it is.

    Raises:
        ValueError: It is not of this form.
        AttributeError: The module has no such attribute.
        ImportError: The module cannot be imported.
    """
    if not isinstance(name, str):
        return name
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f'an entry point must be "module:attribute"; got {name!r}. Write the colon between the two.')
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        error.add_note(f"raised by the import of the entry point {name!r}")
        raise
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError as error:
        raise AttributeError(
            f"an entry point must name what its module has; got {name!r}, but {error}. Correct it."
        ) from None


@functools.cache
def _discovered() -> tuple[dict[str, EnvSpec], tuple[str, ...]]:
    """Return the specs of installed packages by id and alias, and a sentence for each package that failed."""
    found: dict[str, EnvSpec] = {}
    failures = []
    for entry_point in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        try:
            specs: Iterable[EnvSpec] = entry_point.load()()
            for env_spec in specs:
                for name in (env_spec.id, *env_spec.aliases):
                    found.setdefault(name, env_spec)
        except Exception as error:
            failures.append(
                f"The environments of {entry_point.value} could not be read: {type(error).__name__}: {error}"
            )
    return found, tuple(failures)


def _named_arguments(creator: Callable[..., Any]) -> set[str]:
    try:
        parameters = inspect.signature(creator).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
