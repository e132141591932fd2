"""Step foreign single-agent environments behind one set of buffers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.actions import make_action_reader
from puffer_emulate.infos import episode_metrics, own_info
from puffer_emulate.snapshots import is_snapshot_exact, restore_snapshot, take_snapshot
from puffer_spaces import ActionLayout, Buffers, Episodes, Layout, PufferEnv, world_seed
from puffer_spaces.coercion import as_flag, as_reward
from puffer_spaces.env import StepResult

_NO_LIMIT = sys.maxsize
_PROBE_STEPS = 4


@dataclass(slots=True)
class World:
    """One foreign env that speaks Gymnasium's API."""

    env: Any
    """What is reset, stepped and drawn."""
    close: Callable[[], Any]
    """Closes the env as it was given, with all its wrappers."""
    time_limit: int | None
    """Steps after which an episode is truncated by us, or None."""
    layers: list[Any]
    """Wrappers of `env` and the env inside, for snapshots."""


class SingleAgentWorlds(PufferEnv):
    """Hold worlds of one agent each and give them the contract of `PufferEnv`.

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

    has_final_observations = True
    rebinds_buffers = True
    clears_flags = True

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
        self.env_name = name
        self.original_observation_space = observation_space
        self.original_action_space = action_space
        self.observation_layout = Layout(observation_space)
        self.action_layout = ActionLayout(action_space)
        self.single_observation_space = self.observation_layout.row_space
        self.single_action_space = self.action_layout.row_space
        self.num_envs = self.num_agents = len(worlds)
        self.episode_extras = tuple(episode_extras)
        self._worlds = list(worlds)
        self._steps = [world.env.step for world in worlds]
        self._limits = [_NO_LIMIT if world.time_limit is None else world.time_limit for world in worlds]
        self._read_actions = make_action_reader(name, self.action_layout, len(worlds))
        self._returns = [0.0] * self.num_envs
        self._starts = [0] * self.num_envs
        self._deadlines = list(self._limits)
        self._episodes = Episodes(episode_extras)
        self._num_steps = 0
        self._is_started = False
        self._is_closed = False
        self._has_state: bool | None = None
        super().__init__(buf, seed)
        self._bind_rows()

    @property
    def emulated(self) -> bool:
        """True: this is an adapter around a foreign env."""
        return True

    def set_buffers(self, buffers: Buffers) -> None:
        """Bind the env to arrays of the caller's."""
        super().set_buffers(buffers)
        self._bind_rows()

    def _bind_rows(self) -> None:
        layout, bind = self.observation_layout, self.observation_layout.bind
        self._rows = list(self.observations)
        # What a Box's row takes as it is; any other space has checks to make, and None is no array's dtype.
        is_box = isinstance(layout.space, spaces.Box) and layout.space.shape == layout.row_shape
        self._row_kind = (layout.dtype, layout.row_shape) if is_box else (None, None)
        self._writers = [bind(row).write for row in self.observations]
        self._final_writers = [bind(row).write for row in self.final_observations]

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], list[dict[str, Any]]]:
        """Start a new episode in every world.

        Args:
            seed: World w is reset with `world_seed(seed, first_world + w)`. None continues each env's own random
                sequence, which an env that was never seeded starts from the system's entropy.
            first_world: Number of this object's first world in the whole vector env.
            options: Passed to every env. They are not kept for the resets at the end of an episode.

        Returns:
            (observations, infos): the bound array, and the infos that are not empty, each with its `agent_index`.

        Raises:
            RuntimeError: The env was closed.
            ValueError: An observation does not fit its space.
        """
        if self._is_closed:
            raise RuntimeError(f"{self.env_name} must be open to be reset; close() was called. Make a new one.")
        if seed is None and not self._is_started:
            seed = self.initial_seed
        if seed is not None:
            self._num_steps = 0
        infos: list[dict[str, Any]] = []
        for index in range(self.num_envs):
            self._reset_world(index, None if seed is None else world_seed(seed, first_world + index), options, infos)
        self._is_started = True
        self.rewards.fill(0)
        self.terminals.fill(False)
        self.truncations.fill(False)
        return self.observations, infos

    def step(self, actions: npt.NDArray[Any]) -> StepResult:
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
        if not self._is_started:
            raise RuntimeError(f"{self.env_name} must be reset before step; got step first. Call reset(seed).")
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
                if type(observation) is np.ndarray and observation.dtype is dtype and observation.shape == shape:
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
        # Only what is given is passed on: many envs leave out an argument they have no use for.
        arguments: dict[str, Any] = {}
        if seed is not None:
            arguments["seed"] = seed
        if options is not None:
            arguments["options"] = options
        try:
            result = self._worlds[index].env.reset(**arguments)
        except Exception as error:
            error.add_note(f"raised by reset of world {index} of {self.env_name}")
            raise
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Mapping):
            raise TypeError(
                f"reset of {self.env_name} must return (observation, info), info a dict; got {_shown(result)}. "
                "Return both, or use the adapter for the old gym API."
            )
        self._returns[index] = 0.0
        self._starts[index] = self._num_steps
        self._deadlines[index] = self._num_steps + self._limits[index]
        try:
            self._writers[index](result[0])
        except (KeyError, TypeError, ValueError) as error:
            self._refuse_observation(index, error)
        if result[1]:
            self._add_info(index, result[1], infos)

    def _add_info(self, index: int, info: Mapping[str, Any], infos: list[dict[str, Any]]) -> None:
        own = own_info(info)
        own["agent_index"] = index
        infos.append(own)

    def _refuse_observation(self, index: int, error: Exception) -> NoReturn:
        message = error.args[0] if error.args else error
        raise type(error)(f"observation of {self.env_name}, world {index}: {message}") from None

    def _refuse_result(self, index: int, result: Any, error: Exception) -> NoReturn:
        if not isinstance(result, tuple) or len(result) != 5:
            raise TypeError(
                f"step of {self.env_name} must return (observation, reward, terminated, truncated, info); "
                f"got {_shown(result)} in world {index}. An env of the old gym API returns four values: "
                "wrap it with puffer_emulate.LegacyGymPufferEnv."
            ) from error
        raise ValueError(
            f"terminated and truncated of {self.env_name} must be one bool each; got {_shown(result[2])} and "
            f"{_shown(result[3])} in world {index}. Return bool(...) of one value."
        ) from error

    def episodes(self) -> npt.NDArray[np.void]:
        """Return and forget the records of finished episodes, sorted by (step, world).

        `score`, `perf` and the `episode_extras` are the numbers of those names in the episode's last info; without one,
        `score` is the return and the others are nan.
        """
        return self._episodes.drain()

    @property
    def has_state(self) -> bool:  # type: ignore[override]
        """Whether `get_state` is exact; see `puffer_emulate.snapshots`. Tried once, on copies of the first world."""
        if self._has_state is None:
            world = self._worlds[0]
            self._has_state = self.render_mode != "human" and is_snapshot_exact(
                world.layers, self._is_started, self._probe_rollout, lambda env: env.reset(seed=0)
            )
        return self._has_state

    def _probe_rollout(self, env: Any) -> list[tuple[Any, ...]]:
        space = pickle.loads(pickle.dumps(self.original_action_space))
        space.seed(0)
        results: list[tuple[Any, ...]] = []
        for _ in range(_PROBE_STEPS):
            observation, reward, terminated, truncated, _info = env.step(space.sample())
            results.append((pickle.dumps(observation), float(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                observation, _info = env.reset()
                results.append((pickle.dumps(observation),))
        return results

    def get_state(self) -> bytes:
        """Return an exact snapshot of all worlds, their running episodes and the records not yet drained.

        Raises:
            NotImplementedError: The env has no exact snapshot.
        """
        if not self.has_state:
            raise NotImplementedError(
                f"{self.env_name} must keep its state in picklable attributes for snapshots; it does not. "
                "Go on without them: a resumed run then starts new episodes."
            )
        episodes = self._episodes.drain()
        self._episodes.extend(episodes)
        state = {
            "name": self.env_name,
            "worlds": [take_snapshot(world.layers) for world in self._worlds],
            "returns": self._returns,
            "starts": self._starts,
            "episodes": episodes.tobytes(),
            "num_steps": self._num_steps,
            "is_started": self._is_started,
        }
        return pickle.dumps(state, protocol=5)

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of `get_state` of an env made alike."""
        values = _load_plain(state)
        if values["name"] != self.env_name or len(values["worlds"]) != self.num_envs:
            raise ValueError(
                f"state must be of {self.env_name} with {self.num_envs} worlds; got one of {values['name']} with "
                f"{len(values['worlds'])}. Make the env as it was made."
            )
        for world, snapshot in zip(self._worlds, values["worlds"], strict=True):
            restore_snapshot(world.layers, snapshot)
        self._returns = list(values["returns"])
        self._starts = list(values["starts"])
        self._deadlines = [start + limit for start, limit in zip(self._starts, self._limits, strict=True)]
        self._episodes.clear()
        self._episodes.extend(np.frombuffer(values["episodes"], self._episodes.dtype))
        self._num_steps = values["num_steps"]
        self._is_started = values["is_started"]

    def render(self, world: int = 0) -> Any:
        """Draw one world as its `render_mode` says."""
        return self._worlds[world].env.render()

    def close(self) -> None:
        """Close every env once. If one fails, the others are closed before its error is raised."""
        if self._is_closed:
            return
        self._is_closed = True
        self._is_started = False
        first_error: Exception | None = None
        for index, world in enumerate(self._worlds):
            try:
                world.close()
            except Exception as error:
                error.add_note(f"raised by close of world {index} of {self.env_name}")
                first_error = first_error or error
        if first_error is not None:
            raise first_error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a state may hold plain values only; got {module}.{name}")


def _load_plain(state: bytes) -> dict[str, Any]:
    import io

    values = _PlainUnpickler(io.BytesIO(state)).load()
    if not isinstance(values, dict) or "worlds" not in values:
        raise ValueError("state must come from get_state of such an env; got other data.")
    return values


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}: ({', '.join(type(item).__name__ for item in value)})"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    return repr(value)
