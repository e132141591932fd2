"""All settings of a run: names, types, defaults and help stand here and nowhere else.

`TrainConfig` speaks PufferLib's and CleanRL's words; names that differ between the two are accepted as aliases. A size
of None is derived: `TrainConfig.resolve(vec)` fills it in and returns the config that the trainer runs with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from puffer_train.presets import ALIASES, CHANGEABLE, PRESETS
from puffer_train.validation import (
    ConfigError,
    check_kinds,
    check_observations,
    check_puffer3,
    check_ranges,
    check_sizes,
    default_minibatch,
    suggestion,
)

__all__ = [
    "ALIASES",
    "CHANGEABLE",
    "PRESETS",
    "ConfigError",
    "PolicyConfig",
    "RunConfig",
    "TrainConfig",
    "VecConfig",
    "canonical_fields",
    "preset_fields",
]


class _Vector(Protocol):
    """What the checks read of a vector environment."""

    num_agents: int
    single_observation_space: Any


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to learn; the fields of `PuffeRL`."""

    seed: int = 1
    """Root of all randomness: environments, action noise, minibatch order, initial weights."""
    device: str = "auto"
    """Where the policy runs: auto, cpu, cuda, cuda:0 ..."""
    preset: Literal["default", "cleanrl", "puffer3"] = "default"
    """Named set of fields to start from."""
    total_timesteps: int = 10_000_000
    """Agent steps (steps times agents, padding not counted) after which the run ends."""
    num_iterations: int | None = None
    """Updates after which the run ends, instead of total_timesteps."""
    stop_after_updates: int | None = None
    """Stop early after this many updates in all, with the schedules of the whole run; resume goes on from there."""
    batch_size: int | None = None
    """Agent steps per update: a multiple of agents times horizon. None: agents times horizon."""
    horizon: int = 64
    """Transitions in a segment, the unit of storage, memory and advantages."""
    minibatch_size: int | None = None
    """Agent steps per gradient step: a multiple of horizon that divides batch_size. None: a quarter of the batch."""
    microbatch_size: int | None = None
    """Agent steps that pass the network at once. None: on a CPU 4096, with memory 32768, else a whole minibatch."""
    update_epochs: float = 4.0
    """Passes over the batch per update, a replay ratio: 0.5 uses half of the segments, 2.5 two and a half times all."""
    minibatch_unit: Literal["segment", "transition"] = "segment"
    """What is shuffled: whole segments (needed for memory) or single transitions."""
    segment_blocks: int = 1
    """Blocks of segments that share equally in each minibatch; W gives the order that W processes have."""
    learning_rate: float = 3e-4
    """Step size of the optimizer at the start."""
    anneal_lr: bool = True
    """Follow the schedule; off keeps the learning rate constant."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Curve of the learning rate over the run."""
    min_lr_ratio: float = 0.0
    """Learning rate at the end of the run over that at the start."""
    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """Muon updates the matrices, AdamW the rest."""
    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients."""
    adam_beta2: float = 0.999
    """Decay of Adam's mean of squared gradients."""
    adam_eps: float = 1e-5
    """Term added to the root of Adam's mean of squared gradients."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW and Muon."""
    muon_momentum: float = 0.95
    """Nesterov momentum of Muon."""
    max_grad_norm: float = 0.5
    """Bound of the global gradient norm."""
    gamma: float = 0.99
    """Discount per step."""
    gae_lambda: float = 0.95
    """Decay of the advantage trace: 0 is one-step TD, 1 is Monte Carlo."""
    rho_clip: float = 1.0
    """Bound of the importance ratio in value targets, on passes after the first."""
    trace_clip: float = 1.0
    """Bound of the importance ratio along the trace, on passes after the first."""
    recompute_advantages: Literal["never", "epoch", "minibatch"] = "epoch"
    """When values, ratios and advantages are brought up to date; minibatch belongs to the puffer3 objective."""
    normalize_advantages: Literal["batch", "minibatch", "none"] = "batch"
    """Over what advantages are given mean 0 and standard deviation 1."""
    objective: Literal["ppo", "puffer3"] = "ppo"
    """Loss: clipped PPO, or that of PufferLib 3.0 for comparisons."""
    clip_coef: float = 0.2
    """Bound of the probability ratio's distance from 1."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    vf_clip_coef: float | None = None
    """Bound of the value's distance from that of the rollout. None: no bound."""
    ent_coef: float = 0.01
    """Weight of the entropy at the start."""
    ent_coef_final: float | None = None
    """Weight of the entropy at the end of the run, reached linearly. None: constant."""
    target_kl: float | None = None
    """Stop the passes of an update before a step from a policy that is farther than this. None: never."""
    normalize_observations: bool = True
    """Give float vectors mean 0 and standard deviation 1; images and discrete leaves stay as they are."""
    observation_clip: float = 10.0
    """Bound of normalised observations."""
    normalize_returns: bool = True
    """Learn values of rewards divided by the running scale of discounted returns."""
    reward_clip: float | None = None
    """Bound of a reward's absolute value. None: no bound."""
    priority_alpha: float = 0.8
    """Exponent of the segment priorities of the puffer3 objective."""
    priority_beta: float = 0.2
    """Initial exponent of the importance weights of the puffer3 objective."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the network; values, advantages and weights stay float32."""
    cpu_offload: bool = False
    """Keep the observations of a rollout in pinned host memory; minibatches of them go to the device."""
    compile: bool = False
    """Compile the network's forward and backward pass with torch.compile."""
    cpu_threads: int | None = None
    """Threads of torch in this process. None: as they are."""
    keep_freed_memory: bool = True
    """Let this process keep the memory it frees, on a CPU with glibc: updates of small networks are twice as fast."""
    rank_timeout_s: float = 300.0
    """Seconds that a process under torchrun waits for the others before the run ends with an error."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> TrainConfig:
        """Make a config from keyword arguments: aliases are translated, then defaults < preset < `fields`.

        Raises:
            ConfigError: If a field or preset is unknown, given twice under two names, or has a value of a wrong kind.
        """
        named = canonical_fields(fields)
        preset = named.get("preset", "default")
        config = cls(**{**preset_fields(preset), **named})
        config.check()
        return config

    def check(self, vec: _Vector | None = None, num_processes: int = 1) -> None:
        """Check the values, and with a vector environment also whether they fit it.

        Raises:
            ConfigError: For the first thing that does not fit; the message says what would.
        """
        preset_fields(self.preset)
        check_kinds(self)
        check_ranges(self)
        if self.objective == "puffer3":
            check_puffer3(self, num_processes)
        elif self.recompute_advantages == "minibatch":
            raise ConfigError(
                "recompute_advantages must be never or epoch with objective=ppo; got minibatch. "
                "Use epoch, or objective=puffer3."
            )
        if vec is not None:
            check_observations(vec.single_observation_space)
            check_sizes(self.resolve(vec, num_processes), num_processes)

    def resolve(self, vec: _Vector, num_processes: int = 1) -> TrainConfig:
        """Return a copy in which sizes that are None have their values.

        Args:
            vec: The vector environment of one process.
            num_processes: Processes that train together. Sizes count the agent steps of all.

        Raises:
            ConfigError: If the batch is no whole number of rollouts.
        """
        num_agents = vec.num_agents * num_processes
        smallest = num_agents * self.horizon
        batch_size = smallest if self.batch_size is None else self.batch_size
        if batch_size % smallest:
            raise ConfigError(
                "batch_size must be a multiple of num_agents times horizon; "
                f"got batch_size={batch_size}, num_agents={num_agents}, horizon={self.horizon}. "
                f"Use batch_size={max(1, round(batch_size / smallest)) * smallest}, or leave it out."
            )
        minibatch_size = self.minibatch_size
        if minibatch_size is None:
            minibatch_size = default_minibatch(batch_size, self.segment_blocks * self.unit_size * num_processes)
        return dataclasses.replace(self, batch_size=batch_size, minibatch_size=minibatch_size)

    @property
    def unit_size(self) -> int:
        """Agent steps in one unit of shuffling: horizon for segments, 1 for transitions."""
        return self.horizon if self.minibatch_unit == "segment" else 1


@dataclass(frozen=True, kw_only=True)
class VecConfig:
    """How environments run side by side; the fields of `puffer_vector.make`."""

    num_envs: int = 64
    """Worlds that run at once; under torchrun those of all processes together."""
    backend: Literal["serial", "threads", "processes", "ray"] = "serial"
    """Where they run: in this process, its threads, other processes, or Ray actors."""
    num_workers: int | None = None
    """Threads or processes that step them, of each process under torchrun. None: as many as the cores allow."""
    batch_size: int | None = None
    """Worlds that one receive returns, counted as num_envs; fewer than those is the asynchronous mode. None: all."""
    mode: Literal["sync", "async"] = "sync"
    """Receive all worlds at once, or parts while the others run."""
    order: Literal["fixed", "first_come"] = "fixed"
    """Order of the parts in asynchronous mode."""
    timeout_s: float | None = None
    """Seconds after which a worker that does not answer is an error. None: wait."""
    restart_failed: bool = False
    """Replace a failed environment instead of ending the run."""
    context: Literal["forkserver", "spawn", "fork"] | None = None
    """How worker processes start. None: the platform's safe way."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Which network learns."""

    name: str | None = None
    """Policy class as `module:Class`. None: the environment's own, else one chosen by its spaces."""
    hidden_size: int = 128
    """Width of the hidden layers."""
    num_layers: int = 2
    """Hidden layers of a multi-layer perceptron."""
    activation: Literal["gelu", "relu", "tanh", "silu", "elu"] = "gelu"
    """Nonlinearity of a multi-layer perceptron."""
    layer_norm: bool = False
    """Normalise the layers of a multi-layer perceptron."""
    residual: bool = False
    """Make the layers of a multi-layer perceptron after the first residual blocks."""
    cnn: Literal["nature", "impala"] = "nature"
    """Network of images."""
    rnn: Literal["none", "lstm", "gru", "mingru", "attention"] = "none"
    """Memory behind the encoder."""
    action_distribution: Literal["normal", "tanh_normal", "beta"] = "normal"
    """Distribution of continuous actions."""
    state_dependent_std: bool = False
    """Compute deviations of continuous actions from observations instead of learning them as constants."""
    autoregressive: bool = False
    """Let each element of a MultiDiscrete action depend on those before it."""
    independent: bool = False
    """Give each agent of a world a network of its own."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Where a run writes and what it shows."""

    run_id: str | None = None
    """Name of the run's folder. None: made from the environment's id and the time."""
    runs_dir: str = "runs"
    """Folder of all runs."""
    checkpoint_interval: int = 100
    """Updates between two checkpoints; one more is written at the end."""
    keep_checkpoints: int = 3
    """Newest checkpoints that are kept, beside the best one."""
    log_interval: int = 1
    """Updates between two lines of metrics.jsonl."""
    dashboard: Literal["auto", "rich", "plain", "none"] = "auto"
    """Live table, plain lines, or nothing; auto shows the table in a terminal."""
    dashboard_interval_s: float = 0.5
    """Seconds between two refreshes of the dashboard."""


def preset_fields(name: str) -> dict[str, Any]:
    """Return the fields of a preset.

    Raises:
        ConfigError: If there is no such preset.
    """
    if not isinstance(name, str) or name not in PRESETS:
        near = suggestion(str(name), PRESETS)
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}; got {name!r}.{near}")
    return dict(PRESETS[name])


def canonical_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields` with aliases replaced by the names of `TrainConfig` and values of PufferLib's kinds translated.

    Raises:
        ConfigError: If a name is unknown or two names mean the same field.
    """
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    named: dict[str, Any] = {}
    for name, value in fields.items():
        target = ALIASES.get(name, name)
        if target not in known:
            raise ConfigError(
                f"fields must be those of TrainConfig; got {name}={value!r}.{suggestion(name, known | ALIASES.keys())}"
            )
        if target in named:
            raise ConfigError(f"each field must be given once; got {target} also under the name {name}. Drop one.")
        named[target] = value
    if isinstance(named.get("normalize_advantages"), bool):
        named["normalize_advantages"] = "minibatch" if named["normalize_advantages"] else "none"
    for size in ("batch_size", "minibatch_size", "microbatch_size"):
        if named.get(size) == "auto":
            named[size] = None
    return named
