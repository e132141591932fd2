"""A run from its settings to its last checkpoint."""

import contextlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from puffer_spaces import EnvSpec
from puffer_train.checkpoint import read_checkpoint
from puffer_train.config import RunConfig
from puffer_train.dashboard import Dashboard, make_dashboard
from puffer_train.distributed import Ranks
from puffer_train.errors import NonFiniteError, RunError, UsageError, no_exit, usage_errors
from puffer_train.policies import make_policy
from puffer_train.run import RunFolder, run_folder_of
from puffer_train.settings import Settings
from puffer_train.signals import StopSignals
from puffer_train.trainer import PuffeRL

_GROUPS = ("env", "vec", "policy", "train", "run")
_NEEDED = (
    "policy", "optimizer", "normalizer", "return_scale", "generator", "rollout", "interval", "changes", "vec",
    "other_ranks",
)  # fmt: skip


def train(spec: EnvSpec, vec: Any, settings: Settings, checkpoint: Path | None, stop: StopSignals) -> int:
    """Make what a run needs, run its updates, and return the exit code.

    Args:
        spec: The environment.
        vec: The vector env, which is closed in the end.
        settings: All settings.
        checkpoint: The file of the checkpoint that the run goes on from.
        stop: Ends the run.

    Returns:
        0, or 128 + the number of the signal that ended the run.
    """
    config = RunConfig(**settings.group("run"))
    with contextlib.ExitStack() as stack:
        with usage_errors():
            state, saved = ({}, {}) if checkpoint is None else read_checkpoint(checkpoint, needs=_NEEDED)
            with settings.sources_told():
                policy = make_policy(spec, vec, settings.named("policy"), settings.values["train.seed"])
                trainer = PuffeRL(vec, policy, **settings.group("train"))
            stack.callback(trainer.close)
            if checkpoint is not None:
                trainer.load_state_dict(state)
            if _is_stop_wanted(stop, trainer.ranks):
                return stop.exit_code
            run = _open_run(spec, settings, checkpoint, saved) if trainer.ranks.is_first else None
        if run is not None:
            stack.enter_context(run)
        dashboard = make_dashboard(
            config.dashboard,
            title=f"puffer train {spec.id}",
            total_agent_steps=trainer.total_agent_steps,
            place="" if run is None else str(run.path),
            interval_s=config.dashboard_interval_s,
            rank=trainer.ranks.rank,
        )
        stack.callback(dashboard.close)
        begun = "" if checkpoint is None else f"; it goes on after update {trainer.epoch}"
        dashboard.message("" if run is None else f"run folder: {run.path}{begun}")
        if checkpoint is not None and trainer.done:
            dashboard.message(_why_done(trainer))
        path = run_updates(trainer, run, config, dashboard, stop, _about(spec, settings))
        ending = "\n".join(text for text in (trainer.where_time_went(), f"checkpoint: {path}") if text)
        if stop.received is not None and run is not None:
            ending += f"\ngo on with: puffer train {spec.id} --resume {run.path}"
        dashboard.message(ending)
    return stop.exit_code


def _why_done(trainer: PuffeRL) -> str:
    stop_after = trainer.config.stop_after_updates
    if stop_after is not None and trainer.epoch >= stop_after:
        return f"--train.stop-after-updates counts all updates of the run, which has {trainer.epoch}; got {stop_after}"
    return "the run has all its updates; --train.total-timesteps or --train.num-iterations adds some"


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
    saving = _Saving(trainer, run, metadata)
    first_epoch = trainer.epoch
    refusal: OSError | None = None
    with saving.rescue():
        while True:
            is_last = _is_stop_wanted(stop, trainer.ranks, refusal) or trainer.done
            if is_last or (trainer.epoch > first_epoch and trainer.epoch % run_config.checkpoint_interval == 0):
                saving.save()
            if refusal is not None:
                raise refusal
            if is_last:
                return saving.path
            trainer.evaluate()
            saving.keep_learned()
            trainer.train()
            if trainer.epoch % run_config.log_interval == 0:
                row = trainer.mean_and_log()
                if run is not None:
                    run.log(row)
                saving.scores.add(row)
                try:
                    dashboard.update(row)
                except OSError as error:  # nobody reads any more
                    refusal = error


def _is_stop_wanted(stop: StopSignals, ranks: Ranks, refusal: OSError | None = None) -> bool:
    """Return whether any process has got a signal or has an output that refuses; a signal becomes that of all."""
    signal_number, is_refused = map(max, zip(*ranks.all((stop.received or 0, refusal is not None)), strict=True))
    if signal_number and stop.received is None:
        stop.received = signal_number
    return bool(signal_number or is_refused)


class _Saving:
    """Writes the checkpoints of a run; on ranks other than the first it only takes part.

    Attributes:
        scores: Gets each row of metrics.
        path: The last checkpoint.
    """

    def __init__(self, trainer: PuffeRL, run: RunFolder | None, metadata: Mapping[str, Any]) -> None:
        self.scores = _MeanScore()
        self.path: Path | None = None
        self._trainer = trainer
        self._run = run
        self._metadata = metadata
        self._learned: dict[str, Any] = {}

    def save(self) -> None:
        """Write a checkpoint of all processes."""
        state = self._trainer.state_dict()
        if self._run is not None:
            self._write(self._run, state)

    def keep_learned(self) -> None:
        """Remember what was learned; a rollout has just shown that the policy's outputs are finite."""
        if self._run is not None:
            self._learned = self._trainer.learned_state_dict()

    @contextlib.contextmanager
    def rescue(self) -> Iterator[None]:
        """Leave a checkpoint of the last good policy after an error, and say which it is."""
        try:
            with no_exit():
                yield
        except Exception as error:
            if self._run is not None:
                self._rescue(self._run, error)
            if self.path is not None:
                error.add_note(f"the last good checkpoint: {self.path}")
            raise

    def _rescue(self, run: RunFolder, error: Exception) -> None:
        learned = self._learned
        if not learned:  # nothing was
            return
        is_in_rollout = self._trainer.epoch > learned["epoch"]
        if is_in_rollout and not isinstance(error, NonFiniteError):  # the policy has nothing to do with it
            learned = self._trainer.learned_state_dict()
        if self.path != run.checkpoints.path_of(learned["epoch"]):
            with contextlib.suppress(RunError):  # the disk may be what failed
                self._write(run, learned)

    def _write(self, run: RunFolder, state: Mapping[str, Any]) -> None:
        progress = {"update": state["epoch"], "agent_steps": state["agent_steps"], "score": self.scores.take()}
        self.path = run.save_checkpoint(state, {**self._metadata, **progress})


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


def _about(spec: EnvSpec, settings: Settings) -> dict[str, Any]:
    """Return what each checkpoint of a run says of itself, beside its progress."""
    return {
        "env_id": spec.id,
        "env_version": spec.version,
        "puffer_train": importlib.metadata.version("puffer-train"),
        "config": {
            **{group: settings.group(group) for group in ("vec", "train", "run")},
            **{group: settings.named(group) for group in ("env", "policy")},
        },
    }


def _open_run(spec: EnvSpec, settings: Settings, checkpoint: Path | None, saved: Mapping[str, Any]) -> RunFolder:
    """Make or reopen the folder; after an error there is what there was before."""
    config = RunConfig(**settings.group("run"))
    path = None if checkpoint is None else run_folder_of(checkpoint)
    is_new = path is None or config.run_id not in (None, path.name)
    keep_last = config.keep_checkpoints
    try:
        if path is None or is_new:
            run = RunFolder.create(config.runs_dir, spec.id, config.run_id, keep_last=keep_last)
        else:
            update, agent_steps = saved["update"], saved["agent_steps"]
            run = RunFolder.reopen(path, update=update, agent_steps=agent_steps, keep_last=keep_last)
    except OSError as error:
        raise UsageError(f"the run folder must be writable; {error.filename}: {error.strerror}.") from error
    try:
        run.write_config(settings.to_toml(spec.id, _GROUPS))
    except RunError as error:
        (run.discard if is_new else run.close)()
        raise UsageError(str(error)) from error
    return run
