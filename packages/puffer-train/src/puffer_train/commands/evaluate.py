"""`puffer eval ID`: measure a checkpoint over whole episodes and print what it reaches.

Torch is imported when the words of the command line are known to be right.
"""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from puffer_spaces import EnvSpec
from puffer_train.arguments import parse_values, read_arguments, take_env_id
from puffer_train.environments import find_spec, make_vector
from puffer_train.errors import UsageError, usage_errors
from puffer_train.options import EVAL_ALIASES, eval_options, flat_options, make_options
from puffer_train.settings import COMMAND_LINE, Layer, Settings, checkpoint_layer, default_layer, env_layer

if TYPE_CHECKING:
    from puffer_train.evaluate import Evaluation

_COMMAND = "puffer eval"
_DESCRIPTION = (
    "Measure a trained policy in {env}. The environment's parameters and the policy are those of the checkpoint; "
    "--env.* options change parameters. Without --vec.num-envs there are at most as many worlds as episodes."
)


def main(words: list[str]) -> int:
    """Measure a trained policy over whole episodes."""
    env_id, words = take_env_id(words, _COMMAND)
    spec = None if env_id is None else find_spec(env_id)
    values = _read_values(spec, words)
    assert spec is not None  # without an id there was only the help, which ends the process
    from puffer_train.checkpoint import read_checkpoint
    from puffer_train.checkpoint_folder import find_checkpoint

    path = find_checkpoint(values["runs_dir"], spec.id, values["checkpoint"])
    state, metadata = read_checkpoint(path, needs=("policy", "normalizer"))
    config = metadata.get("config", {})
    evaluation = _evaluate(spec, _settings(spec, values, config), values, state, config)
    if values["json"]:
        sys.stdout.write(f"{json.dumps(evaluation.to_dict())}\n")
    else:
        sys.stdout.write(f"checkpoint: {path} (update {metadata.get('update', '?')})\n")
        _print_table(evaluation)
    return 0


def _read_values(spec: EnvSpec | None, words: list[str]) -> dict[str, Any]:
    """Return the values of all options, those of groups only where the command line names them."""
    options_class = eval_options(spec)
    options = flat_options(options_class)
    command = f"{_COMMAND} {spec.id}" if spec is not None else f"{_COMMAND} ID"
    arguments = read_arguments(words, options, command, EVAL_ALIASES)
    description = _DESCRIPTION.format(env=spec.id if spec is not None else "the environment ID")
    named = parse_values(arguments, options_class, make_options(options_class, {}), description)
    values = {name: option.default for name, option in options.items() if "." not in name}
    values.update(named)
    for name in ("episodes", "max_steps"):
        if values[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1; got {values[name]}.")
    if values["seed"] < 0:
        raise UsageError(f"--seed must not be negative; got {values['seed']}.")
    return values


def _settings(spec: EnvSpec, values: Mapping[str, Any], config: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Lay the environment's parameters over each other: its own, the checkpoint's, the command line's."""
    options = {name: option for name, option in flat_options(eval_options(spec)).items() if "." in name}
    vec = {"vec.num_envs": min(options["vec.num_envs"].default, values["episodes"])}
    return Settings.from_layers(
        [
            default_layer(options),
            Layer("default", vec),
            Layer("environment", {k: v for k, v in env_layer(spec, options).values.items() if k.startswith("env.")}),
            checkpoint_layer({"env": config.get("env", {})}, options),
            Layer(COMMAND_LINE, {name: value for name, value in values.items() if "." in name}),
        ]
    )


def _evaluate(
    spec: EnvSpec,
    settings: Settings,
    values: Mapping[str, Any],
    state: Mapping[str, Any],
    config: Mapping[str, Mapping[str, Any]],
) -> "Evaluation":
    from puffer_train.device import choose_device
    from puffer_train.evaluate import evaluate_policy
    from puffer_train.policies import load_player

    with make_vector(spec, settings.group("vec"), settings.named("env"), values["seed"]) as vec, usage_errors():
        device = choose_device(values["device"])
        policy, normalizer = load_player(spec, vec, config, state)
        return evaluate_policy(
            policy.to(device),
            vec,
            num_episodes=values["episodes"],
            deterministic=values["deterministic"],
            seed=values["seed"],
            device=device,
            normalizer=normalizer.to(device),
            max_steps=values["max_steps"],
        )


def _print_table(evaluation: "Evaluation") -> None:
    table = Table()
    for column in ("", "mean", "std"):
        table.add_column(column, justify="right" if column else "left")
    for name, numbers in evaluation.to_dict().items():
        if isinstance(numbers, dict):
            table.add_row(name, f"{numbers['mean']:.4g}", f"{numbers['std']:.4g}")
    sys.stdout.write(f"{evaluation.env_id}: {evaluation.num_episodes} episodes\n")
    Console(file=sys.stdout).print(table)
