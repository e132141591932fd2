"""What all adapters share: worlds of a foreign environment in one PufferEnv, whatever they speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_emulate.actions import make_action_reader
from puffer_emulate.infos import own_info
from puffer_emulate.plain_state import dump_state, load_state
from puffer_emulate.snapshots import is_snapshot_exact, restore_snapshot, take_snapshot
from puffer_spaces import ActionLayout, Array, Buffers, Episodes, Layout, PufferEnv, as_info, world_seed

PROBE_STEPS = 4
"""Steps for which two copies of an env must agree before its snapshots count as exact."""


@dataclass(slots=True)
class World:
    """One foreign env."""

    env: Any
    """What is reset, stepped and drawn."""
    close: Callable[[], Any]
    """Closes the env as it was given, with all its wrappers."""
    time_limit: int | None
    """Steps after which an episode is truncated by us, or None."""
    layers: list[Any]
    """Wrappers of `env` and the env inside, for snapshots."""


class ForeignEnv(PufferEnv):
    """Worlds of a foreign environment: all but stepping them, which subclasses do.

    Args:
        name: What errors call the env.
        worlds: At least one, all with the same spaces.
        agents_per_world: Rows of a world.
        observation_space: Of one agent; any space that `Layout` takes.
        action_space: Of one agent; any space that `ActionLayout` takes.
        buf: Buffers of len(worlds) * agents_per_world rows, or None to allocate them.
        seed: Seed for a first reset that is given none; None leaves the choice to the envs.
        episode_extras: Names of numbers in the last info of an episode that its record keeps.
    """

    has_final_observations = True
    rebinds_buffers = True
    clears_flags = True

    _derived: ClassVar[frozenset[str]] = frozenset({"_read_actions", "_writers", "_final_writers"})
    """Attributes that follow from the others, and that a copy of the env makes anew."""

    def __init__(
        self,
        name: str,
        worlds: Sequence[World],
        agents_per_world: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        buf: Buffers | Mapping[str, Any] | None = None,
        seed: int | None = None,
        episode_extras: Sequence[str] = (),
    ) -> None:
        self.env_name = name
        self.observation_layout = Layout(observation_space)
        self.action_layout = ActionLayout(action_space)
        self.original_observation_space = self.observation_layout.space
        self.original_action_space = self.action_layout.space
        self.single_observation_space = self.observation_layout.row_space
        self.single_action_space = self.action_layout.row_space
        self.num_envs = len(worlds)
        self.agents_per_world = agents_per_world
        self.num_agents = self.num_envs * agents_per_world
        self.episode_extras = tuple(episode_extras)
        self._worlds = list(worlds)
        self._read_actions = make_action_reader(name, self.action_layout, self.num_agents)
        self._returns = [0.0] * self.num_agents
        self._starts = [0] * self.num_agents
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

    def __getstate__(self) -> dict[str, Any]:
        # A copied view is no view, and a reader is a closure: the copy makes its own.
        return {name: value for name, value in vars(self).items() if name not in self._derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._read_actions = make_action_reader(self.env_name, self.action_layout, self.num_agents)
        self._bind_rows()

    def _bind_rows(self) -> None:
        bind = self.observation_layout.bind
        self._writers = [bind(row).write for row in self.observations]
        self._final_writers = [bind(row).write for row in self.final_observations]

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[Array, list[dict[str, Any]]]:
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
        self._check_open()
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

    def _reset_world(
        self, index: int, seed: int | None, options: dict[str, Any] | None, infos: list[dict[str, Any]]
    ) -> None:
        raise NotImplementedError

    def _reset_env(self, index: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Mapping[Any, Any]]:
        """Reset one foreign env and check that it returned an observation and an info."""
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
                f"reset of {self.env_name} must return (observation, info), info a dict; got {shown(result)}. "
                "Return both."
            )
        return result

    def _check_started(self) -> None:
        if not self._is_started:
            self._check_open()
            raise RuntimeError(f"{self.env_name} must be reset before step; got step first. Call reset(seed).")

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self.env_name} must be open; close() was called. Make a new one.")

    def _add_info(self, row: int, info: Mapping[str, Any], infos: list[dict[str, Any]]) -> None:
        own = own_info(as_info(info, f"info of {self.env_name}, {self._where(row)},"))
        own["agent_index"] = row
        infos.append(own)

    def _refuse_observation(self, row: int, error: Exception) -> NoReturn:
        message = error.args[0] if error.args else error
        raise type(error)(f"observation of {self.env_name}, {self._where(row)}: {message}") from None

    def _where(self, row: int) -> str:
        return f"world {row // self.agents_per_world}"

    def set_parameters(self, **parameters: Any) -> None:
        """Pass parameters to `set_parameters` of every world's env, or of the outermost of its wrappers that has one.

        When a world applies them is up to its env. One that keeps to the rule of `PufferEnv` does so at its next reset;
        its spaces must stay as they are. All worlds must have the method before that of any is called; if a call
        fails, the worlds before it keep the new parameters.

        Raises:
            RuntimeError: The env was closed.
            NotImplementedError: A world's env has no such method.
        """
        self._check_open()
        setters = [_setter_of(world) for world in self._worlds]
        if None in setters and parameters:
            index = setters.index(None)
            raise NotImplementedError(
                f"{self.env_name} must define set_parameters to change {sorted(parameters)}; got "
                f"{_class_of(self._worlds[index])} in world {index}, and neither it nor a wrapper around it does. "
                "Define set_parameters(self, **parameters) in the env or in a wrapper of your own."
            )
        for index, setter in enumerate(setters):
            if setter is None:
                continue
            try:
                setter(**parameters)
            except Exception as error:
                error.add_note(f"raised by set_parameters of world {index} of {self.env_name}")
                raise

    def episodes(self) -> npt.NDArray[np.void]:
        """Return and forget the records of finished episodes, sorted by (step, world, agent).

        `score`, `perf` and the `episode_extras` are the numbers of those names in the episode's last info; without one,
        `score` is the return and the others are nan.
        """
        return self._episodes.drain()

    @property
    def has_state(self) -> bool:  # type: ignore[override]
        """Whether `get_state` is exact; see `puffer_emulate.snapshots`. Tried once, on copies of the first world."""
        if self._has_state is None:
            self._has_state = self.render_mode != "human" and is_snapshot_exact(
                self._worlds[0].layers, self._is_started, self._probe_rollout, lambda env: env.reset(seed=0)
            )
        return self._has_state

    def _probe_rollout(self, env: Any) -> object:
        """Step a copy of a world's env a few times and return something that can be compared."""
        raise NotImplementedError

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
            "episodes": episodes.tobytes(),
            **{name: getattr(self, name) for name in self._state_names()},
        }
        return dump_state(state)

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of `get_state` of an env made alike.

        Raises:
            ValueError: The snapshot is of another env.
        """
        values = load_state(state, ("name", "worlds", "episodes", *self._state_names()))
        if values["name"] != self.env_name or len(values["worlds"]) != self.num_envs:
            raise ValueError(
                f"state must be of {self.env_name} with {self.num_envs} worlds; got one of {values['name']} with "
                f"{len(values['worlds'])}. Make the env as it was made."
            )
        for world, snapshot in zip(self._worlds, values["worlds"], strict=True):
            restore_snapshot(world.layers, snapshot)
        self._episodes.clear()
        self._episodes.extend(np.frombuffer(values["episodes"], self._episodes.dtype))
        for name in self._state_names():
            setattr(self, name, values[name])

    def _state_names(self) -> tuple[str, ...]:
        """Name the attributes of the adapter itself, plain values, that belong to a snapshot."""
        return ("_returns", "_starts", "_num_steps", "_is_started")

    def render(self, world: int = 0) -> Any:
        """Draw one world as its `render_mode` says.

        Raises:
            ValueError: There is no such world.
        """
        if not 0 <= world < self.num_envs:
            raise ValueError(f"world must be in [0, {self.num_envs - 1}]; got {world}. Worlds count from 0.")
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


def _setter_of(world: World) -> Callable[..., Any] | None:
    """Return the outermost `set_parameters` among a world's wrappers and its env, or None."""
    for layer in (*world.layers, _unwrapped(world)):
        setter = getattr(layer, "set_parameters", None)
        if callable(setter):
            return cast(Callable[..., Any], setter)
    return None


def _unwrapped(world: World) -> Any:
    """Return a world's innermost env. Some wrappers keep theirs under a name of their own, and tell it only so."""
    innermost = world.layers[-1]
    unwrapped = getattr(innermost, "unwrapped", None)
    return innermost if unwrapped is None else unwrapped


def _class_of(world: World) -> str:
    kind = type(_unwrapped(world))
    return f"{kind.__module__}.{kind.__qualname__}"


def shown(value: Any) -> str:
    """Describe a value that an env returned, in a message."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}: ({', '.join(type(item).__name__ for item in value)})"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    return repr(value)
