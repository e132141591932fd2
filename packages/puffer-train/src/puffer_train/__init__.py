"""PuffeRL: PPO with memory, its command line, checkpoints and metrics.

Names are imported when they are first used: most of them need torch, and `puffer --help` need not wait for it.
"""

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puffer_train.checkpoint import read_checkpoint, write_checkpoint
    from puffer_train.checkpoint_folder import find_checkpoint
    from puffer_train.config import ConfigError, TrainConfig
    from puffer_train.distributed import RankError, Ranks
    from puffer_train.errors import CheckpointError, NonFiniteError, RunError
    from puffer_train.evaluate import Evaluation, evaluate_policy
    from puffer_train.loggers import GuardedLogger, Logger, NoLogger
    from puffer_train.metrics_file import read_metrics
    from puffer_train.run import RunFolder
    from puffer_train.timing import where_time_goes
    from puffer_train.trainer import PuffeRL

__version__ = _version("puffer-train")

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Evaluation",
    "GuardedLogger",
    "Logger",
    "NoLogger",
    "NonFiniteError",
    "PuffeRL",
    "RankError",
    "Ranks",
    "RunError",
    "RunFolder",
    "TrainConfig",
    "evaluate_policy",
    "find_checkpoint",
    "read_checkpoint",
    "read_metrics",
    "where_time_goes",
    "write_checkpoint",
]

_HOMES = {
    "checkpoint": ("read_checkpoint", "write_checkpoint"),
    "checkpoint_folder": ("find_checkpoint",),
    "config": ("ConfigError", "TrainConfig"),
    "distributed": ("RankError", "Ranks"),
    "errors": ("CheckpointError", "NonFiniteError", "RunError"),
    "evaluate": ("Evaluation", "evaluate_policy"),
    "loggers": ("GuardedLogger", "Logger", "NoLogger"),
    "metrics_file": ("read_metrics",),
    "run": ("RunFolder",),
    "timing": ("where_time_goes",),
    "trainer": ("PuffeRL",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"puffer_train.{module}"), name)
    raise AttributeError(f"module 'puffer_train' has no attribute {name!r}")
