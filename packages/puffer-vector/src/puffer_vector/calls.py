"""What a vector env asks of all its workers while nothing runs: snapshots, parameters, pictures, numbers of worlds."""

from __future__ import annotations

import operator
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from puffer_spaces import episode_dtype
from puffer_vector.records import merged
from puffer_vector.settings import Phase
from puffer_vector.snapshots import pack, pack_bytes, unpack, unpack_bytes
from puffer_vector.worker import Outcome

if TYPE_CHECKING:
    from puffer_vector.parallel import ParallelVector

_SIZES = ("env_name", "num_envs", "num_agents", "batch_size", "episode_extras")


class WorkerCalls:
    """The methods of a `ParallelVector` that call its workers."""

    def set_parameters(self: ParallelVector, **parameters: Any) -> None:  # type: ignore[misc]  # noqa: D102
        self.drain()
        self._call_all("set_parameters", [(parameters,)] * len(self._slots))
        if self._flight is not None:
            self._flight.forget_start()

    def render(self: ParallelVector, world: int = 0) -> Any:  # type: ignore[misc]  # noqa: D102
        self.drain()
        index = operator.index(world) - self._plan.first_world
        if not 0 <= index < self.num_envs:
            first = self._plan.first_world
            raise ValueError(f"world must be in [{first}, {first + self.num_envs}); got {world}.")
        slot, inside = divmod(index, self._plan.worlds_per_slot)
        return self._call([slot], "render", [(inside,)])[0]

    def renumber(self: ParallelVector, first_world: int) -> None:  # type: ignore[misc]
        """Count the worlds from another number; it takes effect at the next seeded reset."""
        self.drain()
        self._plan = replace(self._plan, first_world=first_world)
        firsts = [(self._plan.binding(slot).first_world,) for slot in range(len(self._slots))]
        self._call_all("renumber", firsts)
        for batch in {self._batch, *self._queue, *self._groups}:
            batch.renumber(self._plan)
        self._batches = {batch.slots: batch for batch in self._groups}

    def get_state(self: ParallelVector) -> bytes:  # type: ignore[misc]  # noqa: D102
        self.drain()
        if not self.has_state:
            raise NotImplementedError(
                f"every env must have get_state for snapshots; {self.env_name} has none. Define get_state, set_state "
                "and set has_state = True."
            )
        states = self._call_all("get_state", [()] * len(self._slots))
        joined, lengths = pack_bytes([state for slot_states, _ in states for state in slot_states])
        header = {
            "sizes": _sizes(self),
            "num_slots": len(self._slots),
            "seed": self._seed,
            "phase": self._phase.name,
            "queue": [batch.slots for batch in self._queue],
            "running": self._running,
            "batch": self._batch.slots,
            "num_steps": [num_steps for _, num_steps in states],
            "infos": {slot: outcome.infos for slot, outcome in self._kept.items()},
        }
        arrays: dict[str, np.ndarray] = {"states": joined, "lengths": lengths, "invalid": self._invalid}
        arrays |= {f"rows.{name}": array for name, array in _rows(self).items()}
        arrays |= {
            f"records.{slot}": merged([outcome.records], self.episode_extras) for slot, outcome in self._kept.items()
        }
        arrays["records"] = merged(self._records, self.episode_extras)
        return pack(header, arrays)

    def set_state(self: ParallelVector, state: bytes) -> None:  # type: ignore[misc]  # noqa: D102
        header, arrays = unpack(state)
        mine = {"sizes": _sizes(self), "num_slots": len(self._slots)}
        its = {name: header.get(name) for name in mine}
        if its != mine:
            raise ValueError(
                f"state must be of the same envs and sizes; got {its} for {mine}. Make the vector env alike."
            )
        self.drain()
        states = unpack_bytes(arrays["states"], arrays["lengths"])
        size, seed = self._plan.objects_per_slot, int(header["seed"])
        parts = [states[slot * size : (slot + 1) * size] for slot in range(len(self._slots))]
        arguments = [(part, seed, steps) for part, steps in zip(parts, header["num_steps"], strict=True)]
        self._call_all("set_state", arguments)
        for name, array in _rows(self).items():
            array[...] = arrays[f"rows.{name}"]
        self._invalid[...] = arrays["invalid"]
        dtype = episode_dtype(self.episode_extras)
        self._kept = {
            int(slot): Outcome(infos, arrays[f"records.{slot}"].astype(dtype))
            for slot, infos in header["infos"].items()
        }
        self._records = [arrays["records"].astype(dtype)]
        if self._flight is not None:
            self._flight.forget_start()
        self._seed, self._phase = seed, Phase[header["phase"]]
        self._num_steps = list(header["num_steps"])
        self._running = list(header["running"])
        self._queue = deque(self._batch_of(slots) for slots in header["queue"])
        self._batch = self._batch_of(header["batch"])
        if not self._batch.is_view:
            self._gathering.gather(self._batch.agent_ids)


def _sizes(vector: ParallelVector) -> dict[str, Any]:
    return {name: list(value) if isinstance(value := getattr(vector, name), tuple) else value for name in _SIZES}


def _rows(vector: ParallelVector) -> dict[str, np.ndarray]:
    buffers = vector._buffers
    arrays = {name: getattr(buffers, name) for name in buffers.keys()}  # noqa: SIM118
    return {name: array for name, array in arrays.items() if array is not None}
