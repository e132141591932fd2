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
    """Return the compiled module, or None after one notice where it is missing."""
    try:
        return importlib.import_module("puffer_train._kernels")
    except ImportError as error:
        warnings.warn(
            f"puffer_train runs without its compiled loops ({error}); results are the same up to rounding, "
            "rollouts and updates are slower. "
            "Install puffer-train with a C compiler present to have them.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
