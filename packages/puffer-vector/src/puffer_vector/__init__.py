"""Shared-memory vectorisation of reinforcement-learning environments: serial, threads, processes."""

from importlib.metadata import version as _version

from puffer_vector.adapters import DictView, as_dicts, as_gymnasium, as_sb3
from puffer_vector.autotune import Trial, autotune, measure
from puffer_vector.base import VectorEnv
from puffer_vector.cpus import available_cpus
from puffer_vector.errors import ClosedError, WorkerError
from puffer_vector.flight import replay
from puffer_vector.make import Multiprocessing, Serial, make

__version__ = _version("puffer-vector")

__all__ = [
    "ClosedError",
    "DictView",
    "Multiprocessing",
    "Serial",
    "Trial",
    "VectorEnv",
    "WorkerError",
    "as_dicts",
    "as_gymnasium",
    "as_sb3",
    "autotune",
    "available_cpus",
    "make",
    "measure",
    "replay",
]
