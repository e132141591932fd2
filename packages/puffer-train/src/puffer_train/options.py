"""The options of each command: which groups it has, and every option's name, type and default.

The dataclasses of `config.py` are the groups `vec`, `policy`, `train` and `run`. The group `env` is made from the
parameters that an environment's registration declares.
"""

import ast
import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

import tyro

from puffer_spaces import EnvSpec
from puffer_train.config import ALIASES, PolicyConfig, RunConfig, TrainConfig, VecConfig

AnyValue = Annotated[
    Any,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="VALUE",
        instance_from_str=lambda words: literal_or_text(words[0]),
        is_instance=lambda _: True,
        str_from_instance=lambda value: [str(value)],
    ),
]
"""The type of a parameter that says nothing of its type: a Python literal, else text."""

TRAIN_ALIASES = {f"train.{alias}": f"train.{name}" for alias, name in ALIASES.items()}
EVAL_ALIASES = {"run.runs_dir": "runs_dir", "train.device": "device", "train.seed": "seed"}


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Attributes:
        name: `group.field`, or `field` where it has no group; with underscores.
        type: What values must be: bool, int, float, str, a Literal, or one of these or None.
        default: The value where nobody gives one.
    """

    name: str
    type: Any
    default: Any

    @property
    def flag(self) -> str:
        """How the option is written on the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class TrainFiles:
    """Options of `puffer train` that stand outside the groups."""

    config: str | None = None
    """TOML file with tables [env], [vec], [policy], [train] and [run]; it comes after the environment's own file."""
    resume: str | None = None
    """Go on with a run: its id, `latest`, or the path of a run folder or checkpoint."""


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """Options of `puffer eval` that stand outside the groups."""

    checkpoint: str = "latest"
    """`latest`, `best`, a run's id, or the path of a run folder or checkpoint."""
    episodes: int = 32
    """Episodes that are counted: the same number from each world, fixed before the start."""
    json: bool = False
    """Print one JSON object and nothing else."""
    deterministic: bool = False
    """Take the most probable action instead of sampling."""
    seed: int = 0
    """Root of the worlds' seeds and of the action noise."""
    device: str = "auto"
    """Where the policy runs: auto, cpu, cuda, cuda:0 ..."""
    max_steps: int = 100_000
    """Steps of the worlds after which the evaluation ends, whether or not all episodes have."""
    runs_dir: str = "runs"
    """Folder of all runs."""


def train_options(spec: EnvSpec | None) -> type:
    """Return the dataclass of all options of `puffer train` for an environment (None: without its own parameters)."""
    return _options_class(
        "TrainOptions",
        TrainFiles,
        {"env": env_options(spec), "vec": VecConfig, "policy": PolicyConfig, "train": TrainConfig, "run": RunConfig},
    )


def eval_options(spec: EnvSpec | None) -> type:
    """Return the dataclass of all options of `puffer eval` for an environment."""
    return _options_class("EvalOptions", EvalSettings, {"env": env_options(spec), "vec": VecConfig})


def env_options(spec: EnvSpec | None) -> type:
    """Return a dataclass of an environment's parameters; a default in the registration's kwargs wins over theirs."""
    fields: list[tuple[str, Any, Any]] = []
    for parameter in spec.parameters if spec is not None else ():
        default = spec.kwargs.get(parameter.name, parameter.default) if spec is not None else parameter.default
        kind: Any = parameter.type
        if kind not in (bool, int, float, str):
            kind = AnyValue
        elif default is None:
            kind = kind | None
        bounds = _bounds(parameter.low, parameter.high)
        text = " ".join(part for part in (parameter.doc, bounds) if part)
        fields.append((parameter.name, Annotated[kind, tyro.conf.arg(help=text)], default))
    return make_dataclass("EnvOptions", fields, frozen=True, kw_only=True)


def flat_options(options_class: type) -> dict[str, Option]:
    """Return all options of an options class by name."""
    result: dict[str, Option] = {}
    for name, kind, default in _fields(options_class):
        if dataclasses.is_dataclass(kind):
            for inner, inner_kind, inner_default in _fields(typing.cast(type, kind)):
                result[f"{name}.{inner}"] = Option(f"{name}.{inner}", inner_kind, inner_default)
        else:
            result[name] = Option(name, kind, default)
    return result


def make_options(options_class: type, values: Mapping[str, Any]) -> Any:
    """Build an options object from flat values; those that are not named keep their defaults."""
    arguments: dict[str, Any] = {}
    for name, kind, _ in _fields(options_class):
        if dataclasses.is_dataclass(kind):
            prefix = f"{name}."
            inner = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
            arguments[name] = typing.cast(type, kind)(**inner)
        elif name in values:
            arguments[name] = values[name]
    return options_class(**arguments)


def flat_values(options: Any) -> dict[str, Any]:
    """Return the values of an options object by the names of `flat_options`."""
    result: dict[str, Any] = {}
    for name in flat_options(type(options)):
        group, _, inner = name.rpartition(".")
        result[name] = getattr(getattr(options, group) if group else options, inner)
    return result


def convert(value: Any, kind: Any) -> Any:
    """Return a value of a TOML file as the type that an option wants.

    Raises:
        ValueError: If it is none; the message says what is wanted.
    """
    alternatives = _alternatives(kind)
    for one in alternatives:
        if one is Any:
            return value
        if typing.get_origin(one) is Literal and value in typing.get_args(one):
            return value
        if one in (bool, str) and type(value) is one:
            return value
        if one is int and isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
            return fitting_int(int(value))
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    raise ValueError(f"must be {describe_type(kind)}; got {value!r}")


def fitting_int(value: int) -> int:
    """Return a whole number that fits 64 bits.

    Raises:
        ValueError: If it does not.
    """
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"must fit 64 bits; got {value}")
    return value


def describe_type(kind: Any) -> str:
    """Say in words what values a type has."""
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "text", type(None): "None"}
    texts = []
    for one in _alternatives(kind, with_none=True):
        if typing.get_origin(one) is Literal:
            texts.append(f"one of {', '.join(map(str, typing.get_args(one)))}")
        else:
            texts.append(words.get(one, str(one)))
    return " or ".join(texts)


def literal_or_text(word: str) -> Any:
    """Return the value that a word has in Python, such as 7, 0.5, None or [1, 2]; or the word itself."""
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def is_optional(kind: Any) -> bool:
    """Say whether None is a value of the type."""
    return type(None) in _alternatives(kind, with_none=True)


def _options_class(name: str, outer: type, groups: Mapping[str, type]) -> type:
    fields = [(group, kind, field(default_factory=kind)) for group, kind in groups.items()]
    return make_dataclass(name, fields, bases=(outer,), frozen=True, kw_only=True)


def _fields(options_class: type) -> list[tuple[str, Any, Any]]:
    hints = typing.get_type_hints(options_class)
    return [(item.name, hints[item.name], item.default) for item in dataclasses.fields(options_class)]


def _alternatives(kind: Any, *, with_none: bool = False) -> list[Any]:
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    alternatives = list(typing.get_args(kind)) if is_union else [kind]
    return alternatives if with_none else [one for one in alternatives if one is not type(None)]


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return f"(at most {_number(high)})" if high is not None else ""
    return f"(at least {_number(low)})" if high is None else f"({_number(low)} to {_number(high)})"


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:g}"
