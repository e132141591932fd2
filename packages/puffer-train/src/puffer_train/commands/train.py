"""`puffer train ID`: settings, checks, the loop of updates, and a clean end."""

import contextlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from puffer_spaces import EnvSpec
from puffer_train.arguments import Arguments, parse_values, read_arguments, take_env_id
from puffer_train.building import find_spec, make_policy, make_vector, usage_errors
from puffer_train.checkpoint import find_checkpoint, read_checkpoint
from puffer_train.config import RunConfig, TrainConfig
from puffer_train.dashboard import Dashboard, make_dashboard
from puffer_train.options import (
    TRAIN_ALIASES,
    UsageError,
    flat_options,
    make_options,
    train_options,
)
from puffer_train.run import RunFolder, run_folder_of
from puffer_train.settings import (
    Layer,
    Settings,
    checkpoint_layer,
    default_layer,
    env_layer,
    file_layer,
    preset_layer,
)
from puffer_train.signals import StopSignals
from puffer_train.trainer import PuffeRL

GROUPS = ("env", "vec", "policy", "train", "run")

_COMMAND = "puffer train"
_DESCRIPTION = (
    "Train a policy in {env}. Values come from, weak to strong: defaults, the environment's own file, --train.preset, "
    "--config FILE, on resume the checkpoint, and the options given here."
)


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint that a run goes on from."""

    path: Path
    state: dict[str, Any]
    metadata: dict[str, Any]


def main(words: list[str]) -> int:
    """Train a policy in an environment."""
    env_id, words = take_env_id(words, _COMMAND)
    spec = None if env_id is None else find_spec(env_id)
    settings, checkpoint = read_settings(spec, words)
    assert spec is not None  # without an id there was only the help, which ends the process
    with StopSignals() as stop:
        try:
            return train(spec, settings, checkpoint, stop)
        except KeyboardInterrupt:  # the second signal
            return stop.exit_code


def read_settings(spec: EnvSpec | None, words: list[str]) -> tuple[Settings, Checkpoint | None]:
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
    above = [] if config_path is None else [file_layer(config_path, options)]
    checkpoint = None if spec is None else _find_checkpoint(spec, arguments, [*below, *above])
    if checkpoint is not None:
        above.append(checkpoint_layer(checkpoint.metadata.get("config", {}), options))
    preset = preset_layer(_preset_name([*below, *above], arguments, checkpoint))
    layers = [*below, preset, *above]
    defaults = make_options(options_class, Settings.from_layers(layers).values)
    description = _DESCRIPTION.format(env=spec.id if spec is not None else "the environment ID")
    named = parse_values(arguments, options_class, defaults, description)
    settings = Settings.from_layers([*layers, Layer("command line", named)])
    if spec is not None:
        _check(settings)
    return settings, checkpoint


def train(spec: EnvSpec, settings: Settings, checkpoint: Checkpoint | None, stop: StopSignals) -> int:
    """Run the updates and return the exit code: 0, or 128 + the number of the signal that ended the run."""
    config = TrainConfig(**settings.group("train"))
    run_config = RunConfig(**settings.group("run"))
    with contextlib.ExitStack() as stack:
        with usage_errors():
            vec = stack.enter_context(make_vector(spec, settings.group("vec"), settings.named("env"), config.seed))
            policy = make_policy(spec, vec, settings.named("policy"), config.seed)
            trainer = PuffeRL(vec, policy, **settings.group("train"))
            stack.callback(trainer.close)
            if checkpoint is not None:
                trainer.load_state_dict(checkpoint.state)
            if stop.received is not None:
                return stop.exit_code
            run = _open_run(spec, run_config, checkpoint) if trainer.ranks.is_first else None
        if run is not None:
            stack.callback(run.close)
            run.write_config(settings.to_toml(spec.id, GROUPS))
        dashboard = make_dashboard(
            run_config.dashboard,
            title=f"{_COMMAND} {spec.id}",
            total_agent_steps=trainer.total_agent_steps,
            place="" if run is None else str(run.path),
            interval_s=run_config.dashboard_interval_s,
            rank=trainer.ranks.rank,
        )
        stack.callback(dashboard.close)
        begun = "" if checkpoint is None else f"; it goes on after update {trainer.epoch}"
        dashboard.message("" if run is None else f"run folder: {run.path}{begun}")
        if checkpoint is not None and trainer.is_done:
            dashboard.message(
                "the run has all its updates; --train.total-timesteps or --train.num-iterations adds some"
            )
        metadata = {
            "env_id": spec.id,
            "env_version": spec.version,
            "puffer_train": importlib.metadata.version("puffer-train"),
            "config": {
                **{group: settings.group(group) for group in ("vec", "train", "run")},
                **{group: settings.named(group) for group in ("env", "policy")},
            },
        }
        path = run_updates(trainer, run, run_config, dashboard, stop, metadata)
        ending = f"checkpoint: {path}"
        if stop.received is not None and run is not None:
            ending += f"\ngo on with: {_COMMAND} {spec.id} --resume {run.path}"
        dashboard.message(ending)
    return stop.exit_code


def run_updates(
    trainer: PuffeRL,
    run: RunFolder | None,
    run_config: RunConfig,
    dashboard: Dashboard,
    stop: StopSignals,
    metadata: Mapping[str, Any],
) -> Path | None:
    """Repeat evaluate and train until the run's end or a signal.

    Args:
        trainer: What is trained.
        run: Where metrics and checkpoints go; None on ranks other than the first.
        run_config: How often they are written.
        dashboard: Shows each interval.
        stop: Ends the run after the update in which a signal came.
        metadata: What each checkpoint says of itself, beside its progress.

    Returns:
        The path of the last checkpoint.
    """
    scores = _MeanScore()
    saved_at = -1
    path = None
    while True:
        is_last = trainer.is_done or stop.received is not None
        is_due = trainer.epoch > 0 and trainer.epoch % run_config.checkpoint_interval == 0
        if run is not None and trainer.epoch != saved_at and (is_last or is_due):
            progress = {"update": trainer.epoch, "agent_steps": trainer.agent_steps, "score": scores.take()}
            path = run.save_checkpoint(trainer.state_dict(), {**metadata, **progress})
            saved_at = trainer.epoch
        if is_last:
            return path
        trainer.evaluate()
        trainer.train()
        if trainer.epoch % run_config.log_interval == 0:
            row = trainer.mean_and_log()
            if run is not None:
                run.metrics.log(row)
            dashboard.update(row)
            scores.add(row)


class _MeanScore:
    """The mean score of the episodes since the last checkpoint, which decides whether that is the best one."""

    def __init__(self) -> None:
        self._total = self._num_episodes = 0.0

    def add(self, row: Mapping[str, float]) -> None:
        if "environment/score" in row:
            num_episodes = row.get("environment/num_episodes", 1.0)
            self._total += row["environment/score"] * num_episodes
            self._num_episodes += num_episodes

    def take(self) -> float | None:
        mean = self._total / self._num_episodes if self._num_episodes else None
        self._total = self._num_episodes = 0.0
        return mean


def _word(arguments: Arguments, name: str) -> str | None:
    words = arguments.words.get(name)
    return " ".join(words) if words else None


def _find_checkpoint(spec: EnvSpec, arguments: Arguments, layers: list[Layer]) -> Checkpoint | None:
    which = _word(arguments, "resume")
    if which is None:
        return None
    runs_dir = _word(arguments, "run.runs_dir") or Settings.from_layers(layers).values["run.runs_dir"]
    path = find_checkpoint(runs_dir, spec.id, which)
    return Checkpoint(path, *read_checkpoint(path))


def _preset_name(layers: list[Layer], arguments: Arguments, checkpoint: Checkpoint | None) -> str:
    in_layers: str = Settings.from_layers(layers).values["train.preset"]
    name = _word(arguments, "train.preset") or in_layers
    if checkpoint is not None and name != in_layers:
        raise UsageError(
            f"--train.preset must stay {in_layers} when a run goes on; got {name}. Give the single options to change."
        )
    return name


def _check(settings: Settings) -> None:
    """Check what can be checked before anything is made."""
    with usage_errors():
        TrainConfig(**settings.group("train")).check()
    run = RunConfig(**settings.group("run"))
    for name, value, low in (
        ("checkpoint-interval", run.checkpoint_interval, 1),
        ("keep-checkpoints", run.keep_checkpoints, 0),
        ("log-interval", run.log_interval, 1),
        ("dashboard-interval-s", run.dashboard_interval_s, 0),
    ):
        if value < low:
            raise UsageError(f"--run.{name} must be at least {low}; got {value}.")


def _open_run(spec: EnvSpec, config: RunConfig, checkpoint: Checkpoint | None) -> RunFolder:
    path = None if checkpoint is None else run_folder_of(checkpoint.path)
    try:
        if checkpoint is None or path is None or config.run_id not in (None, path.name):
            return RunFolder.create(config.runs_dir, spec.id, config.run_id, keep_last=config.keep_checkpoints)
        update, agent_steps = checkpoint.metadata["update"], checkpoint.metadata["agent_steps"]
        return RunFolder.reopen(path, update=update, agent_steps=agent_steps, keep_last=config.keep_checkpoints)
    except OSError as error:
        raise UsageError(f"the run folder must be writable; {error.filename}: {error.strerror}.") from error
