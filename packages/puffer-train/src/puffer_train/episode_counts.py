"""Returns and lengths of episodes, counted from rewards and flags, for environments that keep no records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Flags = npt.NDArray[np.bool_]


class EpisodeCounts:
    """Sums of each agent's rewards and steps since its episode began, and those of episodes that ended.

    Args:
        num_agents: Rows of the vector env.
    """

    def __init__(self, num_agents: int) -> None:
        self._returns = np.zeros(num_agents)
        self._lengths = np.zeros(num_agents)
        self._finished: list[npt.NDArray[np.float64]] = []
        self.is_needed = True

    def add_step(self, ids: npt.NDArray[np.int64], rewards: npt.NDArray[Any], valid: Flags, ended: Flags) -> None:
        """Add what a step brought to some agents.

        Args:
            ids: int64 (num_rows,), the agents.
            rewards: float32 (num_rows,).
            valid: bool (num_rows,), rows that are a transition of an agent.
            ended: bool (num_rows,), rows whose episode is over. It counts where the row is valid.
        """
        if not self.is_needed:
            return
        self._returns[ids] += np.where(valid, rewards, 0.0)
        self._lengths[ids] += valid
        if ended.any():
            rows = ids[ended & valid]
            if len(rows):
                self._finished.append(np.stack([rows, self._returns[rows], self._lengths[rows]], axis=1))
            self._returns[ids[ended]] = 0.0
            self._lengths[ids[ended]] = 0.0

    def restart(self) -> None:
        """Forget unfinished episodes: all worlds begin new ones."""
        self._returns[:] = 0.0
        self._lengths[:] = 0.0

    def stop(self) -> None:
        """Count no more: the environment tells of its episodes itself."""
        self.is_needed = False
        self._finished.clear()

    def clear(self) -> None:
        """Forget episodes that ended."""
        self._finished.clear()

    def finished(self) -> npt.NDArray[np.float64]:
        """Return (agent, return, length) of the episodes that ended since `clear`: float64 (num_episodes, 3).

        They are in the order of agents, and of time for each: the same for any backend.
        """
        if not self._finished:
            return np.zeros((0, 3))
        episodes = np.concatenate(self._finished)
        return episodes[np.argsort(episodes[:, 0], kind="stable")]

    def add_finished(self, episodes: npt.NDArray[np.float64]) -> None:
        """Add episodes of another process, as `finished` returns them."""
        if self.is_needed and len(episodes):
            self._finished.append(episodes)

    def state_dict(self) -> dict[str, Any]:
        """Return everything as tensors and plain values."""
        return {
            "is_needed": self.is_needed,
            "returns": torch.from_numpy(self._returns.copy()),
            "lengths": torch.from_numpy(self._lengths.copy()),
            "finished": torch.from_numpy(self.finished()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `state_dict` returned; with another number of agents their episodes begin anew."""
        self.is_needed = bool(state["is_needed"])
        self._finished = [state["finished"].numpy().copy()] if len(state["finished"]) else []
        if len(state["returns"]) == len(self._returns):
            self._returns[:] = state["returns"].numpy()
            self._lengths[:] = state["lengths"].numpy()
        else:
            self.restart()
