"""Step foreign single-agent environments behind one set of buffers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from gymnasium import spaces
from numpy import ndarray

from puffer_emulate.copies import check_alike, env_name, make_envs, refuse_recipe
from puffer_emulate.infos import episode_metrics
from puffer_emulate.worlds import PROBE_STEPS, ForeignEnv, World, shown
from puffer_spaces import Array, Buffers, StepResult, as_flag, as_info, as_reward

_NO_LIMIT = sys.maxsize


class SingleAgentWorlds(ForeignEnv):
    """Hold worlds of one agent each, whose envs speak Gymnasium's API.

    On the step that ends an episode the world is reset at once: `observations` has the first observation of the next
    episode, `final_observations` the last of the old. Only `reset(seed)` seeds a world; at its own resets the env goes
    on with its random stream, and without options. Observations, rewards and infos are copied: an env may reuse them.

    Args:
        name: What errors call the env.
        worlds: At least one, all with the same spaces.
        observation_space: Of one world; any space that `Layout` takes.
        action_space: Of one world; any space that `ActionLayout` takes.
        buf: Buffers of len(worlds) rows, or None to allocate them.
        seed: Seed for a first reset that is given none; None leaves the choice to the envs.
        episode_extras: Names of numbers in the last info of an episode that its record keeps.
    """

    _derived = ForeignEnv._derived | {"_steps", "_rows", "_row_kind"}

    def __init__(
        self,
        name: str,
        worlds: Sequence[World],
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        buf: Buffers | Mapping[str, Any] | None = None,
        seed: int | None = None,
        episode_extras: Sequence[str] = (),
    ) -> None:
        self._limits = [_NO_LIMIT if world.time_limit is None else world.time_limit for world in worlds]
        self._deadlines = list(self._limits)
        super().__init__(name, worlds, 1, observation_space, action_space, buf, seed, episode_extras)

    def _bind_rows(self) -> None:
        super()._bind_rows()
        self._steps = [world.env.step for world in self._worlds]
        layout = self.observation_layout
        self._rows = list(self.observations)
        # What a Box's row takes as it is; any other space has checks to make, and None is no array's dtype.
        is_box = isinstance(layout.space, spaces.Box) and layout.space.shape == layout.row_shape
        self._row_kind = (layout.dtype, layout.row_shape) if is_box else (None, None)

    def step(self, actions: Array) -> StepResult:
        """Step every world once.

        Args:
            actions: Like the `actions` array, one row a world.

        Returns:
            (observations, rewards, terminals, truncations, infos): the bound arrays, overwritten by the next step, and
            the infos that are not empty, each with its `agent_index`. On the step that ends an episode the env's last
            info comes before the info of the reset.

        Raises:
            RuntimeError: The env was not reset, or was closed.
            ValueError: An action, observation or reward does not fit.
        """
        self._check_started()
        values = self._read_actions(actions)
        self._num_steps = now = self._num_steps + 1
        self.terminals.fill(False)
        self.truncations.fill(False)
        rewards, returns, deadlines, writers = self.rewards, self._returns, self._deadlines, self._writers
        (dtype, shape), rows = self._row_kind, self._rows
        infos: list[dict[str, Any]] = []
        for index, step in enumerate(self._steps):
            try:
                result = step(values[index])
            except Exception as error:
                error.add_note(f"raised by step of world {index} of {self.env_name}")
                raise
            try:
                observation, reward, terminated, truncated, info = result
                is_over = terminated or truncated
            except (TypeError, ValueError) as error:
                self._refuse_result(index, result, error)
            if type(reward) is not float:
                reward = as_reward(reward, f"reward of {self.env_name}, world {index},")
            rewards[index] = reward
            returns[index] += reward
            if is_over or now >= deadlines[index]:
                self._end_episode(index, result, infos)
            else:
                if type(observation) is ndarray and observation.dtype is dtype and observation.shape == shape:
                    rows[index][...] = observation
                else:
                    try:
                        writers[index](observation)
                    except (KeyError, TypeError, ValueError) as error:
                        self._refuse_observation(index, error)
                if info:
                    self._add_info(index, info, infos)
        return self.observations, rewards, self.terminals, self.truncations, infos

    def _end_episode(self, index: int, result: tuple[Any, ...], infos: list[dict[str, Any]]) -> None:
        """Keep all of the old episode, then reset the world: the env may reuse its observation and its info."""
        observation, _, terminated, truncated, info = result
        try:
            self._final_writers[index](observation)
        except (KeyError, TypeError, ValueError) as error:
            self._refuse_observation(index, error)
        info = as_info(info, f"info of {self.env_name}, world {index},")
        if terminated is not False:
            self.terminals[index] = as_flag(terminated, f"terminated of {self.env_name}, world {index},")
        if truncated is not False or self._num_steps >= self._deadlines[index]:
            is_cut = as_flag(truncated, f"truncated of {self.env_name}, world {index},")
            self.truncations[index] = is_cut or self._num_steps >= self._deadlines[index]
        record = (self._num_steps, index, 0, self._returns[index], self._num_steps - self._starts[index])
        if info:
            score, perf, extras = episode_metrics(info, self.episode_extras)
            self._episodes.append(*record, score, perf, *extras)
            self._add_info(index, info, infos)
        else:
            self._episodes.append(*record)
        self._reset_world(index, None, None, infos)

    def _reset_world(
        self, index: int, seed: int | None, options: dict[str, Any] | None, infos: list[dict[str, Any]]
    ) -> None:
        observation, info = self._reset_env(index, seed, options)
        self._returns[index] = 0.0
        self._starts[index] = self._num_steps
        self._deadlines[index] = self._num_steps + self._limits[index]
        try:
            self._writers[index](observation)
        except (KeyError, TypeError, ValueError) as error:
            self._refuse_observation(index, error)
        if info:
            self._add_info(index, info, infos)

    def _refuse_result(self, index: int, result: Any, error: Exception) -> NoReturn:
        if not isinstance(result, tuple) or len(result) != 5:
            raise TypeError(
                f"step of {self.env_name} must return (observation, reward, terminated, truncated, info); "
                f"got {shown(result)} in world {index}. Return these five values."
            ) from error
        raise ValueError(
            f"terminated and truncated of {self.env_name} must be one bool each; got {shown(result[2])} and "
            f"{shown(result[3])} in world {index}. Return bool(...) of one value."
        ) from error

    def _probe_rollout(self, env: Any) -> object:
        space = pickle.loads(pickle.dumps(self.original_action_space))
        space.seed(0)
        results: list[tuple[Any, ...]] = []
        for _ in range(PROBE_STEPS):
            observation, reward, terminated, truncated, _info = env.step(space.sample())
            results.append((pickle.dumps(observation), float(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                observation, _info = env.reset()
                results.append((pickle.dumps(observation),))
        return results

    def _state_names(self) -> tuple[str, ...]:
        return (*super()._state_names(), "_deadlines")


class SingleAgentAdapter(SingleAgentWorlds):
    """Makes its worlds itself: what the adapters of single-agent APIs share.

    Args:
        env: An env, or a class or function that makes one.
        env_creator: A class or function that makes one, in place of `env`.
        env_args: Its positional arguments.
        env_kwargs: Its keyword arguments.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed for a first reset that is given none. None: each env seeds itself.
        num_envs: Worlds in this object.
        episode_extras: Names of numbers in the last info of an episode that its record keeps beside score and perf.

    Raises:
        TypeError: What is given or made is no environment of the API.
        ValueError: The same object was made twice, worlds differ, or an object cannot be made again.
    """

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        buf: Buffers | Mapping[str, Any] | None = None,
        seed: int | None = None,
        *,
        num_envs: int = 1,
        episode_extras: Sequence[str] = (),
    ) -> None:
        self.envs = make_envs(env, env_creator, env_args, env_kwargs or {}, num_envs, self._recipe_of)
        self.env = self.envs[0]
        worlds = [self._world_of(made) for made in self.envs]
        check_alike([world.env for world in worlds])
        self.render_mode = getattr(self.env, "render_mode", None)
        self.metadata = {**(getattr(self.env, "metadata", None) or {})}
        stepped = worlds[0].env
        super().__init__(
            env_name(self.env), worlds, stepped.observation_space, stepped.action_space, buf, seed, episode_extras
        )

    def _world_of(self, env: Any) -> World:
        """Check that an env is of the API, and return what is stepped in its place."""
        raise NotImplementedError

    def _recipe_of(self, env: Any) -> Callable[[], Any]:
        """Return what makes others like an env object."""
        refuse_recipe(env)
