"""Where an interval's numbers go besides metrics.jsonl and the dashboard."""

from puffer_train.loggers.guard import GuardedLogger
from puffer_train.loggers.protocol import Logger, NoLogger

__all__ = ["GuardedLogger", "Logger", "NoLogger"]
