"""The whole Puffer stack under one name.

    import pufferlib
    from pufferlib import PuffeRL

    env = pufferlib.make("ocean-breakout", num_envs=1024)
    trainer = PuffeRL(env=env, policy=None, learning_rate=3e-4)

Everything here is defined in one of the packages; names that need torch are imported when first used.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from puffer_spaces import PufferEnv, check_env, register
from puffer_vector import Multiprocessing, Serial, VectorEnv, WorkerError
from pufferlib.environment import emulate, make

if TYPE_CHECKING:
    from puffer_policies import LSTMWrapper, default_policy, layer_init
    from puffer_train import NoLogger, PuffeRL

__version__ = version("pufferlib")

_NEED_TORCH = {
    "LSTMWrapper": "puffer_policies",
    "NoLogger": "puffer_train",
    "PuffeRL": "puffer_train",
    "default_policy": "puffer_policies",
    "layer_init": "puffer_policies",
}
_MODULES = {"emulation", "models", "ocean", "pytorch", "spaces", "vector", "vectorization"}

__all__ = [
    "LSTMWrapper",
    "Multiprocessing",
    "NoLogger",
    "PuffeRL",
    "PufferEnv",
    "Serial",
    "VectorEnv",
    "WorkerError",
    "check_env",
    "default_policy",
    "emulate",
    "layer_init",
    "make",
    "register",
]


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(importlib.import_module(_NEED_TORCH[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"pufferlib.{name}")
    raise AttributeError(f"module 'pufferlib' has no attribute {name!r}")
