"""A vector env as one env object of another: hierarchies, such as processes that each step several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers, PufferEnv
from puffer_vector.base import VectorEnv
from puffer_vector.parallel import ParallelVector
from puffer_vector.rows import results_of


class NestedVector(PufferEnv):
    """An env object whose worlds are those of a synchronous vector env.

    Args:
        vector: The vector env, which belongs to this object from now on.
        buf: Rows to write to.

    Raises:
        ValueError: It does not return all its worlds at once.
    """

    rebinds_buffers = True
    clears_flags = True

    def __init__(self, vector: VectorEnv, buf: Buffers | None = None) -> None:
        if not isinstance(vector, ParallelVector) or vector.batch_size != vector.num_envs:
            raise ValueError(
                f"a vector env inside another must return all its worlds at once; got batch_size={vector.batch_size} "
                f"of {vector.num_envs} worlds. Leave batch_size out."
            )
        self.vector = vector
        self.single_observation_space = vector.single_observation_space
        self.single_action_space = vector.single_action_space
        self.original_observation_space = vector.original_observation_space
        self.original_action_space = vector.original_action_space
        self.observation_layout, self.action_layout = vector.observation_layout, vector.action_layout
        self.num_envs, self.num_agents = vector.num_envs, vector.num_agents
        self.has_final_observations = vector.has_final_observations
        self.has_state = vector.has_state
        self.action_mask_size = vector.action_mask_size
        self.episode_extras = vector.episode_extras
        self.render_mode = vector.render_mode
        self._first_world = 0
        super().__init__(buf)

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], list[dict[str, Any]]]:
        """Reset all worlds, numbered from first_world."""
        if first_world != self._first_world:
            self.vector.renumber(first_world)
            self._first_world = first_world
        _, infos = self.vector.reset(seed, options)
        self._copy_results()
        return self.observations, infos

    def step(self, actions: npt.NDArray[Any]) -> tuple[Any, Any, Any, Any, list[dict[str, Any]]]:
        """Step all worlds."""
        infos = self.vector.step(actions)[4]
        self._copy_results()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _copy_results(self) -> None:
        for name, array in results_of(self.vector.batch_rows).items():
            np.copyto(getattr(self, name), array)

    def episodes(self) -> npt.NDArray[np.void]:
        """Drain the records, with worlds numbered within this object."""
        records = self.vector.episodes()
        records["world"] -= self._first_world
        return records

    def set_parameters(self, **parameters: Any) -> None:
        """Pass parameters on to all envs."""
        self.vector.set_parameters(**parameters)

    def get_state(self) -> bytes:
        """Return the snapshot of the vector env."""
        return self.vector.get_state()

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot."""
        self.vector.set_state(state)

    def render(self, world: int = 0) -> Any:
        """Draw one world, counted within this object."""
        return self.vector.render(self._first_world + world)

    def close(self) -> None:
        """Close the vector env."""
        self.vector.close()


class NestedAdapter:
    """Lets `as_puffer_env` take a vector env. It is registered as an adapter of puffer-spaces."""

    def matches(self, env: Any) -> bool:
        """Return whether the object is a vector env of this package."""
        return isinstance(env, VectorEnv)

    def adapt(self, env: VectorEnv, buf: Buffers | None = None) -> PufferEnv:
        """Return it as an env object."""
        return NestedVector(env, buf)


ADAPTER = NestedAdapter()
