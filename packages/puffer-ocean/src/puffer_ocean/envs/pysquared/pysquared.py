"""Squared in plain Python: the same rules, random numbers and trajectories as the C environment, bit for bit.

It is the oracle that the native framework is tested against, and a template for an env of many worlds in NumPy.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_ocean.native import built_tables
from puffer_ocean.parameters import check, integer, seed_or_none
from puffer_spaces import Episodes, PufferEnv, hash3, mix

_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_EMPTY, _AGENT, _TARGET = 0, 1, 2
_MOVES = ((0, 0), (1, 0), (-1, 0), (0, -1), (0, 1))
"""Row and column of each action: stay, down, up, left, right."""


class Pcg32:
    """The generator of one episode of one world (O'Neill 2014, PCG-XSH-RR 64/32), as in core/rng.h.

    Args:
        stream: `hash3(seed, world, episode)`.
    """

    def __init__(self, stream: int) -> None:
        self.state = stream
        self.increment = mix(stream ^ _GOLDEN_GAMMA) | 1
        self.bits()

    def bits(self) -> int:
        """Return 32 uniform bits."""
        old = self.state
        self.state = (old * 6364136223846793005 + self.increment) & _MASK_64
        word = (((old >> 18) ^ old) >> 27) & _MASK_32
        rotation = old >> 59
        return ((word >> rotation) | (word << (-rotation & 31))) & _MASK_32

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n)."""
        product = self.bits() * n
        while product & _MASK_32 < (1 << 32) % n:
            product = self.bits() * n
        return product >> 32


class PySquared(PufferEnv):
    """Walk to the target cell of a board without leaving it, in plain Python.

    Args:
        num_envs: Worlds in this object.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed of the first reset that is given none. None draws one from the operating system.
        render_mode: "ansi" or None.
        **parameters: Those of `ocean-squared`, without `onehot`.
    """

    rebinds_buffers = True
    has_final_observations = True
    episode_extras = ("out_rate", "timeout_rate")
    metadata = MappingProxyType({"render_modes": ("ansi",)})

    def __init__(
        self,
        num_envs: int = 1,
        buf: Any = None,
        seed: int | None = None,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        table = built_tables()["squared"]
        defaults = {name: default for name, _kind, _offset, default, *_ in table.parameters if name != "onehot"}
        if unknown := sorted(set(parameters) - set(defaults)):
            raise TypeError(f"ocean-pysquared must get parameters it has; got {unknown}. It has {', '.join(defaults)}.")
        given = {**defaults, **check(table, parameters)}
        self.size, self.num_targets = given["size"], given["num_targets"]
        if self.size % 2 == 0:
            raise ValueError(f"ocean-pysquared: size must be odd; got size={self.size}. Use {self.size + 1}.")
        limit = given["max_steps"] or 3 * self.size
        self.max_steps = limit if limit > 0 else 2**31 - 1
        self.reward_target = np.float32(given["reward_target"])
        self.reward_out = np.float32(given["reward_out"])
        self.reward_step = np.float32(given["reward_step"])
        self.num_envs = self.num_agents = num_envs = integer("num_envs", num_envs, 1, 2**31 - 1)
        self.render_mode = render_mode
        self.single_observation_space = spaces.Box(0, _TARGET, (self.size * self.size,), np.uint8)
        self.single_action_space = spaces.Discrete(len(_MOVES))
        self._seed: int | None = None
        self._first_world = 0
        self._num_steps = 0
        self._episodes = [0] * num_envs
        self._rows, self._columns, self._lengths, self._hit, self._left = ([0] * num_envs for _ in range(5))
        self._returns = [0.0] * num_envs
        self._records = Episodes(self.episode_extras)
        super().__init__(buf, seed_or_none(seed))

    def reset(
        self,
        seed: int | None = None,
        first_world: int = 0,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - part of the contract
    ) -> tuple[npt.NDArray[Any], list[dict[str, Any]]]:
        """Start a new episode in every world, as `OceanEnv.reset` does."""
        seed = seed_or_none(seed)
        if seed is None and self._seed is None:
            seed = self.initial_seed if self.initial_seed is not None else int.from_bytes(os.urandom(8), "little")
        if seed is None:
            self._episodes = [episode + 1 for episode in self._episodes]
        else:
            self._first_world = integer("first_world", first_world, 0, 2**63 - 1)
            self._seed = seed & _MASK_64
            self._episodes = [0] * self.num_envs
            self._num_steps = 0
            self._records.clear()
        self.rewards[:] = 0
        self.terminals[:] = self.truncations[:] = False
        for world in range(self.num_envs):
            self._begin(world)
        return self.observations, []

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[dict[str, Any]]]:
        """Step every world once, in place. Actions that are no legal ones are stays."""
        self._num_steps += 1
        for world, action in enumerate(np.asarray(actions).reshape(self.num_envs).tolist()):
            self._step_world(world, action if 0 <= action < len(_MOVES) else 0)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def episodes(self) -> npt.NDArray[np.void]:
        """Return the records of episodes that ended since the last call."""
        return self._records.drain()

    def render(self) -> str | None:
        """Return world 0 as text, two characters a cell; None without a render mode."""
        if self.render_mode != "ansi":
            return None
        cells = self.observations[0].reshape(self.size, self.size)
        return "\n".join("".join(("..", "[]", "<>")[cell] for cell in row) for row in cells)

    def _begin(self, world: int) -> None:
        assert self._seed is not None
        stream = Pcg32(hash3(self._seed, self._first_world + world, self._episodes[world]))
        cells = self.observations[world]
        middle = self.size * self.size // 2
        cells[:] = _EMPTY
        cells[middle] = _AGENT
        self._rows[world] = self._columns[world] = self.size // 2
        self._left[world] = self._hit[world] = self._lengths[world] = 0
        self._returns[world] = 0.0
        while self._left[world] < self.num_targets:
            cell = stream.below(self.size * self.size - 1)
            cell += cell >= middle
            if cells[cell] != _TARGET:
                cells[cell] = _TARGET
                self._left[world] += 1
        self.masks[world] = True

    def _step_world(self, world: int, action: int) -> None:
        cells = self.observations[world]
        cells[self._rows[world] * self.size + self._columns[world]] = _EMPTY
        row, column = self._rows[world] + _MOVES[action][0], self._columns[world] + _MOVES[action][1]
        is_out = not (0 <= row < self.size and 0 <= column < self.size)
        reward = self.reward_out if is_out else self.reward_step
        if not is_out:
            self._rows[world], self._columns[world] = row, column
            cell = row * self.size + column
            if cells[cell] == _TARGET:
                reward = self.reward_target
                self._hit[world] += 1
                self._left[world] -= 1
            cells[cell] = _AGENT
        self.rewards[world] = reward
        self._returns[world] += float(reward)
        self._lengths[world] += 1
        is_terminal = is_out or self._left[world] == 0
        is_truncated = self._lengths[world] >= self.max_steps
        if is_terminal or is_truncated:
            self._end(world, is_terminal, is_truncated, is_out)

    def _end(self, world: int, is_terminal: bool, is_truncated: bool, is_out: bool) -> None:
        self.terminals[world] = is_terminal
        self.truncations[world] = is_truncated
        self.final_observations[world] = self.observations[world]
        self._records.append(
            self._num_steps,
            world,
            0,
            self._returns[world],
            self._lengths[world],
            self._hit[world] - is_out,
            float(self._left[world] == 0),
            float(is_out),
            float(is_truncated and not is_terminal),
        )
        self._episodes[world] += 1
        self._begin(world)
