"""Where the transitions of a rollout are kept.

::

    agent 0   | segment 0                 | segment 1                 |      each segment:
    agent 1   | segment 2                 | segment 3                 |      horizon transitions,
    ...       |<------- horizon --------->|<------- horizon --------->|      horizon + 1 values

Slot t of a segment holds observation o_t, the action taken in it, and the reward and flags that this very action
brought. The observation after the last slot is kept apart: it only bootstraps, and begins the agent's next segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from puffer_train.agent_numbers import agents_per_world
from puffer_train.config import TrainConfig

Rows = slice | torch.Tensor
Values = torch.Tensor | npt.NDArray[Any]


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's name for a NumPy dtype.

    Raises:
        TypeError: If torch has none.
    """
    return torch.from_numpy(np.empty(0, dtype)).dtype


class Experience:
    """Preallocated segments of all agents, (num_segments, horizon, ...), with agent a in rows [a k, (a + 1) k).

    Attributes:
        observations: Own dtype (num_segments, horizon, *observation_shape), not normalised.
        next_observations: Own dtype (num_segments, *observation_shape), those after the last slot.
        actions: (num_segments, horizon, *action_shape).
        log_probs: float32 (num_segments, horizon), of the actions when they were taken.
        values: float32 (num_segments, horizon + 1).
        rewards: float32 (num_segments, horizon), 0 where not valid.
        final_values: float32 (num_segments, horizon), value of the observation that ended a truncated episode.
        terminals: bool (num_segments, horizon).
        truncations: bool (num_segments, horizon).
        valid: bool (num_segments, horizon), whether the slot is a transition of an agent.
        resets: bool (num_segments, horizon + 1), whether memory was zeroed before the slot. Column 0 is False: the
            state at the start of the segment is stored as it was used.
        states: The recurrent state before slot 0, tensors (num_segments, ...).
        action_mask: bool (num_segments, horizon, size) or None.
        agent_numbers: int64 (num_segments,), number of each segment's agent in its world.
        is_full: Whether it holds a rollout that no update has used.

    Args:
        num_agents: Rows of the vector env.
        segments_per_agent: Segments that each row fills.
        horizon: Transitions in a segment.
        observation_shape: Of one row.
        observation_dtype: Of a row.
        action_shape: Of one row's action.
        action_dtype: Of an action.
        state: Recurrent state of some rows, tensors (rows, ...).
        action_mask_size: Choices of an action mask, or 0.
        agents_per_world: Rows that belong to one world.
        device: Where the policy runs.
        offload: Keep the observations in host memory, pinned for a GPU; whoever reads them moves them.
    """

    def __init__(
        self,
        *,
        num_agents: int,
        segments_per_agent: int,
        horizon: int,
        observation_shape: Sequence[int],
        observation_dtype: torch.dtype,
        action_shape: Sequence[int],
        action_dtype: torch.dtype,
        state: Sequence[torch.Tensor] = (),
        action_mask_size: int = 0,
        agents_per_world: int = 1,
        device: torch.device | str = "cpu",
        offload: bool = False,
    ) -> None:
        self.num_agents = num_agents
        self.segments_per_agent = segments_per_agent
        self.horizon = horizon
        self.is_full = False
        segments = num_agents * segments_per_agent
        self.num_segments = segments

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def observation_zeros(*shape: int) -> torch.Tensor:
            if not offload:
                return zeros(*shape, dtype=observation_dtype)
            return torch.zeros(shape, dtype=observation_dtype, pin_memory=torch.device(device).type == "cuda")

        self.observations = observation_zeros(segments, horizon, *observation_shape)
        self.next_observations = observation_zeros(segments, *observation_shape)
        self.actions = zeros(segments, horizon, *action_shape, dtype=action_dtype)
        self.log_probs = zeros(segments, horizon)
        self.values = zeros(segments, horizon + 1)
        self.rewards = zeros(segments, horizon)
        self.final_values = zeros(segments, horizon)
        self.terminals = zeros(segments, horizon, dtype=torch.bool)
        self.truncations = zeros(segments, horizon, dtype=torch.bool)
        self.valid = zeros(segments, horizon, dtype=torch.bool)
        self.resets = zeros(segments, horizon + 1, dtype=torch.bool)
        self.states = tuple(zeros(segments, *part.shape[1:], dtype=part.dtype) for part in state)
        self.action_mask = zeros(segments, horizon, action_mask_size, dtype=torch.bool) if action_mask_size else None
        self.agent_numbers = torch.arange(segments, device=device) // segments_per_agent % agents_per_world
        slots = ["observations", "actions", "log_probs", "values", "rewards", "final_values"]
        slots += ["terminals", "truncations", "valid", "resets"]
        self._by_agent = {name: self._view_by_agent(getattr(self, name)) for name in slots}
        if self.action_mask is not None:
            self._by_agent["action_mask"] = self._view_by_agent(self.action_mask)
        self._all_rows = slice(0, num_agents)
        # Segment and slot lead: one index gives the rows of all agents.
        self._columns = {name: view.movedim(0, 2) for name, view in self._by_agent.items()}
        # NumPy begins a copy in half the time.
        self._host_columns = {n: view.numpy() for n, view in self._columns.items() if view.device.type == "cpu"}
        self._next_observations = self._view_by_agent(self.next_observations)
        self._states = tuple(self._view_by_agent(part) for part in self.states)

    def for_one_step(self) -> Experience:
        """Return an experience that holds one step of each agent, on the same device."""
        return Experience(
            num_agents=self.num_agents,
            segments_per_agent=1,
            horizon=1,
            observation_shape=self.observations.shape[2:],
            observation_dtype=self.observations.dtype,
            action_shape=self.actions.shape[2:],
            action_dtype=self.actions.dtype,
            state=self.states,
            action_mask_size=0 if self.action_mask is None else self.action_mask.shape[2],
            device=self.values.device,
        )

    @property
    def num_slots(self) -> int:
        """Transitions of one agent: segments per agent times horizon."""
        return self.segments_per_agent * self.horizon

    def use_up(self) -> None:
        """Take note that an update learns from it.

        Raises:
            RuntimeError: If there is no rollout in it, or an update has used that already.
        """
        if not self.is_full:
            raise RuntimeError(
                "an update must have a rollout of its own; there is none. Call evaluate() before train()."
            )
        self.is_full = False

    def write(self, name: str, rows: Rows, slot: int, value: Values | float | bool) -> None:
        """Write one value per row, or the same for all, into `slot` of [0, num_slots)."""
        place = divmod(slot, self.horizon)
        if name in self._host_columns:
            self._host_columns[name][place][_to_host(rows)] = _to_host(value)
            return
        column = self._columns[name][place]
        if isinstance(value, torch.Tensor) and isinstance(rows, slice) and rows == self._all_rows:
            column.copy_(value)  # the usual case, several times as fast as an index
        else:
            _put(column, rows, value)

    def read(self, name: str, rows: Rows, slot: int) -> torch.Tensor:
        """Return what `slot` holds for each row."""
        return self._columns[name][divmod(slot, self.horizon)][rows]

    def write_start(self, rows: Rows, slot: int, state: Sequence[torch.Tensor]) -> None:
        """Write the recurrent state before `slot`, the first of a segment."""
        for stored, part in zip(self._states, state, strict=True):
            stored[rows, slot // self.horizon] = part

    def read_start(self, rows: Rows, slot: int) -> tuple[torch.Tensor, ...]:
        """Return the recurrent state before `slot`, the first of a segment."""
        return tuple(stored[rows, slot // self.horizon] for stored in self._states)

    def write_end(self, rows: Rows, slot: int, observations: Values, resets: Values) -> None:
        """Write what follows the segment that ends just before `slot`: an observation, and whether memory is reset."""
        segment = slot // self.horizon - 1
        _put(self._next_observations[:, segment], rows, observations)
        _put(self._by_agent["resets"][:, segment, self.horizon], rows, resets)

    def write_end_values(self, rows: Rows, slot: int, values: torch.Tensor) -> None:
        """Write the bootstrap values of the segment that ends just before `slot`."""
        self._by_agent["values"][rows, slot // self.horizon - 1, self.horizon] = values

    def last_observations(self, rows: Rows) -> torch.Tensor:
        """Return the observations with which each row's next segment begins."""
        return self._next_observations[rows, self.segments_per_agent - 1]

    def agent_steps(self, name: str) -> torch.Tensor:
        """Return a per-slot array as (num_agents, num_slots), without the extra column of values and resets."""
        by_agent = self._by_agent[name][:, :, : self.horizon]
        return by_agent.reshape(self.num_agents, self.num_slots, *by_agent.shape[3:])

    def _view_by_agent(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(self.num_agents, self.segments_per_agent, *tensor.shape[1:])


def experience_of(config: TrainConfig, vec: Any, policy: Any, num_processes: int, device: torch.device) -> Experience:
    """Return one process's experience of an update.

    Args:
        config: Resolved.
        vec: The vector env of the process.
        policy: Adapted policy: `action_head`, `initial_state`.
        num_processes: Processes among which a batch is divided.
        device: Where the policy runs.
    """
    assert config.batch_size is not None
    return Experience(
        num_agents=vec.num_agents,
        segments_per_agent=config.batch_size // (vec.num_agents * num_processes * config.horizon),
        horizon=config.horizon,
        observation_shape=vec.observation_layout.row_shape,
        observation_dtype=torch_dtype(vec.single_observation_space.dtype),
        action_shape=policy.action_head.action_shape,
        action_dtype=policy.action_head.action_dtype,
        state=policy.initial_state(1, device),
        action_mask_size=vec.action_mask_size,
        agents_per_world=agents_per_world(vec),
        device=device,
        offload=config.cpu_offload,
    )


def _to_host(x: Any) -> Any:
    """Return what NumPy can read: tensors as arrays, anything else as it is."""
    return x.numpy(force=True) if isinstance(x, torch.Tensor) else x


def _put(target: torch.Tensor, rows: Rows, value: Values | float | bool) -> None:
    """Write into some rows of a tensor that may be on another device than the value."""
    if isinstance(rows, torch.Tensor):
        rows = rows.to(target.device)
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    target[rows] = value.to(target.device) if isinstance(value, torch.Tensor) else value
