"""The Stable-Baselines3 form of a vector env. Importing this needs stable-baselines3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from puffer_vector.adapters import RowTranslator
from puffer_vector.base import VectorEnv
from puffer_vector.infos import without_index

Indices = int | Iterable[int] | None


class SB3VecEnv(VecEnv):
    """A vector env as a `VecEnv`. Each agent is one of its envs.

    Args:
        vector: A synchronous vector env; it is closed with this object.
    """

    def __init__(self, vector: VectorEnv) -> None:
        self.vector = vector
        self._rows = RowTranslator(vector)
        self._root_seed: int | None = None
        self._steps: Any = None
        super().__init__(vector.num_agents, vector.original_observation_space, vector.original_action_space)

    def reset(self) -> Any:
        """Reset all envs and return the first observations."""
        observations, infos = self.vector.reset(self._root_seed)
        self._root_seed = None
        self.reset_infos = self._infos(infos)
        return self._rows.observations(observations)

    def step_async(self, actions: Any) -> None:
        """Start a step."""
        self.vector.send(self._rows.actions(actions))

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Return (observations, rewards, dones, infos) of the step that was started."""
        observations, rewards, terminals, truncations, raw, _, _ = self.vector.recv()
        infos = self._infos(raw)
        dones = terminals | truncations
        for index in np.flatnonzero(dones).tolist():
            infos[index]["TimeLimit.truncated"] = bool(truncations[index] and not terminals[index])
            if self.vector.has_final_observations:
                infos[index]["terminal_observation"] = self._rows.observation(self.vector.final_observations[index])
        records = self.vector.episodes()
        agents = self.vector.num_agents // self.vector.num_envs
        first_world = int(self.vector.world_ids[0])
        for record in records:
            row = (int(record["world"]) - first_world) * agents + int(record["agent"])
            infos[row]["episode"] = {"r": float(record["episode_return"]), "l": int(record["episode_length"])}
        return self._rows.observations(observations), rewards.copy(), dones, infos

    def _infos(self, raw: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for info in raw:
            infos[info["agent_index"]].update(without_index(info))
        return infos

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Set the root of the seeds for the next reset."""
        self._root_seed = seed
        return [seed] * self.num_envs

    def close(self) -> None:
        """Close the vector env."""
        self.vector.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of the env, which is the same for each of them."""
        return [getattr(self.vector.driver_env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set a parameter of all envs; see `VectorEnv.set_parameters`."""
        if indices is not None:
            raise ValueError(f"set_attr must be for all envs, as they share parameters; got indices={indices!r}.")
        self.vector.set_parameters(**{attr_name: value})

    def env_method(self, method_name: str, *_args: Any, indices: Indices = None, **_kwargs: Any) -> list[Any]:
        """Refuse: envs may live in other processes, many of them in one object."""
        raise NotImplementedError(f"a vector env has no env objects to call {method_name} of ({indices=}).")

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:  # noqa: ARG002
        """Return False for each env: wrappers are inside the creators."""
        return [False] * len(list(self._get_indices(indices)))

    def get_images(self) -> list[Any]:
        """Return one picture for each world."""
        return [self.vector.render(int(world)) for world in self.vector.world_ids]
