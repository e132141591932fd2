"""Vector envs in the forms of other libraries: Gymnasium, Stable-Baselines3, and dicts by agent as in PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium import vector as gymnasium_vector
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from puffer_vector.base import VectorEnv
from puffer_vector.infos import without_index

if TYPE_CHECKING:
    from puffer_vector.sb3 import SB3VecEnv

Array = npt.NDArray[Any]
Dicts = list[dict[str, Any]]
SAME_STEP: Any = getattr(getattr(gymnasium_vector, "AutoresetMode", None), "SAME_STEP", "SameStep")
"""Gymnasium's name for resetting in the step that ends an episode; Gymnasium 1.0 had no enum for it."""


def as_gymnasium(vector: VectorEnv, copy: bool = True) -> GymnasiumVectorEnv:
    """Return a vector env as a `gymnasium.vector.VectorEnv` whose autoreset mode is SAME_STEP.

    Each agent is one of its envs. Observations and actions have the original spaces, nested ones too. When an episode
    ends, `infos["final_obs"]` holds its last observation, if the envs have them, and `infos["final_info"]` its infos.

    Args:
        vector: A synchronous vector env; it is closed with the result.
        copy: Whether returned arrays are the caller's own.

    Raises:
        ValueError: The vector env is asynchronous.
    """
    check_synchronous(vector)
    return _GymnasiumVector(vector, copy)


def as_sb3(vector: VectorEnv) -> SB3VecEnv:
    """Return a vector env as a Stable-Baselines3 `VecEnv`. Each agent is one of its envs.

    Args:
        vector: A synchronous vector env; it is closed with the result.

    Raises:
        ValueError: The vector env is asynchronous.
        ImportError: Stable-Baselines3 is not installed.
    """
    check_synchronous(vector)
    try:
        from puffer_vector.sb3 import SB3VecEnv
    except ModuleNotFoundError as error:
        raise ImportError(
            f"as_sb3 needs Stable-Baselines3, which is not installed ({error}). Run: pip install stable-baselines3"
        ) from error
    return SB3VecEnv(vector)


def as_dicts(vector: VectorEnv) -> DictView:
    """Return a view of a vector env that speaks in one dict per world, by agent, as a PettingZoo parallel env does.

    Args:
        vector: A synchronous vector env; it is closed with the result.

    Raises:
        ValueError: The vector env is asynchronous.
    """
    return DictView(vector)


def check_synchronous(vector: VectorEnv) -> None:
    """Check that each batch holds every world.

    Raises:
        ValueError: It does not.
    """
    if vector.batch_size != vector.num_envs:
        raise ValueError(
            f"an adapter needs every env in each batch; got batch_size={vector.batch_size} of {vector.num_envs} envs. "
            "Leave batch_size out, or use recv and send."
        )


class RowTranslator:
    """Turns rows into values of the original spaces and back.

    Args:
        vector: The vector env whose rows they are.
    """

    def __init__(self, vector: VectorEnv) -> None:
        self.observation_space = vector.original_observation_space
        self.action_space = vector.original_action_space
        self._observation_layout, self._action_layout = vector.observation_layout, vector.action_layout
        self._observations_are_rows = self.observation_space == vector.single_observation_space
        self._actions_are_rows = self.action_space == vector.single_action_space
        space = vector.single_action_space
        dtype = space.dtype if isinstance(space, spaces.Box) else np.int32
        self._actions = np.zeros((vector.agents_per_batch, *(space.shape or ())), dtype)

    def observation(self, row: Array) -> Any:
        """Return one observation of the caller's own."""
        return row.copy() if self._observations_are_rows else self._observation_layout.unflatten(row)

    def observations(self, rows: Array, copy: bool = True) -> Any:
        """Return a batch of observations: an array, or the space's structure of arrays."""
        if self._observations_are_rows:
            return rows.copy() if copy else rows
        return _stacked(self.observation_space, [self._observation_layout.unflatten(row) for row in rows])

    def actions(self, actions: Any) -> Any:
        """Return rows for a batch of actions of the original space."""
        if self._actions_are_rows:
            return actions
        return self.actions_of_rows(dict(enumerate(_unstacked(self.action_space, actions, len(self._actions)))))

    def actions_of_rows(self, actions: Mapping[int, Any]) -> Array:
        """Return rows for actions of the original space by row; 0 where there is none."""
        self._actions[...] = 0
        for row, action in actions.items():
            if self._actions_are_rows:
                self._actions[row] = action
            else:
                self._action_layout.flatten_into(action, self._actions[row])
        return self._actions


def _stacked(space: spaces.Space[Any], values: Sequence[Any]) -> Any:
    """Return the values of a space stacked leaf by leaf, as Gymnasium's batched space has them."""
    if isinstance(space, spaces.Dict):
        return {name: _stacked(leaf, [value[name] for value in values]) for name, leaf in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(leaf, [value[index] for value in values]) for index, leaf in enumerate(space))
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return np.stack([np.asarray(value, space.dtype) for value in values])
    return tuple(values)


def _unstacked(space: spaces.Space[Any], values: Any, count: int) -> list[Any]:
    """Take a batch apart into `count` values of the space."""
    if isinstance(space, spaces.Dict):
        leaves = {name: _unstacked(leaf, values[name], count) for name, leaf in space.items()}
        return [{name: leaf[index] for name, leaf in leaves.items()} for index in range(count)]
    if isinstance(space, spaces.Tuple):
        columns = [_unstacked(leaf, part, count) for leaf, part in zip(space, values, strict=True)]
        return [tuple(column[index] for column in columns) for index in range(count)]
    return [values[index] for index in range(count)]


class _GymnasiumVector(GymnasiumVectorEnv):
    """The object behind `as_gymnasium`."""

    def __init__(self, vector: VectorEnv, copy: bool) -> None:
        self.vector = vector
        self._rows = RowTranslator(vector)
        self._copies = copy
        self.num_envs = vector.num_agents
        self.single_observation_space = vector.original_observation_space
        self.single_action_space = vector.original_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = vector.render_mode
        self.metadata = {**dict(getattr(vector, "metadata", {})), "autoreset_mode": SAME_STEP}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all envs. A seed is the root of the seeds of all worlds; one seed an env is refused.

        Raises:
            ValueError: The seed is not one int.
        """
        if seed is not None and not isinstance(seed, int | np.integer):
            raise ValueError(
                f"seed must be one int, from which every world gets its own; got {seed!r}. Pass the first one."
            )
        observations, infos = self.vector.reset(None if seed is None else int(seed), options)
        return self._rows.observations(observations, self._copies), self._infos(infos)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step all envs with one action each."""
        result = self.vector.step(self._rows.actions(actions))
        observations, rewards, terminations, truncations, raw = result
        infos = self._infos(raw)
        ended = terminations | truncations
        if raw and ended.any():
            infos["final_info"] = self._infos([info for info in raw if ended[info["agent_index"]]])
            infos["_final_info"] = ended
        if self.vector.has_final_observations and ended.any():
            finals = np.full(self.num_envs, None, object)
            for index in np.flatnonzero(ended).tolist():
                finals[index] = self._rows.observation(self.vector.final_observations[index])
            infos["final_obs"], infos["_final_obs"] = finals, ended
        if self._copies:
            rewards, terminations, truncations = rewards.copy(), terminations.copy(), truncations.copy()
        return self._rows.observations(observations, self._copies), rewards, terminations, truncations, infos

    def _infos(self, raw: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for info in raw:
            infos = self._add_info(infos, without_index(info), info["agent_index"])
        return infos

    def render(self) -> tuple[Any, ...]:
        """Return one picture for each world."""
        return tuple(self.vector.render(int(world)) for world in self.vector.world_ids)

    def close_extras(self, **_arguments: Any) -> None:
        """Close the vector env."""
        self.vector.close()


class DictView:
    """A vector env in dicts by agent: `reset` and `step` return one dict a world, without the agents that are absent.

    Args:
        vector: A synchronous vector env.
    """

    def __init__(self, vector: VectorEnv) -> None:
        check_synchronous(vector)
        self.vector = vector
        self.num_envs = vector.num_envs
        self.agents_per_world = vector.num_agents // vector.num_envs
        self.possible_agents = [f"agent_{index}" for index in range(self.agents_per_world)]
        self._rows = RowTranslator(vector)
        self._present = np.zeros(vector.num_agents, np.bool_)

    def observation_space(self, agent: str) -> spaces.Space[Any]:  # noqa: ARG002 - PettingZoo's signature
        """Return the space of an agent's observation."""
        return self._rows.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:  # noqa: ARG002 - PettingZoo's signature
        """Return the space of an agent's action."""
        return self._rows.action_space

    @property
    def agents(self) -> list[list[str]]:
        """Names of the agents that act next, world by world."""
        present = self._present.reshape(self.num_envs, self.agents_per_world)
        return [[name for name, here in zip(self.possible_agents, row, strict=True) if here] for row in present]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Dicts, Dicts]:
        """Reset all worlds.

        Returns:
            (observations, infos), each a list with a dict by agent for every world.
        """
        self.vector.async_reset(seed, options)
        observations, *_, infos, _, masks = self.vector.recv()
        self._present = masks.copy()
        return self._by_agent(observations, self._present), self._infos(infos)

    def step(self, actions: Sequence[Mapping[str, Any]]) -> tuple[Dicts, Dicts, Dicts, Dicts, Dicts]:
        """Step all worlds.

        Args:
            actions: For every world, an action for each agent in `agents`.

        Returns:
            (observations, rewards, terminations, truncations, infos). An agent whose episode just ended is in them; its
            observation is the first of the next episode if it acts again, else the last of the old one.

        Raises:
            ValueError: An agent has no action, or one that is absent has.
        """
        self.vector.send(self._action_rows(actions))
        observations, rewards, terminals, truncations, infos, _, masks = self.vector.recv()
        told = self._present | masks
        self._present = masks.copy()
        gone = told & ~masks & (terminals | truncations)
        if gone.any():
            observations = observations.copy()
            observations[gone] = self.vector.final_observations[gone]
        return (
            self._by_agent(observations, told),
            self._scalars(rewards, told),
            self._scalars(terminals, told),
            self._scalars(truncations, told),
            self._infos(infos),
        )

    def _action_rows(self, actions: Sequence[Mapping[str, Any]]) -> Any:
        if len(actions) != self.num_envs:
            raise ValueError(f"actions must have a dict for each of the {self.num_envs} worlds; got {len(actions)}.")
        rows: dict[int, Any] = {}
        for world, (given, expected) in enumerate(zip(actions, self.agents, strict=True)):
            if set(given) != set(expected):
                raise ValueError(f"world {world} must get actions for {expected}; got them for {sorted(given)}.")
            for name, action in given.items():
                rows[world * self.agents_per_world + self.possible_agents.index(name)] = action
        return self._rows.actions_of_rows(rows)

    def _by_agent(self, observations: Array, told: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        dicts: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(told).tolist():
            world, agent = divmod(row, self.agents_per_world)
            dicts[world][self.possible_agents[agent]] = self._rows.observation(observations[row])
        return dicts

    def _scalars(self, values: Array, told: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        dicts: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(told).tolist():
            world, agent = divmod(row, self.agents_per_world)
            dicts[world][self.possible_agents[agent]] = values[row].item()
        return dicts

    def _infos(self, raw: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        dicts: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for info in raw:
            world, agent = divmod(info["agent_index"], self.agents_per_world)
            dicts[world].setdefault(self.possible_agents[agent], {}).update(without_index(info))
        return dicts

    def close(self) -> None:
        """Close the vector env."""
        self.vector.close()
