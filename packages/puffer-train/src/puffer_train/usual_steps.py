"""The compiled form of a rollout's usual step, where the experience is in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from puffer_train.experience import Experience
from puffer_train.native import steps

_STORED = ("rewards", "log_probs", "values", "terminals", "truncations", "valid", "resets")


def usual_steps(experience: Experience, rows: Mapping[str, npt.NDArray[Any]]) -> Any | None:
    """Return `_steps.UsualSteps`, or None where it is not compiled, or cannot reach the experience.

    Args:
        experience: Written by it.
        rows: Arrays (num_agents,) of the rollout, changed by it: `slots`, `num_outcomes`, `num_steps` int64, `acted`
            bool.
    """
    payload = [experience.observations, experience.actions]
    payload += [] if experience.action_mask is None else [experience.action_mask]
    native = steps()
    if native is None or any(
        part.device.type != "cpu" or not part[0, 0].nbytes for part in (experience.values, *payload)
    ):
        return None
    return native.UsualSteps(
        {name: _plain(array) for name, array in rows.items()},
        {name: _plain(getattr(experience, name).numpy().reshape(-1)) for name in _STORED},
        [_rows_of_bytes(part) for part in payload],
        experience.horizon,
    )


def _rows_of_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return (num_segments, horizon, ...) as uint8 (num_segments * horizon, bytes of a row)."""
    return tensor.numpy().reshape(tensor.shape[0] * tensor.shape[1], -1).view(np.uint8)


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.view(np.uint8) if array.dtype == np.bool_ else array
