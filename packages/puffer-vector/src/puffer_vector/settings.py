"""What `make` decided, for a backend to carry out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from puffer_vector.creators import Creator, Instance
from puffer_vector.plan import Plan
from puffer_vector.worker import SlotSpec


@dataclass(frozen=True)
class Settings:
    """What `make` decided, for a backend to carry out.

    Attributes:
        plan: Slots and batches.
        creators: One batched creator, or one creator for each object.
        seed: Root of the seeds.
        first_world: Number of the first world.
        timeout_s: Longest time a slot may take for one reset or step, or None.
        restart_failed: Whether failed envs are replaced.
        copy: Whether `recv` returns copies.
        joint_spaces: Whether `observation_space` and `action_space` are those of a batch.
        context: How processes are started: "fork", "forkserver", "spawn" or None.
        cpus: CPUs this process may use.
        flight_record: Folder for records of the last actions, or None.
    """

    plan: Plan
    creators: Sequence[Creator | Instance]
    seed: int
    first_world: int = 0
    timeout_s: float | None = None
    restart_failed: bool = False
    copy: bool = False
    joint_spaces: bool = True
    context: str | None = None
    cpus: int = 1
    flight_record: Path | None = None

    @property
    def is_batched(self) -> bool:
        """Whether one creator builds objects of many worlds."""
        return self.creators[0].batched

    @property
    def is_mixed(self) -> bool:
        """Whether objects may differ."""
        return any(creator is not self.creators[0] for creator in self.creators)

    @property
    def num_objects(self) -> int:
        """Env objects in all."""
        return self.plan.num_slots if self.is_batched else self.plan.num_units

    def slot_spec(self, slot: int) -> SlotSpec:
        """Return what the worker of a slot builds."""
        units, first = self.plan.units_per_slot, slot * self.plan.units_per_slot
        creators = tuple(self.creators if self.is_batched else self.creators[first : first + units])
        worlds = units if self.is_batched else None
        return SlotSpec(slot, creators, worlds, self.first_world + first, self.seed, self.restart_failed)


class Phase(Enum):
    """What the caller may do next."""

    FRESH = "async_reset"
    RECV = "recv"
    SEND = "send"
