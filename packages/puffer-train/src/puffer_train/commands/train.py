"""`puffer train ID`: from the command line to the settings of a run, and what is wrong with them.

Torch takes seconds to import. It is left until the settings are right, so that a mistake is answered at once.
"""

import signal
from collections.abc import Mapping
from pathlib import Path

from puffer_spaces import EnvSpec
from puffer_train.arguments import Arguments, parse_values, read_arguments, take_env_id
from puffer_train.config import TrainConfig
from puffer_train.environments import find_spec, make_vector
from puffer_train.errors import UsageError, usage_errors
from puffer_train.launch import Launch, share_of_vector
from puffer_train.options import TRAIN_ALIASES, Option, flat_options, make_options, train_options
from puffer_train.settings import (
    COMMAND_LINE,
    Layer,
    Settings,
    checkpoint_layer,
    default_layer,
    env_layer,
    file_layer,
    preset_layer,
)
from puffer_train.signals import StopSignals

_AT_LEAST = {
    "policy.hidden_size": 1,
    "policy.num_layers": 1,
    "run.checkpoint_interval": 1,
    "run.keep_checkpoints": 0,
    "run.log_interval": 1,
    "run.dashboard_interval_s": 0,
}

_LAUNCHERS_GRACE_S = 5.0
_COMMAND = "puffer train"
_DESCRIPTION = (
    "Train a policy in {env}. Values come from, weak to strong: defaults, the environment's own file, --train.preset, "
    "--config FILE, on resume the checkpoint, and the options given here."
)


def main(words: list[str]) -> int:
    """Train a policy in an environment."""
    env_id, words = take_env_id(words, _COMMAND)
    spec = None if env_id is None else find_spec(env_id)
    settings, checkpoint = read_settings(spec, words)
    assert spec is not None  # without an id there was only the help, which ends the process
    launch = Launch.from_environment()
    vec_fields = share_of_vector(launch, settings.group("vec"))
    with StopSignals(grace_s=0.0 if launch.is_alone else _LAUNCHERS_GRACE_S) as stop:
        try:
            with make_vector(spec, vec_fields, settings.named("env"), settings.values["train.seed"]) as vec:
                from puffer_train.training import train

                return train(spec, vec, settings, checkpoint, stop)
        except KeyboardInterrupt:  # the second signal, or one that somebody raised
            return stop.exit_code or 128 + signal.SIGINT


def read_settings(spec: EnvSpec | None, words: list[str]) -> tuple[Settings, Path | None]:
    """Return the settings that a command line asks for, each with its source, and the checkpoint to go on from.

    Nothing is written.

    Raises:
        UsageError: For the first thing that is wrong.
        CheckpointError: If the checkpoint to go on from is missing or unusable.
        SystemExit: After the help.
    """
    options_class = train_options(spec)
    options = flat_options(options_class)
    command = f"{_COMMAND} {spec.id}" if spec is not None else f"{_COMMAND} ID"
    arguments = read_arguments(words, options, command, TRAIN_ALIASES)
    below = [default_layer(options)] + ([] if spec is None else [env_layer(spec, options)])
    config_path = _word(arguments, "config")
    above = [] if config_path is None else [file_layer(config_path, options, None if spec is None else spec.id)]
    checkpoint = None if spec is None else _find_checkpoint(spec, arguments, [*below, *above])
    if checkpoint is not None:
        above.append(_layer_of(checkpoint, options))
    preset = preset_layer(_preset_name([*below, *above], arguments, checkpoint is not None))
    layers = [*below, preset, *above]
    defaults = make_options(options_class, Settings.from_layers(layers).values)
    description = _DESCRIPTION.format(env=spec.id if spec is not None else "the environment ID")
    named = parse_values(arguments, options_class, defaults, description)
    settings = Settings.from_layers([*layers, Layer(COMMAND_LINE, named)])
    if spec is not None:
        _check(settings)
    return settings, checkpoint


def _word(arguments: Arguments, name: str) -> str | None:
    words = arguments.words.get(name)
    return " ".join(words) if words else None


def _find_checkpoint(spec: EnvSpec, arguments: Arguments, layers: list[Layer]) -> Path | None:
    which = _word(arguments, "resume")
    if which is None:
        return None
    from puffer_train.checkpoint_folder import find_checkpoint

    runs_dir = _word(arguments, "run.runs_dir") or Settings.from_layers(layers).values["run.runs_dir"]
    return find_checkpoint(runs_dir, spec.id, which)


def _layer_of(checkpoint: Path, options: Mapping[str, Option]) -> Layer:
    from puffer_train.checkpoint import read_metadata

    return checkpoint_layer(read_metadata(checkpoint).get("config", {}), options)


def _preset_name(layers: list[Layer], arguments: Arguments, goes_on: bool) -> str:
    in_layers: str = Settings.from_layers(layers).values["train.preset"]
    name = _word(arguments, "train.preset") or in_layers
    if goes_on and name != in_layers:
        raise UsageError(
            f"--train.preset must stay {in_layers} when a run goes on; got {name}. Give the single options to change."
        )
    return name


def _check(settings: Settings) -> None:
    """Check what can be checked before anything is made."""
    with usage_errors():
        TrainConfig(**settings.group("train")).check()
    for name, low in _AT_LEAST.items():
        if not settings.values[name] >= low:
            raise UsageError(f"--{name.replace('_', '-')} must be at least {low}; got {settings.values[name]}.")
