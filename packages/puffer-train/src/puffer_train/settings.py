"""Settings from several places, laid over each other, each value with the place it came from.

From weak to strong: the dataclasses' defaults, the TOML beside the environment, the preset, the user's TOML
(`--config`), on resume the checkpoint, and the command line.
"""

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from puffer_spaces import EnvSpec, load_config
from puffer_train.arguments import nearest
from puffer_train.config import ConfigError, canonical_fields, preset_fields
from puffer_train.errors import UsageError
from puffer_train.options import Option, convert

DEFAULT = "default"
"""The source of a value that nobody set."""

COMMAND_LINE = "command line"
"""The source of a value whose origin the user has before his eyes."""

_NOT_RESUMED = (
    "run.run_id",
    "run.runs_dir",
    "run.dashboard",
    "run.dashboard_interval_s",
    "train.device",
    "train.stop_after_updates",
)


@dataclass(frozen=True)
class Layer:
    """Values from one place, by the names of options."""

    source: str
    values: Mapping[str, Any]


@dataclass
class Settings:
    """The values in force and where each comes from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_layers(cls, layers: Sequence[Layer]) -> "Settings":
        """Lay the layers over each other, the first one lowest."""
        settings = cls()
        for layer in layers:
            settings.values.update(layer.values)
            settings.sources.update(dict.fromkeys(layer.values, layer.source))
        return settings

    def group(self, name: str) -> dict[str, Any]:
        """Return the values of a group by the names of its fields."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def named(self, name: str) -> dict[str, Any]:
        """Return the values of a group that somebody set, those that are not defaults."""
        return {key: value for key, value in self.group(name).items() if self.sources[f"{name}.{key}"] != DEFAULT}

    @contextlib.contextmanager
    def sources_told(self) -> Iterator[None]:
        """Put behind a mistake of the block the origins of settings in it, `name=value`, that the user did not say."""
        try:
            yield
        except (UsageError, ConfigError) as error:
            told = self._sources_of(str(error))
            if not told:
                raise
            raise type(error)(f"{error} ({told})") from error

    def _sources_of(self, message: str) -> str:
        told = []
        for key, source in self.sources.items():
            name = key.partition(".")[2]
            if source not in (DEFAULT, COMMAND_LINE) and re.search(rf"\b{name}=", message):
                told.append(f"{name} is from {source}")
        return "; ".join(told)

    def to_toml(self, env_id: str, groups: Sequence[str]) -> str:
        """Return a TOML text with the source of each value behind it; values that are None are left out."""
        lines = [tomli_w.dumps({"env_id": env_id}).strip()]
        for group in groups:
            lines += ["", f"[{group}]"]
            for name, value in self.group(group).items():
                if value is not None:
                    plain = list(value) if isinstance(value, tuple) else value
                    lines.append(f"{tomli_w.dumps({name: plain}).strip()}  # {self.sources[f'{group}.{name}']}")
        return "\n".join(lines) + "\n"


def default_layer(options: Mapping[str, Option]) -> Layer:
    """Return the defaults of the grouped options."""
    return Layer(DEFAULT, {name: option.default for name, option in options.items() if "." in name})


def env_layer(spec: EnvSpec, options: Mapping[str, Option]) -> Layer:
    """Return the settings of the TOML beside an environment; tables that are no groups are remarks.

    Raises:
        UsageError: If a key is unknown or a value of a wrong type.
    """
    source = Path((spec.config or "").replace(":", "/")).name
    groups = {name.partition(".")[0] for name in options if "." in name}
    tables = {name: table for name, table in load_config(spec).items() if name in groups}
    return Layer(source, _read_tables(tables, options, source))


def preset_layer(name: str) -> Layer:
    """Return the fields of a preset.

    Raises:
        UsageError: If there is no such preset.
    """
    try:
        fields = preset_fields(name)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    return Layer(f"preset {name}", {f"train.{key}": value for key, value in fields.items()})


def file_layer(path: str, options: Mapping[str, Option], env_id: str | None = None) -> Layer:
    """Return the settings of a user's TOML file.

    Raises:
        UsageError: If the file cannot be read, is of another environment, or a table, key or value in it is wrong.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--config must be a TOML file that can be read; {path}: {reason}.") from error
    its_id = content.pop("env_id", env_id)
    if env_id not in (None, its_id):
        raise UsageError(f"{path} must be of {env_id}; it is of {its_id}. Take its line env_id out if it fits both.")
    groups = sorted({name.partition(".")[0] for name in options if "." in name})
    for name, table in content.items():
        if name not in groups or not isinstance(table, dict):
            raise UsageError(f"{path} must hold only the tables {', '.join(groups)}; got {name}.")
    return Layer(path, _read_tables(content, options, path))


def checkpoint_layer(config: Mapping[str, Mapping[str, Any]], options: Mapping[str, Option]) -> Layer:
    """Return the settings that a checkpoint was trained with, but for those that belong to one process."""
    values = {f"{group}.{key}": value for group, table in config.items() for key, value in table.items()}
    known = {name: value for name, value in values.items() if name in options and name not in _NOT_RESUMED}
    return Layer("checkpoint", known)


def _read_tables(tables: Mapping[str, Mapping[str, Any]], options: Mapping[str, Option], source: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for group, table in tables.items():
        for key, value in _canonical_table(group, table, source).items():
            name = f"{group}.{key}"
            if name not in options:
                near = nearest(name, list(options))
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                raise UsageError(f"{source} must hold only settings that exist; got {name}.{hint}")
            try:
                values[name] = None if value is None else convert(value, options[name].type)
            except ValueError as error:
                raise UsageError(f"{name} in {source} {error}.") from error
    return values


def _canonical_table(group: str, table: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    if group != "train":
        return table
    try:
        return canonical_fields(table)
    except ConfigError as error:
        raise UsageError(f"{source}: {error}") from error
