"""What a vector env asks of all its workers while nothing runs: snapshots, parameters, pictures, numbers of worlds."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from puffer_spaces import episode_dtype
from puffer_vector.errors import WorkerError
from puffer_vector.records import merged
from puffer_vector.rows import arrays_of
from puffer_vector.settings import Phase
from puffer_vector.slots import SlotVector
from puffer_vector.snapshots import pack, pack_bytes, unpack, unpack_bytes
from puffer_vector.worker import Outcome

_SIZES = ("env_name", "num_envs", "num_agents", "batch_size", "episode_extras")


class WorkerCalls(SlotVector):
    """The methods that wait until nothing runs, and most of which then call a method of the workers."""

    def drain(self) -> None:  # noqa: D102
        self._check_open()
        self._settle()

    def _settle(self) -> None:
        """Wait for every slot that runs, and keep what it left."""
        try:
            waiting = [slot for slot in self._running if slot not in self._kept]
            self._await(np.array(waiting, np.int32), len(waiting))
            for slot in waiting:
                self._kept[slot] = self._take(slot)
        except WorkerError as error:
            self._give_up(error)

    def _call_all(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Have the worker of each slot call a method with its arguments; nothing may be running."""
        return self._call(range(len(self._slots)), method, arguments)

    def _call(self, slots: Sequence[int], method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        requests = [self._request(method, given) for given in arguments]
        self._started(slots)
        results: list[Any] = []
        failures: list[Exception] = []
        try:
            for slot, request in zip(slots, requests, strict=True):
                self._begin([slot], request)
            self._await(np.array(slots, np.int32), len(slots))
            for slot in slots:
                try:
                    results.append(self._take(slot))
                except WorkerError:
                    raise
                except Exception as error:  # the env refuses; it goes on as it was
                    failures.append(error)
        except WorkerError as error:
            self._give_up(error)
        except BaseException:  # interrupted: what runs now could not be told from a later call
            self.close()
            raise
        if failures:
            raise failures[0]
        return results

    def set_parameters(self, **parameters: Any) -> None:  # noqa: D102
        self.drain()
        self._call_all("set_parameters", [(parameters,)] * len(self._slots))
        if self._flight is not None:
            self._flight.forget_start()

    def render(self, world: int = 0) -> Any:  # noqa: D102
        self.drain()
        index = operator.index(world) - self._plan.first_world
        if not 0 <= index < self.num_envs:
            first = self._plan.first_world
            raise ValueError(f"world must be in [{first}, {first + self.num_envs}); got {world}.")
        slot, inside = divmod(index, self._plan.worlds_per_slot)
        return self._call([slot], "render", [(inside,)])[0]

    def renumber(self, first_world: int) -> None:
        """Count the worlds from another number; it takes effect at the next seeded reset."""
        self.drain()
        self._plan = replace(self._plan, first_world=first_world)
        firsts = [(self._plan.binding(slot).first_world,) for slot in range(len(self._slots))]
        self._call_all("renumber", firsts)
        for batch in {self._batch, *self._queue, *self._groups}:
            batch.renumber(self._plan)
        self._batches = {batch.slots: batch for batch in self._groups}

    def get_state(self) -> bytes:  # noqa: D102
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
        arrays |= {f"rows.{name}": array for name, array in arrays_of(self._buffers).items()}
        arrays |= {
            f"records.{slot}": merged([outcome.records], self.episode_extras) for slot, outcome in self._kept.items()
        }
        arrays["records"] = merged(self._records, self.episode_extras)
        return pack(header, arrays)

    def set_state(self, state: bytes) -> None:  # noqa: D102
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
        for name, array in arrays_of(self._buffers).items():
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


def _sizes(vector: SlotVector) -> dict[str, Any]:
    return {name: list(value) if isinstance(value := getattr(vector, name), tuple) else value for name in _SIZES}
