"""Access to the compiled loops, which are optional: everything has a slower form.

Both give the same results up to rounding: an exponential may differ in its last bit, and a run is the same bit for bit
only with the same form.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any


@functools.cache
def kernels() -> Any | None:
    """Return the compiled loops over numbers, or None after one notice where they are missing."""
    return _compiled("_kernels")


@functools.cache
def steps() -> Any | None:
    """Return the compiled steps of a rollout, or None where they or the loops are missing: one notice tells of both."""
    return None if kernels() is None else _compiled("_steps")


def _compiled(name: str) -> Any | None:
    try:
        return importlib.import_module(f"puffer_train.{name}")
    except ImportError as error:
        warnings.warn(
            f"puffer_train runs without its compiled loops ({error}); results are the same up to rounding, "
            "rollouts and updates are slower. "
            "Install puffer-train with a C compiler present to have them.",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
