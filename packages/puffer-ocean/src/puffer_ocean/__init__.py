"""Native environments in C that step tens of millions of times a second.

Each environment also has a class of its own, named after it: `from puffer_ocean import Squared`.
"""

from importlib.metadata import version as _version
from typing import Any as _Any

from puffer_ocean.catalog import class_names as _class_names
from puffer_ocean.catalog import env_class as _env_class
from puffer_ocean.catalog import env_specs
from puffer_ocean.env import OceanEnv
from puffer_ocean.library import load_env

__version__ = _version("puffer-ocean")

__all__ = ["OceanEnv", "env_specs", "load_env"]


def __getattr__(name: str) -> _Any:
    if name in _class_names():
        return _env_class(name)
    if name == "PySquared":
        from puffer_ocean.envs.pysquared import PySquared

        return PySquared
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "PySquared", *_class_names()])
