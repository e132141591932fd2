"""The short form of an environment for one agent, given the full contract."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces.buffers import Array, Buffers
from puffer_spaces.coercion import as_flag, as_info, as_reward, copy_actions
from puffer_spaces.env import PufferEnv, StepResult
from puffer_spaces.episodes import Episodes
from puffer_spaces.layout import ActionLayout, BoundRow, Layout
from puffer_spaces.resets import no_options, reset_arguments
from puffer_spaces.seeding import world_seed

_STATE = struct.Struct("<qdq?")
_IS_CUT = "TimeLimit.truncated"
_ROWS = frozenset({"_observation_row", "_final_row", "_action_row"})


class SingleAgentEnv(PufferEnv):
    """Steps an env in the short form and keeps the contract for it.

    The env's `reset` returns an observation or (observation, info); its `step(action)` returns (observation, reward,
    done, info), where `info["TimeLimit.truncated"]` marks a truncation, or (observation, reward, terminated, truncated,
    info). Spaces may nest. When an episode ends the env is reset in the same step, the last observation is kept in
    `final_observations`, and a record is written; `score`, `perf` and the env's `episode_extras` are taken from the
    last info where it has them.

    Seeds: with s = `world_seed(seed, first_world)`, the env's `reset` gets `seed=s` if it names the argument, else its
    method `seed(s)` is called if it has one; and `env.np_random` restarts from s. Global random state is never touched,
    so an env must draw from one of these to be reproducible. Resets at the end of an episode pass no seed: the env
    continues its sequence.

    Args:
        env: The env in the short form, with `observation_space` and `action_space`.
        buf: Buffers with one row, or None.
        seed: Seed for the first reset that is given none.
    """

    num_agents = 1
    has_final_observations = True
    rebinds_buffers = True
    clears_flags = True

    def __init__(self, env: Any, buf: Buffers | None = None, seed: int | None = None) -> None:
        _check_short_form(env)
        self.env = env
        self.observation_layout = Layout(_space_of(env, "observation_space"))
        self.action_layout = ActionLayout(_space_of(env, "action_space"))
        self.original_observation_space = self.observation_layout.space
        self.original_action_space = self.action_layout.space
        self.single_observation_space = self.observation_layout.row_space
        self.single_action_space = self.action_layout.row_space
        self.metadata = dict(getattr(env, "metadata", self.metadata))
        self.render_mode = getattr(env, "render_mode", None)
        self.has_state = bool(getattr(env, "has_state", False))
        self._episodes = Episodes(getattr(env, "episode_extras", ()))
        self.episode_extras = self._episodes.extras
        self._num_steps = 0
        self._episode_return = 0.0
        self._episode_length = 0
        self._is_reset = False
        self._is_closed = False
        super().__init__(buf, seed)
        self._bind_rows()

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def driver_env(self) -> PufferEnv:
        """The env in the short form."""
        return self.env  # type: ignore[no-any-return]

    def set_buffers(self, buffers: Buffers) -> None:
        """Bind the row that the env's values are written to."""
        super().set_buffers(buffers)
        self._bind_rows()

    def __getstate__(self) -> dict[str, Any]:
        # A copied view is no view: the copy binds its rows anew.
        return {name: value for name, value in vars(self).items() if name not in _ROWS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind_rows()

    def _bind_rows(self) -> None:
        self._observation_row = self.observation_layout.bind(self.observations[0:1])
        self._final_row = self.observation_layout.bind(self.final_observations[0:1])
        self._action_row = self.action_layout.bind(self.actions[0:1])

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode, as `PufferEnv.reset`."""
        self._check_open()
        if seed is None and not self._is_reset:
            seed = self.initial_seed
        if seed is not None:
            seed = world_seed(seed, first_world)
            self._num_steps = 0
            self._episodes.clear()
        self._episode_return, self._episode_length = 0.0, 0
        info = self._reset_env(seed, options)
        self.rewards[0] = 0
        self.terminals[0] = self.truncations[0] = False
        self.masks[0] = True
        self._is_reset = True
        return self.observations, [info] if info else []

    def step(self, actions: Array) -> StepResult:
        """Step the env, and reset it where its episode ends. As `PufferEnv.step`."""
        if not self._is_reset:
            self._check_open()
            raise RuntimeError(f"{type(self.env).__name__} must be reset before its first step. Call reset(seed).")
        if actions is not self.actions:
            copy_actions(actions, self.actions, type(self.env).__name__)
        result = self.env.step(self._read_action())
        observation, reward, terminated, truncated, info = _five_values(result, self.env)
        self._num_steps += 1
        self._episode_length += 1
        self._episode_return += reward
        self.rewards[0] = reward
        self.terminals[0] = terminated
        self.truncations[0] = truncated
        infos = []
        if info:
            info = _copied(info)
            infos.append(info)
        if terminated or truncated:
            self._write(self._final_row, observation)
            self._record_episode(info)
            first_info = self._reset_env(None, None)
            if first_info:
                infos.append({"reset_info": first_info})
        else:
            self._write(self._observation_row, observation)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _reset_env(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        if seed is not None and isinstance(vars(self.env).get("np_random"), np.random.Generator | None):
            self.env.np_random = np.random.default_rng(seed)
        takes = reset_arguments(type(self.env))
        arguments: dict[str, Any] = {}
        if takes.seed and (seed is not None or takes.seed_is_required):
            arguments["seed"] = seed
        elif seed is not None and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        if options is not None:
            if not takes.options:
                raise no_options(self.env, options)
            arguments["options"] = options
        observation, info = _two_values(self.env.reset(**arguments), self.original_observation_space)
        self._write(self._observation_row, observation)
        return _copied(info) if info else {}

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{type(self.env).__name__} must be open; close() was called. Make a new one.")

    def _read_action(self) -> Any:
        try:
            return self._action_row.read()
        except ValueError as error:
            raise ValueError(f"action of {type(self.env).__name__}: {error}") from None

    def _write(self, row: BoundRow, observation: Any) -> None:
        try:
            row.write(observation)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(observation, Mapping) and not isinstance(self.original_observation_space, spaces.Dict):
                raise _not_for_several_agents(self.env, "a dict of observations") from None
            raise type(error)(f"observation of {type(self.env).__name__}: {error.args[0]}") from None

    def _record_episode(self, info: Mapping[str, Any]) -> None:
        score, perf = info.get("score"), info.get("perf")
        self._episodes.append(
            self._num_steps,
            0,
            0,
            self._episode_return,
            self._episode_length,
            None if score is None else as_reward(score, 'info["score"]'),
            math.nan if perf is None else as_reward(perf, 'info["perf"]'),
            *(as_reward(info.get(name, math.nan), f'info["{name}"]') for name in self.episode_extras),
        )
        self._episode_return, self._episode_length = 0.0, 0

    def episodes(self) -> npt.NDArray[np.void]:
        """Drain the records of finished episodes."""
        return self._episodes.drain()

    def set_parameters(self, **parameters: Any) -> None:
        """Pass parameters on to the env."""
        self.env.set_parameters(**parameters)

    def get_state(self) -> bytes:
        """Return the env's snapshot and the counts of the running episode."""
        counts = _STATE.pack(self._num_steps, self._episode_return, self._episode_length, self._is_reset)
        return counts + bytes(self.env.get_state())

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of `get_state`. Records that were not drained are forgotten."""
        counts = _STATE.unpack_from(state)
        self._num_steps, self._episode_return, self._episode_length, self._is_reset = counts
        self._episodes.clear()
        self.env.set_state(state[_STATE.size :])

    def render(self) -> Any:
        """Draw the env."""
        return self.env.render()

    def close(self) -> None:
        """Close the env, once."""
        if not self._is_closed:
            self._is_closed = True
            self._is_reset = False
            self.env.close()


def _check_short_form(env: Any) -> None:
    name = type(env).__name__
    if isinstance(env, PufferEnv) and "initial_seed" not in vars(env):
        raise TypeError(f"{name} must call super().__init__(buf) in its __init__; it does not. Call it there.")
    for attribute in ("observation_space", "action_space"):
        if _space_of(env, attribute) is None:
            raise TypeError(
                f"{name} must assign {attribute} after super().__init__(buf); it does not. "
                "Use self.make_space, self.make_discrete or a gymnasium space."
            )
    num_agents = getattr(env, "num_agents", 1)
    if num_agents != 1:
        raise _not_for_several_agents(env, f"num_agents={num_agents}")


def _not_for_several_agents(env: Any, got: str) -> TypeError:
    return TypeError(
        f"{type(env).__name__} must have one agent in the short form; got {got}. For more, set "
        "single_observation_space, single_action_space and num_agents before super().__init__(buf) and write rows, "
        "or make it a PettingZoo env."
    )


def _space_of(env: Any, attribute: str) -> Any:
    """Return a space that the env assigned, under its own name or the one for a single agent; None without one."""
    for name in (attribute, f"single_{attribute}"):
        if name in getattr(env, "__dict__", {}):
            return env.__dict__[name]
        for cls in type(env).__mro__:
            if cls is PufferEnv:
                break
            if name in cls.__dict__:
                return getattr(env, name)
    return None


def _two_values(result: Any, space: spaces.Space[Any]) -> tuple[Any, Mapping[str, Any]]:
    """Take what a reset returned, an observation or (observation, info), apart."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        return result, {}
    ends_in_dict = isinstance(space, spaces.Tuple) and len(space) == 2 and isinstance(space[1], spaces.Dict)
    if ends_in_dict and not (isinstance(result[0], tuple | list) and len(result[0]) == 2):
        return result, {}
    return result


def _five_values(result: Any, env: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Take what a step returned, in four values or five, apart."""
    count = len(result) if isinstance(result, tuple | list) else 0
    if count not in (4, 5):
        raise TypeError(
            f"step of {type(env).__name__} must return (observation, reward, done, info) or (observation, reward, "
            f"terminated, truncated, info); got {type(result).__name__} of length {count}. Return one of them."
        )
    observation, reward, info = result[0], result[1], result[-1]
    # Names for errors are only made where a value is not plain: this runs at every step.
    if type(reward) is not float:
        if isinstance(reward, Mapping):
            raise _not_for_several_agents(env, "a dict of rewards")
        reward = as_reward(reward, f"reward of {type(env).__name__}")
    if type(info) is not dict:
        info = as_info(info, f"info of {type(env).__name__}")
    is_cut = as_flag(info.get(_IS_CUT, False), f'info["{_IS_CUT}"]') if info else False
    if count == 5:
        terminated, truncated = as_flag(result[2]), as_flag(result[3], "truncated")
        return observation, reward, terminated, truncated or is_cut, info
    is_done = as_flag(result[2], "done")
    return observation, reward, is_done and not is_cut, is_done and is_cut, info


def _copied(info: Mapping[str, Any]) -> dict[str, Any]:
    """Copy an info that its env may change later, arrays included."""
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in info.items()}
