"""Gymnasium spaces of a native environment's spec."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


def observation_space(spec: dict[str, Any]) -> spaces.Box:
    """Return the space of one agent's observation."""
    shape, dtype = spec["observation_shape"], np.dtype(spec["observation_dtype"])
    low = np.array(spec["observation_low"], np.float64).astype(dtype).reshape(shape)
    high = np.array(spec["observation_high"], np.float64).astype(dtype).reshape(shape)
    return spaces.Box(low, high, shape, dtype.type)


def action_space(spec: dict[str, Any]) -> spaces.Box | spaces.Discrete | spaces.MultiDiscrete:
    """Return the space of one agent's action."""
    sizes = spec["action_sizes"]
    if spec["action_kind"] == "box":
        return spaces.Box(np.float32(spec["action_low"]), np.float32(spec["action_high"]), sizes, np.float32)
    if spec["action_kind"] == "multi_discrete":
        return spaces.MultiDiscrete(sizes)
    return spaces.Discrete(sizes[0])
