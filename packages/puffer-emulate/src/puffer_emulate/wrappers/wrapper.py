"""What wrappers of PufferEnvs share. They work on rows, so the same class serves one agent and many."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.plain_state import dump_state, load_state
from puffer_spaces import Array, Buffers, PufferEnv, StepResult, as_puffer_env, reset_env


class PufferWrapper(PufferEnv):
    """A PufferEnv around another one. Arrays that a wrapper does not change are the same memory in both.

    A subclass overrides `_changed_actions`, `_after_reset` and `_after_step`, and names the attributes that belong to a
    snapshot in `_state_names`. `self.env` is the wrapped env; attributes that the wrapper does not have are its own.

    Args:
        env: The env, or what `as_puffer_env` makes one of.
        observation_space: One agent's observation space, if the wrapper changes it: a Box.
    """

    rebinds_buffers = True
    clears_flags = True

    def __init__(self, env: Any, observation_space: spaces.Box | None = None) -> None:
        self.env = as_puffer_env(env)
        inner = self.env
        self.single_observation_space = observation_space or inner.single_observation_space
        self.single_action_space = inner.single_action_space
        self.original_action_space = inner.original_action_space
        self.action_layout = inner.action_layout
        if observation_space is None:
            self.original_observation_space = inner.original_observation_space
            self.observation_layout = inner.observation_layout
        for name in (
            "num_agents",
            "num_envs",
            "has_final_observations",
            "action_mask_size",
            "episode_extras",
            "render_mode",
            "metadata",
        ):
            setattr(self, name, getattr(inner, name))
        self._changes_observations = observation_space is not None
        super().__init__(None, getattr(inner, "initial_seed", None))
        self._bind_inner()

    def __getattr__(self, name: str) -> Any:
        if name == "env" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def set_buffers(self, buffers: Buffers) -> None:
        """Bind the wrapper to arrays of the caller's, and the wrapped env to what it shares of them."""
        super().set_buffers(buffers)
        self._bind_inner()

    def _bind_inner(self) -> None:
        assert self.buffers is not None
        shared = self.buffers
        if self._changes_observations:
            own = [np.zeros_like(self.env.observations) for _ in range(2)]
            shared = dataclasses.replace(shared, observations=own[0], final_observations=own[1])
        self.env = as_puffer_env(self.env, buf=shared)

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[Array, list[dict[str, Any]]]:
        """Reset the wrapped env."""
        _, infos = reset_env(self.env, seed, first_world, options)
        self._after_reset(is_seeded=seed is not None)
        return self.observations, infos

    def step(self, actions: Array) -> StepResult:
        """Step the wrapped env."""
        acted = self.masks.copy()
        infos = self.env.step(self._changed_actions(actions))[4]
        self._after_step(acted, self.terminals | self.truncations)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _changed_actions(self, actions: Array) -> Array:
        return actions

    def _after_reset(self, is_seeded: bool) -> None:
        """Follow a reset of all worlds."""

    def _after_step(self, acted: npt.NDArray[np.bool_], ended: npt.NDArray[np.bool_]) -> None:
        """Follow a step.

        Args:
            acted: bool (num_agents,), rows that held an agent before the step.
            ended: bool (num_agents,), rows whose episode ended on it.
        """

    def episodes(self) -> npt.NDArray[np.void]:
        """Drain the wrapped env's episode records."""
        return self.env.episodes()

    @property
    def has_state(self) -> bool:  # type: ignore[override]
        """Whether the wrapped env has exact snapshots."""
        return self.env.has_state

    def get_state(self) -> bytes:
        """Return a snapshot of the wrapper and the wrapped env."""
        return dump_state({"env": self.env.get_state(), **{name: getattr(self, name) for name in self._state_names()}})

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of `get_state`."""
        values = load_state(state, ("env", *self._state_names()))
        self.env.set_state(values["env"])
        for name in self._state_names():
            setattr(self, name, values[name])

    def _state_names(self) -> tuple[str, ...]:
        return ()

    def set_parameters(self, **parameters: Any) -> None:
        """Pass parameters on."""
        self.env.set_parameters(**parameters)

    def render(self) -> Any:
        """Draw the wrapped env."""
        return self.env.render()

    def close(self) -> None:
        """Close the wrapped env."""
        self.env.close()
