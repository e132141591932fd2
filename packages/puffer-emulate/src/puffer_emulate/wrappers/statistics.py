"""Episode records for an env that keeps none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_emulate.wrappers.wrapper import PufferWrapper
from puffer_spaces import Episodes


class EpisodeStatistics(PufferWrapper):
    """Records return and length of every episode, in place of the env's own records.

    Around a wrapper that changes rewards it records the changed ones.

    Args:
        env: The env, or what `as_puffer_env` makes one of.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.episode_extras = ()
        self._episodes = Episodes()
        self._num_steps = 0
        self._returns = np.zeros(self.num_agents)
        self._lengths = np.zeros(self.num_agents, np.int64)

    def _after_reset(self, is_seeded: bool) -> None:
        self._returns[:] = 0
        self._lengths[:] = 0
        if is_seeded:
            self._num_steps = 0

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:
        self._num_steps += 1
        self._returns[acted] += self.rewards[acted]
        self._lengths[acted] += 1
        agents_per_world = self.num_agents // self.num_envs
        for row in np.flatnonzero(ended):
            world, agent = divmod(int(row), agents_per_world)
            self._episodes.append(self._num_steps, world, agent, float(self._returns[row]), int(self._lengths[row]))
        self._returns[ended] = 0
        self._lengths[ended] = 0

    def episodes(self) -> npt.NDArray[np.void]:
        """Drain the records."""
        return self._episodes.drain()

    @property
    def _records(self) -> bytes:
        records = self._episodes.drain()
        self._episodes.extend(records)
        return records.tobytes()

    @_records.setter
    def _records(self, records: bytes) -> None:
        self._episodes.clear()
        self._episodes.extend(np.frombuffer(records, self._episodes.dtype))

    def _state_names(self) -> tuple[str, ...]:
        return ("_num_steps", "_returns", "_lengths", "_records")
