"""Which rows and worlds belong to which slot, and views of them.

::

    rows     |object 0|pad|object 1|pad| |object 2|pad|object 3|pad|      pad: worlds with fewer agents than the largest
    slots    |        slot 0           | |        slot 1           |
    batches  |                 batch 0                             | ...
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces import Buffers
from puffer_vector.actions import ActionWriter
from puffer_vector.reports import EnvReport
from puffer_vector.worker import Binding


@dataclass(frozen=True)
class RowPlan:
    """Numbers of rows, worlds and objects.

    Attributes:
        first_world: Number of the first world; ranks of one run own disjoint ranges.
        worlds_per_object: Worlds in each object.
        rows_per_world: Agents of the largest world.
        objects_per_slot: Objects in each slot.
        agents: Rows that each object of the vector env fills.
        extras: Extra fields of episode records, of all objects.
    """

    first_world: int
    worlds_per_object: int
    rows_per_world: int
    objects_per_slot: int
    agents: tuple[int, ...]
    extras: tuple[str, ...]

    @classmethod
    def of(cls, reports: Sequence[EnvReport], num_objects: int, num_slots: int, first_world: int) -> RowPlan:
        """Work the numbers out from the reports of all objects, or of one that all are like.

        Raises:
            ValueError: The objects cannot be in one batch.
        """
        for report in reports[1:]:
            report.check_like(reports[0])
        worlds = reports[0].num_worlds
        if len(reports) == 1:
            reports = list(reports) * num_objects
        return cls(
            first_world=first_world,
            worlds_per_object=worlds,
            rows_per_world=max(report.num_agents // worlds for report in reports),
            objects_per_slot=num_objects // num_slots,
            agents=tuple(report.num_agents for report in reports),
            extras=tuple(dict.fromkeys(name for report in reports for name in report.episode_extras)),
        )

    @property
    def rows_per_object(self) -> int:
        """Rows of an object, padding included."""
        return self.worlds_per_object * self.rows_per_world

    @property
    def worlds_per_slot(self) -> int:
        """Worlds of a slot."""
        return self.worlds_per_object * self.objects_per_slot

    @property
    def rows_per_slot(self) -> int:
        """Rows of a slot, padding included."""
        return self.rows_per_object * self.objects_per_slot

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return self.rows_per_object * len(self.agents)

    @property
    def num_worlds(self) -> int:
        """Worlds in all."""
        return self.worlds_per_object * len(self.agents)

    def binding(self, slot: int) -> Binding:
        """Return the numbers that the worker of a slot needs."""
        first_object = slot * self.objects_per_slot
        return Binding(
            first_row=slot * self.rows_per_slot,
            num_rows=self.rows_per_slot,
            first_world=self.first_world + slot * self.worlds_per_slot,
            worlds_per_object=self.worlds_per_object,
            rows_per_object=self.rows_per_object,
            agents=self.agents[first_object : first_object + self.objects_per_slot],
            extras=self.extras,
        )


def arrays_of(buffers: Buffers) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of buffers by name, without those that these envs lack."""
    arrays = {name: getattr(buffers, name) for name in buffers.keys()}  # noqa: SIM118 - buffers iterate over rows
    return {name: array for name, array in arrays.items() if array is not None}


def results_of(buffers: Buffers) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that envs write, by name: all but the actions."""
    return {name: array for name, array in arrays_of(buffers).items() if name != "actions"}


class Gathering:
    """Rows into which a batch is copied whose slots do not lie side by side; allocated when first needed.

    Args:
        buffers: All rows.
        invalid: bool, for all rows.
        num_rows: Rows of a batch.
        action_space: Space of one agent's action.
    """

    def __init__(
        self, buffers: Buffers, invalid: npt.NDArray[np.bool_], num_rows: int, action_space: spaces.Space[Any]
    ) -> None:
        self.all, self.all_invalid = buffers, invalid
        self._num_rows, self._action_space = num_rows, action_space

    @functools.cached_property
    def rows(self) -> Buffers:
        """The rows of the batch."""
        whole = arrays_of(self.all)
        own: dict[str, Any] = {
            name: np.zeros((self._num_rows, *array.shape[1:]), array.dtype) for name, array in whole.items()
        }
        return Buffers(**own)

    @functools.cached_property
    def invalid(self) -> npt.NDArray[np.bool_]:
        """Which of them are invalid."""
        return np.zeros(self._num_rows, np.bool_)

    @functools.cached_property
    def writer(self) -> ActionWriter:
        """Writes checked actions into the rows."""
        return ActionWriter(self.rows.actions, self._action_space)

    def gather(self, agent_ids: npt.NDArray[np.int64]) -> None:
        """Copy these of all rows together."""
        for name, array in results_of(self.rows).items():
            np.take(getattr(self.all, name), agent_ids, axis=0, out=array)
        np.take(self.all_invalid, agent_ids, out=self.invalid)

    def send(self, actions: Any, agent_ids: npt.NDArray[np.int64]) -> None:
        """Check actions and copy them to these of all rows."""
        self.writer.write(actions, 0, self._num_rows)
        self.all.actions[agent_ids] = self.rows.actions


class Batch:
    """Rows of some slots, as `recv` returns them: views where the slots lie side by side, else copies.

    Args:
        slots: The slots, ascending.
        plan: Numbers of rows.
        gathering: All rows, and where those of several slots are copied together.
    """

    def __init__(self, slots: Sequence[int], plan: RowPlan, gathering: Gathering) -> None:
        self.slots = tuple(slots)
        self.slot_array = np.array(slots, np.int32)
        size = plan.rows_per_slot
        self.first_row = self.slots[0] * size
        self.last_row = self.first_row + len(self.slots) * size
        self.is_view = is_contiguous(self.slots)
        self.agent_ids = np.concatenate([np.arange(slot * size, (slot + 1) * size) for slot in self.slots])
        self.agent_ids.flags.writeable = False
        self.renumber(plan)
        if self.is_view:
            self.rows: Buffers = gathering.all[self.first_row : self.last_row]
            self.invalid = gathering.all_invalid[self.first_row : self.last_row]
        else:
            self.rows, self.invalid = gathering.rows, gathering.invalid

    def renumber(self, plan: RowPlan) -> None:
        """Number the worlds as a plan says."""
        worlds = plan.worlds_per_slot
        numbers = [np.arange(slot * worlds, (slot + 1) * worlds) for slot in self.slots]
        self.world_ids = plan.first_world + np.concatenate(numbers)
        self.world_ids.flags.writeable = False


def is_contiguous(slots: Sequence[int]) -> bool:
    """Return whether ascending slots lie side by side."""
    return slots[-1] - slots[0] + 1 == len(slots)
