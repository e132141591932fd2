"""Quantities that change over a run, as functions of its progress."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from puffer_train.config import TrainConfig


def anneal(schedule: str, progress: float) -> float:
    """Return the factor that goes from 1 at the start of a run to 0 at its end.

    Args:
        schedule: `linear`, `cosine` (half a period) or `constant` (always 1).
        progress: Part of the run that is done; values outside [0, 1] count as the nearer end.
    """
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "linear":
        return 1.0 - progress
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0


def learning_rate_factor(config: TrainConfig, progress: float) -> float:
    """Return the learning rate at `progress` over that at the start."""
    if not config.anneal_lr:
        return 1.0
    return config.min_lr_ratio + (1.0 - config.min_lr_ratio) * anneal(config.schedule, progress)


def entropy_coefficient(config: TrainConfig, progress: float) -> float:
    """Return the weight of the entropy at `progress`; between start and final value it is linear."""
    if config.ent_coef_final is None:
        return config.ent_coef
    factor = anneal("linear", progress)
    return config.ent_coef_final + (config.ent_coef - config.ent_coef_final) * factor
