"""Checks that numbers are finite. They cost one sum; only a failure looks for the place."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from puffer_spaces import Layout
from puffer_train.errors import NonFiniteError


def check_rewards(rewards: npt.NDArray[np.float32], valid: npt.NDArray[np.bool_], place: RowPlaces) -> None:
    """Check the rewards of one step; rows that are not valid may hold anything.

    Raises:
        NonFiniteError: The message names world, agent row and step.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(rewards.sum()):
            return
    bad = np.flatnonzero(valid & ~np.isfinite(rewards))
    if len(bad):
        row = int(bad[0])
        raise NonFiniteError(
            f"rewards must be finite; got {rewards[row]} {place.describe(row)}. Mend the environment's reward."
        )


def check_outputs(
    observations: torch.Tensor, values: torch.Tensor, parameters: torch.Tensor | None, place: RowPlaces
) -> None:
    """Check what the policy made of the observations of one step. Parameters of -inf are masked choices.

    Raises:
        NonFiniteError: The message says whether the observation or the policy is the cause, and where.
    """
    total = values.sum() if parameters is None else values.sum() + parameters.sum()
    if math.isfinite(total.item()):
        return
    finite = torch.isfinite(values)
    if parameters is not None:
        is_number = torch.isfinite(parameters)
        finite &= (is_number | torch.isneginf(parameters)).all(1) & is_number.any(1)
    bad = torch.nonzero(~finite).flatten().tolist()
    if not bad:  # finite values whose sum overflows
        return
    row = bad[0]
    leaf = place.leaf_that_is_not_finite(observations[row])
    if leaf is not None:
        raise NonFiniteError(
            f"observations must be finite; got nan or inf{f' as {leaf}' if leaf else ''} {place.describe(row)}. "
            "Mend the environment's observation."
        )
    raise NonFiniteError(
        f"the policy's outputs must be finite; got nan or inf {place.describe(row)}, where the observation is finite. "
        "The weights diverged: lower learning_rate or max_grad_norm, or resume from an earlier checkpoint."
    )


class RowPlaces:
    """Names the rows of a batch for messages.

    Args:
        agent_ids: int64 (num_rows,). Rows in the whole vector environment.
        steps: int64 (num_rows,). Steps that each row has taken.
        agents_per_world: Rows of a world.
        layout: What an observation row holds; rows of a mixed space are bytes. None: numbers of the row's dtype.
    """

    def __init__(
        self,
        agent_ids: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
        agents_per_world: int = 1,
        layout: Layout | None = None,
    ) -> None:
        self._agent_ids = agent_ids
        self._steps = steps
        self._agents_per_world = max(agents_per_world, 1)
        self._layout = layout

    def describe(self, row: int) -> str:
        """Return where a row of the batch is: its world, agent and step."""
        world, agent = divmod(int(self._agent_ids[row]), self._agents_per_world)
        return f"in env {world}, agent {agent}, at step {int(self._steps[row])}"

    def leaf_that_is_not_finite(self, observation: torch.Tensor) -> str | None:
        """Return the name of the first part of an observation row that is not finite, "" for a row of one part."""
        row = observation.numpy(force=True)
        if self._layout is None or not self._layout.is_mixed:
            return None if np.isfinite(row).all() else ""
        for leaf in self._layout.leaves:
            values = row[leaf.offset : leaf.offset + leaf.nbytes].view(leaf.dtype)
            if not np.isfinite(values).all():
                return leaf.name
        return None
