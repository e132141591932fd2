"""Collecting experience: receive, let the policy act, send, until every segment is full.

A batch may be all agents (synchronous) or a part of them while the others run (asynchronous). Each agent has a slot in
which it acts next. When all slots are full, the batch just received waits for the updated policy. In asynchronous mode
the other agents cannot wait: they act once more, and that step, which the old policy took, is carried over and begins
their next segment. An agent that comes back before the slowest one has filled its segments drops its carried step for a
newer one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from puffer_spaces import hash2
from puffer_train.agent_numbers import agents_per_world, number_arguments
from puffer_train.batch import Batch, Flags, Outcome, as_rows
from puffer_train.experience import Experience, Rows
from puffer_train.finite import RowPlaces, check_outputs, check_rewards
from puffer_train.interval import Interval
from puffer_train.noise import fill_uniform
from puffer_train.sampling import Sampler
from puffer_train.usual_steps import usual_steps

Select = slice | npt.NDArray[np.int64]
_CARRIED = ("observations", "actions", "log_probs", "values", "valid", "resets")


class Rollout:
    """Fills an `Experience` from a vector environment.

    Args:
        vec: The vector environment.
        policy: Adapted policy: `forward_eval`, `action_head`, `initial_state`.
        normalize: Applied to observations on their way to the policy.
        experience: Filled by `collect`.
        interval: Gets infos, episode records and times.
        seed: Seed of environments and action noise.
        first_row: Number of this process's first agent among those of all processes.
        autocast: Makes the context in which the policy runs.
    """

    def __init__(
        self,
        vec: Any,
        policy: Any,
        normalize: Callable[[torch.Tensor], torch.Tensor],
        experience: Experience,
        interval: Interval,
        *,
        seed: int,
        first_row: int,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.vec = vec
        self.policy = policy
        self.normalize = normalize
        self.experience = experience
        self.metrics, self.seconds = interval.metrics, interval.seconds
        self.seed = seed
        self.first_row = first_row
        self.autocast = autocast
        self.device = experience.values.device
        self.num_agent_steps = 0
        num_agents = experience.num_agents
        self._carry = experience.for_one_step()
        self._state: tuple[torch.Tensor, ...] = tuple(policy.initial_state(num_agents, self.device))
        self._slots, self._num_outcomes, self._num_steps = (np.zeros(num_agents, np.int64) for _ in range(3))
        self._acted = np.zeros(num_agents, np.bool_)
        self._resets = np.zeros(num_agents, np.bool_)
        counts = {"slots": self._slots, "num_outcomes": self._num_outcomes, "num_steps": self._num_steps}
        self._usual = usual_steps(experience, {**counts, "acted": self._acted})
        self._held: Batch | None = None
        self.is_started = False
        self._sampler = Sampler(policy.action_head, self.device)
        self._noise = np.zeros((num_agents, policy.action_head.num_noise), np.float32)
        self._reset_seed = seed
        self._has_told_no_final_observations = False
        self._agents_per_world = agents_per_world(vec)
        self._agent_numbers = torch.arange(num_agents, device=self.device) % self._agents_per_world

    @torch.inference_mode()
    def collect(self) -> None:
        """Fill all segments.

        Raises:
            NonFiniteError: If a reward, an observation or an output of the policy is not finite.
        """
        self._begin()
        num_slots = self.experience.num_slots
        while True:
            batch = self._receive()
            if self._num_outcomes.min() >= num_slots:
                self._hold(batch)
                break
            self._act(batch)
        self.experience.is_full = True
        started = time.perf_counter()
        self.metrics.add_episodes(self.vec.episodes())
        self.seconds["env"] += time.perf_counter() - started

    def _begin(self) -> None:
        self.num_agent_steps = 0
        if not self.is_started:
            self.metrics.counts.restart()
            self.vec.async_reset(seed=self._reset_seed)
            self.is_started = True
            return
        held = self._held
        self._num_outcomes[:] = 0
        self._slots[:] = 1
        if held is not None:
            self._slots[held.ids] = 0
        ahead = np.flatnonzero(self._slots)
        if len(ahead):
            self._take_over(torch.from_numpy(ahead).to(self.device))
            self.num_agent_steps += int(self._acted[ahead].sum())
        if held is not None:
            self._held = None
            self._act(held)

    def _take_over(self, rows: torch.Tensor) -> None:
        """Copy carried steps into slot 0."""
        self.experience.write_start(rows, 0, self._carry.read_start(rows, 0))
        for name in self._carried_names():
            self.experience.write(name, rows, 0, self._carry.read(name, rows, 0))

    def _receive(self) -> Batch:
        started = time.perf_counter()
        observations, rewards, terminals, truncations, infos, agent_ids, masks = self.vec.recv()
        received = time.perf_counter()
        ids = np.ascontiguousarray(agent_ids, np.int64)
        rewards = np.ascontiguousarray(rewards, np.float32)
        rows = as_rows(ids, self.device)
        if infos:
            self.metrics.add_infos(infos)
        outcome = Outcome(ids, rows, rewards, terminals, truncations, masks, self.vec.invalid)
        resets = self._take_usual_outcome(outcome)
        if resets is None:
            resets = self._take_outcome(outcome)
        if self._state and resets.any():
            reset_rows = torch.from_numpy(ids[resets]).to(self.device)
            for part in self._state:
                part.index_fill_(0, reset_rows, 0)
        tensor = torch.from_numpy(observations).to(self.device)
        action_mask = None if self.experience.action_mask is None else self._tensor(self.vec.action_mask)
        if not masks.all():
            absent = torch.from_numpy(~masks).to(self.device)
            tensor = tensor.clone()
            tensor[absent] = 0
            if action_mask is not None:  # a row without any legal action would have no distribution
                action_mask = action_mask | absent[:, None]
        self.seconds["env"] += received - started
        self.seconds["copy"] += time.perf_counter() - received
        return Batch(ids, rows, tensor, masks, resets, action_mask)

    def _take_usual_outcome(self, outcome: Outcome) -> Flags | None:
        """Store an outcome by one compiled pass, and return as `_take_outcome`; None where a row needs more care."""
        if self._usual is None:
            return None
        ids, _, rewards, *flags = outcome
        resets = self._resets[: len(ids)]
        is_cut = self._usual.take_outcome(ids, rewards, *flags, resets)
        if is_cut is None:
            return None
        self.metrics.counts.add_step(ids, rewards, outcome.masks, resets)
        if is_cut:
            self._value_cut_episodes(ids, np.flatnonzero(outcome.truncations & ~outcome.terminals))
        return resets

    def _take_outcome(self, outcome: Outcome) -> Flags:
        """Store an outcome and return which rows' memory starts anew."""
        ids, _, rewards, terminals, truncations, masks, invalid = outcome
        acted = self._acted[ids]
        check_rewards(rewards, acted, self._places(ids))
        ended = (terminals | truncations) & acted
        self.metrics.counts.add_step(ids, rewards, acted & ~invalid, ended | (acted & ~masks))
        if not acted.all():  # padding may hold anything
            outcome = outcome._replace(
                rewards=np.where(acted, rewards, np.float32(0.0)),
                terminals=terminals & acted,
                truncations=truncations & acted,
            )
        self._write_outcome(outcome)
        # An environment was replaced, or an agent left without a flag: what its last action led to is unknown.
        self._invalidate(ids[acted & (invalid | ~(masks | ended))])
        return ended | ~masks | ~acted

    def _write_outcome(self, outcome: Outcome) -> None:
        experience = self.experience
        ids, rows, rewards, terminals, truncations, *_ = outcome
        slots = self._num_outcomes[ids] = self._slots[ids]
        for slot, select, part in self._by_slot(slots, rows, ids):
            if 0 < slot <= experience.num_slots:
                experience.write("rewards", part, slot - 1, rewards[select])
                experience.write("terminals", part, slot - 1, terminals[select])
                experience.write("truncations", part, slot - 1, truncations[select])
        cut = np.flatnonzero(truncations & ~terminals & (slots > 0) & (slots <= experience.num_slots))
        if len(cut):
            self._value_cut_episodes(ids, cut)

    def _value_cut_episodes(self, ids: npt.NDArray[np.int64], cut: npt.NDArray[np.int64]) -> None:
        """Store the values of the observations in which the episodes of some rows of a batch were cut."""
        ids = ids[cut]
        if not self.vec.has_final_observations:
            self._invalidate(ids)
            self._tell_no_final_observations()
            return
        final_values = self._final_values(ids, self.vec.final_observations[cut])
        for slot, select, part in self._by_slot(self._slots[ids], as_rows(ids, self.device), ids):
            self.experience.write("final_values", part, slot - 1, final_values[select])

    def _invalidate(self, ids: npt.NDArray[np.int64]) -> None:
        """Leave the transitions that led to some rows out of the update."""
        for row in ids.tolist():
            if 0 < self._slots[row] <= self.experience.num_slots:
                self.experience.write("valid", slice(row, row + 1), int(self._slots[row]) - 1, False)
                self.experience.write("rewards", slice(row, row + 1), int(self._slots[row]) - 1, 0.0)

    def _final_values(self, ids: npt.NDArray[np.int64], observations: npt.NDArray[Any]) -> torch.Tensor:
        """Return the values of observations in which episodes were cut, with the memory from before its reset."""
        rows = torch.from_numpy(ids).to(self.device)
        tensor = self._tensor(np.ascontiguousarray(observations))
        _, values, _ = self._forward(rows, tensor)
        check_outputs(tensor, values, None, self._places(ids))
        return values

    def _hold(self, batch: Batch) -> None:
        """Keep a batch for the updated policy; its values bootstrap the segments that just ended."""
        _, values, _ = self._forward(batch.rows, batch.observations)
        check_outputs(batch.observations, values, None, self._places(batch.ids))
        for slot, select, part in self._by_slot(self._slots[batch.ids], batch.rows, batch.ids):
            if slot == self.experience.num_slots:
                self.experience.write_end(part, slot, batch.observations[select], batch.resets[select])
                self.experience.write_end_values(part, slot, values[select])
        self._held = batch.copy()

    def _act(self, batch: Batch) -> None:
        """Choose and send actions for a batch, and store the step."""
        started = time.perf_counter()
        parameters, values, new_state = self._forward(batch.rows, batch.observations)
        noise = self._noise[: len(batch.ids)]
        fill_uniform(noise, self.seed, self._num_steps[batch.ids], batch.ids + self.first_row)
        actions, log_probs = self._sampler.draw(
            parameters,
            values,
            noise,
            batch.action_mask,
            lambda: check_outputs(batch.observations, values, parameters, self._places(batch.ids)),
        )
        chosen = time.perf_counter()
        if not self._store_usual(batch, actions, values, log_probs):
            self._store(batch, actions, values, log_probs)
        if self._state:
            self._set_state(batch.rows, new_state)
        stored = time.perf_counter()
        self.vec.send(self.policy.action_head.env_actions(actions).cpu().numpy())
        self.seconds["policy"] += chosen - started
        self.seconds["copy"] += stored - chosen
        self.seconds["env"] += time.perf_counter() - stored

    def _forward(
        self, rows: Rows, observations: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]]:
        state = tuple(part[rows] for part in self._state)
        numbers = number_arguments(self.policy, self._agent_numbers, rows)
        with self.autocast():
            parameters, values, new_state = self.policy.forward_eval(self.normalize(observations), state, *numbers)
        # A last layer of parameters and values leaves gaps between the values, which no loop reads.
        return parameters.float(), values.float().reshape(-1).contiguous(), new_state

    def _store_usual(self, batch: Batch, actions: torch.Tensor, values: torch.Tensor, log_probs: torch.Tensor) -> bool:
        """Store a step inside segments by one compiled pass, of bytes; False where it begins or ends one."""
        if self._usual is None or actions.dtype is not self.experience.actions.dtype:
            return False
        payload: tuple[torch.Tensor, ...] = (batch.observations, actions)
        payload += () if batch.action_mask is None else (batch.action_mask,)
        num_present = self._usual.store(batch.ids, values, log_probs, batch.masks, batch.resets, payload)
        if num_present is None:
            return False
        self.num_agent_steps += num_present
        return True

    def _store(self, batch: Batch, actions: torch.Tensor, values: torch.Tensor, log_probs: torch.Tensor) -> None:
        slots = self._slots[batch.ids]
        num_slots = self.experience.num_slots
        for slot, select, part in self._by_slot(slots, batch.rows, batch.ids):
            observations, part_values = _pick(batch.observations, select), _pick(values, select)
            if slot and slot <= num_slots and slot % self.experience.horizon == 0:
                self.experience.write_end(part, slot, observations, batch.resets[select])
                self.experience.write_end_values(part, slot, part_values)
            target, at = (self.experience, slot) if slot < num_slots else (self._carry, 0)
            is_start = at % target.horizon == 0
            if is_start and self._state:
                target.write_start(part, at, tuple(state[part] for state in self._state))
            target.write("observations", part, at, observations)
            target.write("actions", part, at, _pick(actions, select))
            target.write("values", part, at, part_values)
            target.write("log_probs", part, at, _pick(log_probs, select))
            target.write("valid", part, at, batch.masks[select])
            target.write("resets", part, at, False if is_start else batch.resets[select])
            if batch.action_mask is not None:
                target.write("action_mask", part, at, batch.action_mask[select])
        self.num_agent_steps += int(np.count_nonzero(batch.masks & (slots < num_slots)))
        self._slots[batch.ids] = np.minimum(slots, num_slots) + 1
        self._acted[batch.ids] = batch.masks
        self._num_steps[batch.ids] += 1

    def _set_state(self, rows: Rows, new_state: Sequence[torch.Tensor]) -> None:
        if isinstance(rows, slice) and rows == slice(0, self.experience.num_agents):
            self._state = tuple(part.to(old.dtype) for part, old in zip(new_state, self._state, strict=True))
            return
        for part, new in zip(self._state, new_state, strict=True):
            part[rows] = new.to(part.dtype)

    def _by_slot(
        self, slots: npt.NDArray[np.int64], rows: Rows, ids: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, Select, Rows]]:
        """Yield (slot, rows of the batch, the same rows among all agents); almost always all rows are at one slot."""
        first = int(slots[0])
        if (slots == first).all():
            yield first, slice(None), rows
            return
        for slot in np.unique(slots).tolist():
            select = np.flatnonzero(slots == slot)
            yield slot, select, self._tensor(ids[select])

    def _carried_names(self) -> tuple[str, ...]:
        return _CARRIED if self._carry.action_mask is None else (*_CARRIED, "action_mask")

    def _tensor(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _places(self, ids: npt.NDArray[np.int64]) -> RowPlaces:
        layout = self.vec.observation_layout
        return RowPlaces(ids + self.first_row, self._num_steps[ids], self._agents_per_world, layout)

    def _tell_no_final_observations(self) -> None:
        if not self._has_told_no_final_observations:
            self._has_told_no_final_observations = True
            warnings.warn(
                "an episode was truncated in an environment without final observations: the value of its end is "
                "unknown, and such steps are left out of updates. Fill final_observations and set "
                "has_final_observations = True to use them.",
                RuntimeWarning,
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next `collect` depends on, except policy, environments and metrics."""
        carry = {name: getattr(self._carry, name).clone() for name in self._carried_names()}
        return {
            "is_started": self.is_started,
            "num_steps": torch.from_numpy(self._num_steps.copy()),
            "acted": torch.from_numpy(self._acted.copy()),
            "state": [part.clone() for part in self._state],
            "carry": {**carry, "states": [part.clone() for part in self._carry.states]},
            "held": None if self._held is None else self._held.state_dict(),
        }

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state is of as many agents."""
        return len(state["num_steps"]) == len(self._num_steps)

    def start_anew(self, epoch: int) -> None:
        """Begin the next rollout with new episodes, other than those that the run began with."""
        self._reset_seed = hash2(self.seed, epoch) >> 1 if epoch else self.seed
        for counts in (self._slots, self._num_outcomes, self._num_steps):
            counts[:] = 0
        self._acted[:] = False
        self._held = None
        self.is_started = self.experience.is_full = False

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state that `state_dict` returned, for the same numbers of agents and the same spaces."""
        self.is_started, self.experience.is_full = bool(state["is_started"]), False
        self._num_steps[:] = state["num_steps"].numpy()
        self._acted[:] = state["acted"].numpy()
        self._state = tuple(part.to(self.device).clone() for part in state["state"])
        for name, value in state["carry"].items():
            if name == "states":
                for own, saved in zip(self._carry.states, value, strict=True):
                    own.copy_(saved)
            else:
                getattr(self._carry, name).copy_(value)
        held = state["held"]
        self._held = None if held is None else Batch.from_state_dict(held, self.device)


def _pick(tensor: torch.Tensor, select: Select) -> torch.Tensor:
    """Return some rows; all of them, the usual case, without the time that an index takes."""
    return tensor if isinstance(select, slice) else tensor[select]
