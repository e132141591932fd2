"""What one receive brings: the outcome of the last actions, and rows that act next."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from puffer_train.experience import Rows
from puffer_train.native import steps

Flags = npt.NDArray[np.bool_]


class Outcome(NamedTuple):
    """What the last actions of some agents brought. All arrays are (num_rows,).

    Attributes:
        ids: int64, C-contiguous, the agents.
        rows: The same as an index into arrays of all agents.
        rewards: float32, C-contiguous.
        terminals: bool.
        truncations: bool.
        masks: bool, whether an agent is there now.
        invalid: bool, whether the environment was replaced.
    """

    ids: npt.NDArray[np.int64]
    rows: Rows
    rewards: npt.NDArray[np.float32]
    terminals: Flags
    truncations: Flags
    masks: Flags
    invalid: Flags


@dataclass(frozen=True)
class Batch:
    """Rows of agents that act next; tensors are on the policy's device.

    Attributes:
        ids: int64 (num_rows,), agents of the rows.
        rows: The same as an index into arrays of all agents.
        observations: (num_rows, ...); zero where no agent is.
        masks: bool (num_rows,), whether an agent is there.
        resets: bool (num_rows,), whether memory starts anew here.
        action_mask: bool (num_rows, size) or None.
    """

    ids: npt.NDArray[np.int64]
    rows: Rows
    observations: torch.Tensor
    masks: Flags
    resets: Flags
    action_mask: torch.Tensor | None

    def copy(self) -> Batch:
        """Return a batch that shares no memory with the vector environment or the rollout, which write it anew."""
        action_mask = None if self.action_mask is None else self.action_mask.clone()
        return dataclasses.replace(
            self,
            ids=self.ids.copy(),
            observations=self.observations.clone(),
            masks=self.masks.copy(),
            resets=self.resets.copy(),
            action_mask=action_mask,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the batch as tensors."""
        return {
            "ids": torch.from_numpy(self.ids.copy()),
            "observations": self.observations.clone(),
            "masks": torch.from_numpy(self.masks.copy()),
            "resets": torch.from_numpy(self.resets.copy()),
            "action_mask": None if self.action_mask is None else self.action_mask.clone(),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], device: torch.device) -> Batch:
        """Make a batch of what `state_dict` returned."""
        ids = state["ids"].numpy().copy()
        action_mask = state["action_mask"]
        return cls(
            ids=ids,
            rows=as_rows(ids, device),
            observations=state["observations"].to(device),
            masks=state["masks"].numpy().copy(),
            resets=state["resets"].numpy().copy(),
            action_mask=None if action_mask is None else action_mask.to(device),
        )


def as_rows(ids: npt.NDArray[np.int64], device: torch.device) -> Rows:
    """Return an index for one or more agents, int64 (num_rows,): a slice where they follow each other, else a tensor.

    Args:
        ids: C-contiguous.
        device: Of the tensors that are indexed.
    """
    native = steps()
    if (ids[1:] == ids[:-1] + 1).all() if native is None else native.is_range(ids):
        return slice(int(ids[0]), int(ids[-1]) + 1)
    return torch.tensor(ids, device=device)
