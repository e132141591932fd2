"""Checks of `TrainConfig`: each says what must hold, what was got, and what to do."""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puffer_train.config import TrainConfig

_AT_LEAST_ONE = (
    "total_timesteps", "num_iterations", "stop_after_updates", "batch_size", "horizon", "minibatch_size",
    "microbatch_size", "segment_blocks", "cpu_threads",
)  # fmt: skip
_POSITIVE = (
    "update_epochs", "clip_coef", "vf_clip_coef", "max_grad_norm", "target_kl", "observation_clip", "reward_clip",
    "adam_eps", "rho_clip", "trace_clip", "rank_timeout_s",
)  # fmt: skip
_NOT_NEGATIVE = (
    "seed", "learning_rate", "vf_coef", "ent_coef", "ent_coef_final", "weight_decay", "priority_alpha", "priority_beta",
)  # fmt: skip
_MOST_THREADS = 1024
_UNIT_INTERVAL = ("gamma", "gae_lambda", "min_lr_ratio")
_BELOW_ONE = ("adam_beta1", "adam_beta2", "muon_momentum")  # a mean with decay 1 never moves


class ConfigError(ValueError):
    """Settings that are unknown or do not fit together. Raised before anything is created."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names near misses of `name`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def default_minibatch(batch_size: int, step: int) -> int:
    """Return the smallest of a quarter, a third, a half and the whole of the batch that is a multiple of `step`."""
    for num_minibatches in (4, 3, 2):
        if batch_size % (num_minibatches * step) == 0:
            return batch_size // num_minibatches
    return batch_size


def check_kinds(config: TrainConfig) -> None:
    """Check that each field is of its type or one of its choices.

    Raises:
        ConfigError: If one does not fit.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        choices = _choices(str(field.type))
        if choices and value not in choices:
            near = suggestion(value, choices) if isinstance(value, str) else ""
            raise ConfigError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}.{near}")
        if not choices and not _is_of_kind(value, str(field.type)):
            kind = f"{field.type}; got {value!r} ({type(value).__name__})"
            if isinstance(value, float) and not math.isfinite(value):
                kind = f"a finite number; got {value!r}"
            raise ConfigError(f"{field.name} must be {kind}.")


def _choices(annotation: str) -> tuple[str, ...]:
    return tuple(re.findall(r"['\"](\w+)['\"]", annotation)) if annotation.startswith("Literal") else ()


def _is_of_kind(value: Any, annotation: str) -> bool:
    if value is None:
        return annotation.endswith("| None")
    kind = annotation.removesuffix(" | None")
    if kind == "bool":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "int":
        return isinstance(value, numbers.Integral)
    if kind == "float":
        return isinstance(value, numbers.Real) and math.isfinite(value)
    return isinstance(value, str)


def check_ranges(config: TrainConfig) -> None:
    """Check each number against its range.

    Raises:
        ConfigError: If one does not fit.
    """
    for name in _AT_LEAST_ONE:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1; got {value}.")
    if config.cpu_threads is not None and config.cpu_threads > _MOST_THREADS:  # torch would crash without a word
        raise ConfigError(f"cpu_threads must be at most {_MOST_THREADS}; got {config.cpu_threads}.")
    if config.seed >= 2**64:
        raise ConfigError(f"seed must fit 64 bits; got {config.seed}.")
    for name in _POSITIVE:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{name} must be greater than 0; got {value}.")
    for name in _NOT_NEGATIVE:
        value = getattr(config, name)
        if value is not None and value < 0:
            raise ConfigError(f"{name} must not be negative; got {value}.")
    for name in _UNIT_INTERVAL:
        value = getattr(config, name)
        if not 0 <= value <= 1:
            raise ConfigError(f"{name} must be between 0 and 1; got {value}.")
    for name in _BELOW_ONE:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ConfigError(f"{name} must be at least 0 and below 1; got {value}.")


def check_puffer3(config: TrainConfig, num_processes: int = 1) -> None:
    """Check what the puffer3 objective needs.

    Raises:
        ConfigError: If a setting does not fit it.
    """
    if num_processes > 1:
        raise ConfigError(f"objective=puffer3 must have one process; got {num_processes}. Use objective=ppo.")
    required = {"minibatch_unit": "segment", "recompute_advantages": "minibatch", "segment_blocks": 1}
    for name, value in required.items():
        if getattr(config, name) != value:
            raise ConfigError(f"{name} must be {value} with objective=puffer3; got {getattr(config, name)}.")
    if config.horizon < 2:
        raise ConfigError(f"horizon must be at least 2 with objective=puffer3; got {config.horizon}.")


def check_observations(space: Any) -> None:
    """Check that an observation is a row.

    Raises:
        ConfigError: If it has no dimension.
    """
    if space.shape == ():
        raise ConfigError(f"observations must have at least one dimension; got {space}. Use shape (1,).")


def check_sizes(config: TrainConfig, num_processes: int = 1) -> None:
    """Check that the sizes of a resolved config divide each other.

    Raises:
        ConfigError: If one does not.
    """
    batch_size, minibatch_size = config.batch_size, config.minibatch_size
    assert batch_size is not None
    assert minibatch_size is not None
    blocks = config.segment_blocks * num_processes
    unit = config.unit_size * blocks
    if minibatch_size > batch_size:
        raise ConfigError(
            f"batch_size must be at least minibatch_size; got batch_size={batch_size}, "
            f"minibatch_size={minibatch_size}. Use minibatch_size={batch_size} or less."
        )
    if minibatch_size % unit:
        what = "horizon" if config.minibatch_unit == "segment" else "1"
        raise ConfigError(
            f"minibatch_size must be a multiple of {what} times segment_blocks; got minibatch_size={minibatch_size}, "
            f"horizon={config.horizon}, segment_blocks={blocks}. "
            f"Use minibatch_size={max(1, round(minibatch_size / unit)) * unit}."
        )
    if batch_size % minibatch_size:
        raise ConfigError(
            f"batch_size must be a multiple of minibatch_size; got batch_size={batch_size}, "
            f"minibatch_size={minibatch_size}. Use minibatch_size={default_minibatch(batch_size, unit)}."
        )
    if batch_size % unit:
        raise ConfigError(
            f"batch_size must be a multiple of horizon times segment_blocks; got batch_size={batch_size}, "
            f"horizon={config.horizon}, segment_blocks={blocks}. Use fewer blocks."
        )
    if config.microbatch_size is not None and config.microbatch_size % config.unit_size:
        raise ConfigError(
            f"microbatch_size must be a multiple of horizon; got microbatch_size={config.microbatch_size}, "
            f"horizon={config.horizon}. Use microbatch_size={config.horizon}."
        )
