"""PuffeRL: PPO with memory, its command line, checkpoints and metrics."""

from importlib.metadata import version as _version

from puffer_train.checkpoint import CheckpointError, find_checkpoint, read_checkpoint, write_checkpoint
from puffer_train.config import ConfigError, TrainConfig
from puffer_train.evaluate import Evaluation, evaluate_policy
from puffer_train.finite import NonFiniteError
from puffer_train.loggers import GuardedLogger, Logger, NoLogger
from puffer_train.metrics import read_metrics
from puffer_train.run import RunFolder
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
    "RunFolder",
    "TrainConfig",
    "evaluate_policy",
    "find_checkpoint",
    "read_checkpoint",
    "read_metrics",
    "write_checkpoint",
]
