"""Observations and rewards of unit scale, by running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.wrappers.boxes import box_env
from puffer_emulate.wrappers.wrapper import PufferWrapper
from puffer_spaces import Array

_EPSILON = 1e-8


class RunningMoments:
    """Mean and variance of all batches so far, by the parallel formula of Chan, Golub and LeVeque (1979), eq. 2.1.

    Args:
        shape: Of one sample.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape)
        self.squares = np.zeros(shape)

    def clear(self) -> None:
        """Forget all samples."""
        self.count = 0.0
        self.mean = np.zeros_like(self.mean)
        self.squares = np.zeros_like(self.squares)

    def update(self, batch: Array) -> None:
        """Add samples (num_samples, *shape)."""
        added = len(batch)
        if not added:
            return
        mean = batch.mean(0, dtype=np.float64)
        delta = mean - self.mean
        total = self.count + added
        self.squares += ((batch - mean) ** 2).sum(0, dtype=np.float64) + delta**2 * self.count * added / total
        self.mean += delta * added / total
        self.count = total

    @property
    def deviation(self) -> npt.NDArray[np.float64]:
        """Standard deviation, 1 before there are two samples."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.sqrt(self.squares / self.count + _EPSILON)


class NormalizeObservation(PufferWrapper):
    """Shifts and scales observations to mean 0 and standard deviation 1, as float32, and clips them.

    `PuffeRL` does this itself (`normalize_observations`), with statistics that stand still in an update; this is for
    other learners. While `is_updating`, statistics change at every step, and a seeded reset starts them anew.

    Args:
        env: The env, or what `as_puffer_env` makes one of. Its observation is one Box.
        clip: Bound of the result.
    """

    def __init__(self, env: Any, clip: float = 10.0) -> None:
        inner = box_env(env, "NormalizeObservation")
        shape = tuple(inner.single_observation_space.shape or ())
        self.is_updating = True
        self.moments = RunningMoments(shape)
        self._clip = clip
        super().__init__(inner, spaces.Box(-clip, clip, shape, np.float32))

    def _after_reset(self, is_seeded: bool) -> None:
        if is_seeded and self.is_updating:
            self.moments.clear()
        self._update()
        self.observations[:] = self._normalized(self.env.observations)
        self.observations[~self.masks] = 0

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:  # noqa: ARG002
        self._update()
        self.observations[:] = self._normalized(self.env.observations)
        self.observations[~self.masks] = 0
        if ended.any():
            self.final_observations[ended] = self._normalized(self.env.final_observations[ended])

    def _update(self) -> None:
        if self.is_updating:
            self.moments.update(self.env.observations[self.masks])

    def _normalized(self, observations: Array) -> Array:
        return np.clip((observations - self.moments.mean) / self.moments.deviation, -self._clip, self._clip)

    @property
    def _state(self) -> Array:
        return np.concatenate([[self.moments.count], self.moments.mean.ravel(), self.moments.squares.ravel()])

    @_state.setter
    def _state(self, values: Array) -> None:
        self.moments.count = float(values[0])
        self.moments.mean, self.moments.squares = values[1:].reshape(2, *self.moments.mean.shape)

    def _state_names(self) -> tuple[str, ...]:
        return ("_state",)


class NormalizeReward(PufferWrapper):
    """Divides rewards by the standard deviation of their running discounted sum. Episode records keep the env's own.

    `PuffeRL` does this itself (`normalize_returns`); this is for other learners. While `is_updating`, statistics change
    at every step, and a seeded reset starts them anew.

    Args:
        env: The env, or what `as_puffer_env` makes one of.
        gamma: Discount of the sum.
        clip: Bound of the result.
    """

    def __init__(self, env: Any, gamma: float = 0.99, clip: float = 10.0) -> None:
        super().__init__(env)
        self.is_updating = True
        self.moments = RunningMoments(())
        self._gamma, self._clip = gamma, clip
        self._sums = np.zeros(self.num_agents)

    def _after_reset(self, is_seeded: bool) -> None:
        if is_seeded and self.is_updating:
            self.moments.clear()
        self._sums[:] = 0

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:
        self._sums[:] = np.where(acted, self._sums * self._gamma + self.rewards, 0)
        if self.is_updating:
            self.moments.update(self._sums[acted])
        self._sums[ended] = 0
        self.rewards[:] = np.clip(self.rewards / self.moments.deviation, -self._clip, self._clip)

    @property
    def _state(self) -> Array:
        moments = self.moments
        return np.concatenate([[moments.count, moments.mean, moments.squares], self._sums])

    @_state.setter
    def _state(self, values: Array) -> None:
        self.moments.count, self.moments.mean, self.moments.squares = float(values[0]), values[1], values[2]
        self._sums = values[3:]

    def _state_names(self) -> tuple[str, ...]:
        return ("_state",)
