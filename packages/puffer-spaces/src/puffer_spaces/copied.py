"""An env that keeps writing to its own arrays, brought to the caller's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces.buffers import Array, Buffers
from puffer_spaces.coercion import copy_actions
from puffer_spaces.env import PufferEnv, StepResult
from puffer_spaces.resets import reset_env

_RESULTS = ("observations", "rewards", "terminals", "truncations", "masks", "final_observations", "action_mask")


class CopiedEnv(PufferEnv):
    """Copies rows between an env's own arrays and the bound ones.

    For an env whose `rebinds_buffers` is False and that was built without the caller's memory: native code may hold
    pointers to its own arrays. Building it with `buf=` saves the copy. Other attributes are looked up on the env.
    """

    rebinds_buffers = True
    clears_flags = True

    def __init__(self, env: PufferEnv, buf: Buffers | None = None) -> None:
        self.env = env
        self.single_observation_space = env.single_observation_space
        self.single_action_space = env.single_action_space
        self.num_agents = env.num_agents
        self.num_envs = env.num_envs
        self.has_final_observations = env.has_final_observations
        self.action_mask_size = env.action_mask_size
        self.episode_extras = env.episode_extras
        self.has_state = env.has_state
        self.metadata = dict(env.metadata)
        self.render_mode = env.render_mode
        self.observation_layout = env.observation_layout
        self.action_layout = env.action_layout
        self.original_observation_space = env.original_observation_space
        self.original_action_space = env.original_action_space
        super().__init__(buf)

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def driver_env(self) -> PufferEnv:
        """The env whose rows are copied."""
        return self.env

    @property
    def emulated(self) -> bool:
        """Whether the env is an adapter around a foreign one."""
        return self.env.emulated

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[Array, list[dict[str, Any]]]:
        """Reset the env and copy its rows."""
        _, infos = reset_env(self.env, seed, first_world, options)
        self._copy_results()
        return self.observations, infos

    def step(self, actions: Array) -> StepResult:
        """Step the env and copy its rows."""
        copy_actions(actions, self.env.actions, type(self.env).__name__)
        infos = self.env.step(self.env.actions)[4]
        self._copy_results()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _copy_results(self) -> None:
        for name in _RESULTS:
            array = getattr(self.env, name)
            if array is not None:
                np.copyto(getattr(self, name), array)

    def episodes(self) -> npt.NDArray[np.void]:
        """Drain the env's episode records."""
        return self.env.episodes()

    def set_parameters(self, **parameters: Any) -> None:
        """Pass parameters on to the env."""
        self.env.set_parameters(**parameters)

    def get_state(self) -> bytes:
        """Return the env's snapshot."""
        return self.env.get_state()

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of the env."""
        self.env.set_state(state)

    def render(self) -> Any:
        """Draw the env."""
        return self.env.render()

    def close(self) -> None:
        """Close the env."""
        self.env.close()
