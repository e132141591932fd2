"""One slot's env objects: built, bound to their rows, reset and stepped. Every backend runs this same class."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from puffer_spaces import Buffers, PufferEnv, hash2, reset_env, world_seed
from puffer_vector._actions import any_set
from puffer_vector.creators import Creator, Instance
from puffer_vector.errors import PASSED_ON, WorkerError
from puffer_vector.infos import indexed_infos
from puffer_vector.records import joined, local_to_global, no_records
from puffer_vector.reports import EnvReport
from puffer_vector.results import check_result

MAX_RESTARTS_IN_A_ROW = 3
"""An env that fails so often without one whole step between is given up."""
NUM_CHECKED_STEPS = 3
"""Steps after a seeded reset of which what they return is compared with what is in the rows."""


@dataclass(frozen=True)
class SlotSpec:
    """What a worker builds.

    Attributes:
        index: Index of the slot.
        creators: One for each object of the slot.
        num_worlds: Worlds each object is asked for; None where its creator decides.
        first_unit: Number of the slot's first unit in the whole vector env, for the seeds of constructors.
        seed: Seed of the whole run.
        restart_failed: Whether a failed env object is replaced.
    """

    index: int
    creators: tuple[Creator | Instance, ...]
    num_worlds: int | None
    first_unit: int
    seed: int
    restart_failed: bool = False


@dataclass(frozen=True)
class Binding:
    """Where a slot's rows and worlds are in the whole vector env.

    Attributes:
        first_row: First row.
        num_rows: Rows, padding included.
        first_world: First world.
        worlds_per_object: Worlds of each object.
        rows_per_object: Rows of each object, padding included.
        agents: Rows that each object fills.
        extras: Names of the extra fields of episode records.
    """

    first_row: int
    num_rows: int
    first_world: int
    worlds_per_object: int
    rows_per_object: int
    agents: tuple[int, ...]
    extras: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a reset or a step left beside the rows: infos and episode records with numbers of the whole vector env."""

    infos: list[dict[str, Any]] = field(default_factory=list)
    records: npt.NDArray[np.void] = field(default_factory=no_records)


class Worker:
    """Steps the env objects of one slot.

    Args:
        spec: What to build.
    """

    def __init__(self, spec: SlotSpec) -> None:
        self.spec = spec
        self.envs: list[PufferEnv] = []
        self.num_steps = 0
        self.progress: Any = [0]  # index of the object at work; a process puts shared memory here
        self._seed: int | None = None
        self._binding: Binding | None = None
        self._steps: list[tuple[Callable[[Any], Any], Any]] = []
        self._restarts: dict[int, int] = {}
        self._restarts_in_a_row = 0
        self._last_restart_step = -1
        self._first_restart = 0

    def probe(self, all_objects: bool) -> list[EnvReport]:
        """Build the first object, or all, without shared rows, and report what they are."""
        count = len(self.spec.creators) if all_objects else 1
        return [self._report(self._built(index, None)) for index in range(count)]

    def bind(
        self, binding: Binding, buffers: Buffers | None, invalid: npt.NDArray[np.bool_], like: EnvReport
    ) -> list[EnvReport]:
        """Give every object its rows, building those that do not exist yet.

        Args:
            binding: Numbers of the slot.
            buffers: The slot's rows; None to leave the only object its own.
            invalid: bool (num_rows,): set where an env was replaced.
            like: Report of the first object of the vector env.

        Raises:
            ValueError: An object differs from the first one.
            WorkerError: Building an object raised.
        """
        self._binding = binding
        self._rows: list[Buffers] = []
        reports = []
        if buffers is not None:
            buffers.masks[...] = False  # padding rows hold no agent; the envs set the others
        for index, agents in enumerate(binding.agents):
            if buffers is None:
                own = self.envs[0].buffers
                assert own is not None
                rows = own
            else:
                first = index * binding.rows_per_object
                rows = buffers[first : first + agents]
                self._bind_one(index, rows)
            self._rows.append(rows)
            report = self._report(self.envs[index])
            report.check_like(like)
            if report.num_agents != agents:
                raise ValueError(
                    f"a creator must build envs with equally many agents; {self.spec.creators[index].name} built one "
                    f"with {report.num_agents} after one with {agents}. Pass a list of creators for envs that differ."
                )
            reports.append(report)
        whole = self._rows[0] if buffers is None else buffers
        self._buffers, self._invalid = whole, invalid
        self._steps = [(env.step, env.actions) for env in self.envs]
        return reports

    def _bind_one(self, index: int, rows: Buffers) -> None:
        if index >= len(self.envs):
            self._built(index, rows)
        elif self.envs[index].rebinds_buffers or isinstance(self.spec.creators[index], Instance):
            self.envs[index] = self._bound_instance(self.envs[index], rows)
        else:  # native code may hold pointers to the arrays the object was built with
            self.envs[index].close()
            rebuilt = self._built(index, rows)
            self.envs[index] = rebuilt

    def _bound_instance(self, env: PufferEnv, rows: Buffers) -> PufferEnv:
        if env.rebinds_buffers:
            env.set_buffers(rows)
            return env
        return Instance(env).build(rows)

    def _built(self, index: int, rows: Buffers | None) -> PufferEnv:
        creator = self.spec.creators[index]
        seed = world_seed(self.spec.seed, self.spec.first_unit + index)
        try:
            env = creator.build(rows, seed, self.spec.num_worlds)
        except PASSED_ON:
            raise
        except Exception as error:
            self._fail(error, f"building {creator.name} raised", index)
        if any(env is other for other in self.envs):
            raise ValueError(
                f"a creator must return a new env each time it is called; got the same {type(env).__name__} twice from "
                f"{creator.name}. Build the env inside the creator."
            )
        if index < len(self.envs):
            self.envs[index] = env
        else:
            self.envs.append(env)
        return env

    def _report(self, env: PufferEnv) -> EnvReport:
        worlds = self.spec.num_worlds
        if worlds is None:
            declared = self.spec.creators[0]
            given = declared.kwargs.get("num_envs") if isinstance(declared, Creator) else None
            worlds = int(given) if isinstance(given, int | np.integer) and given > 0 else None
        return EnvReport.of(env, worlds)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Outcome:
        """Reset every object. See `VectorEnv.reset`."""
        binding = self._bound
        records = self.take_records() if self.num_steps else no_records()
        if seed is not None:
            self._seed, self.num_steps = seed, 0
        for flags in (self._buffers.rewards, self._buffers.terminals, self._buffers.truncations, self._invalid):
            flags[...] = 0
        infos: list[dict[str, Any]] = []
        for index, env in enumerate(self.envs):
            self.progress[0] = index
            try:
                _, raw = reset_env(env, seed, self.first_world(index), options)
            except Exception as error:
                self._fail(error, f"reset of {self.spec.creators[index].name} raised", index)
            if raw:
                infos += indexed_infos(raw, binding.agents[index], self._first_row(index))
        return Outcome(infos, records)

    def step(self) -> list[dict[str, Any]]:
        """Step every object with the actions in its rows and return their infos."""
        self.num_steps += 1
        infos: list[dict[str, Any]] = []
        if self.spec.restart_failed:
            self._invalid[...] = False
        progress = self.progress
        for index, (step, actions) in enumerate(self._steps):
            progress[0] = index
            try:
                result = step(actions)
                if self.num_steps <= NUM_CHECKED_STEPS:
                    check_result(result, self._rows[index])
                raw = result[4]
                if raw:
                    infos += indexed_infos(raw, self._bound.agents[index], self._first_row(index))
            except Exception as error:
                infos.append(self._failed_step(index, error))
        return infos

    def _failed_step(self, index: int, error: Exception) -> dict[str, Any]:
        if not self.spec.restart_failed:
            self._fail(error, f"step of {self.spec.creators[index].name} raised", index)
        return self._restart(index, error)

    def step_and_collect(self) -> Outcome:
        """Step every object; episode records are taken when a flag says that there are any."""
        infos = self.step()
        buffers, num_rows = self._buffers, self._bound.num_rows
        if any_set(buffers.terminals, 0, num_rows) or any_set(buffers.truncations, 0, num_rows):
            return Outcome(infos, self.take_records())
        return Outcome(infos)

    def finish_step(self) -> list[dict[str, Any]]:
        """Count a step that a pool made through the capsules and return the objects' infos."""
        self.num_steps += 1
        infos: list[dict[str, Any]] = []
        for index, env in enumerate(self.envs):
            try:
                raw = env.finish_step()
            except Exception as error:
                self._fail(error, f"finish_step of {self.spec.creators[index].name} raised", index)
            if raw:
                infos += indexed_infos(raw, self._bound.agents[index], self._first_row(index))
        return infos

    def take_records(self) -> npt.NDArray[np.void]:
        """Drain the objects' episode records and give them numbers of the whole vector env."""
        extras = self._bound.extras
        found = []
        for index, env in enumerate(self.envs):
            try:
                records = env.episodes()
                if len(records):
                    found.append(local_to_global(records, self.first_world(index), extras))
            except Exception as error:
                self._fail(error, f"episodes of {self.spec.creators[index].name} raised", index)
        if not found:
            return no_records(extras)
        return found[0] if len(found) == 1 else joined(found)

    def capsules(self) -> list[Any]:
        """Return the step capsules of the objects; None where an object has none."""
        return [env.step_capsule() for env in self.envs]

    def renumber(self, first_world: int) -> None:
        """Count the slot's worlds from another number."""
        self._binding = replace(self._bound, first_world=first_world)

    def set_parameters(self, parameters: dict[str, Any]) -> None:
        """Pass parameters to every object."""
        for env in self.envs:
            env.set_parameters(**parameters)

    def get_state(self) -> tuple[list[bytes], int]:
        """Return the snapshot of every object and the number of steps since the seeded reset."""
        return [env.get_state() for env in self.envs], self.num_steps

    def set_state(self, states: Sequence[bytes], seed: int | None, num_steps: int) -> None:
        """Return every object to a snapshot."""
        self._seed, self.num_steps = seed, num_steps
        for env, state in zip(self.envs, states, strict=True):
            env.set_state(state)

    def render(self, world: int) -> Any:
        """Draw the object that holds a world of the slot, counted from 0."""
        index, inside = divmod(world, self._bound.worlds_per_object)
        env: Any = self.envs[index]
        if inside:
            return env.render(world=inside)
        return env.render()

    def close(self) -> None:
        """Close every object. An error is raised after all were tried."""
        envs, self.envs, self._steps = self.envs, [], []
        failure: Exception | None = None
        for env in envs:
            try:
                env.close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def first_world(self, index: int) -> int:
        """Return the number of an object's first world in the whole vector env."""
        return self._bound.first_world + index * self._bound.worlds_per_object

    def _first_row(self, index: int) -> int:
        return self._bound.first_row + index * self._bound.rows_per_object

    @property
    def _bound(self) -> Binding:
        assert self._binding is not None
        return self._binding

    def describe_failure(self, reason: str, index: int, error: BaseException | None = None) -> WorkerError:
        """Make the error about an env object of this slot."""
        world = self.first_world(index) if self._binding is not None else None
        seed = None if self._seed is None or world is None else world_seed(self._seed, world)
        text = "" if error is None else "".join(traceback.format_exception(error))
        return WorkerError(reason, self.spec.index, world, seed, self.num_steps, text)

    def _fail(self, error: Exception, what: str, index: int) -> NoReturn:
        raise self.describe_failure(f"{what} {type(error).__name__}: {error}", index, error) from error

    def _restart(self, index: int, error: Exception) -> dict[str, Any]:
        """Replace a failed object by a new one; its rows say that their last transition is not valid."""
        self._restarts_in_a_row = 1 + (self._restarts_in_a_row if self._last_restart_step == self.num_steps - 1 else 0)
        self._last_restart_step = self.num_steps
        if self._restarts_in_a_row > MAX_RESTARTS_IN_A_ROW:
            self._fail(
                error,
                f"step of {self.spec.creators[index].name}, replaced {MAX_RESTARTS_IN_A_ROW} times, raised",
                index,
            )
        with contextlib.suppress(Exception):  # it has failed already; what matters is the new one
            self.envs[index].close()
        env = self._built(index, self._rows[index])
        return self._restart_rows(index, env, f"{type(error).__name__}: {error}")

    def count_restarts_from(self, workers: int) -> None:
        """Note how many workers were lost before this one, for the seeds of new objects."""
        self._first_restart = workers << 16

    def replace_all(self, seed: int, reason: str) -> Outcome:
        """Reset all objects, which are new, in place of those of a worker that was lost."""
        self._seed, self.num_steps = seed, 0
        return Outcome([self._restart_rows(index, env, reason) for index, env in enumerate(self.envs)])

    def _restart_rows(self, index: int, env: PufferEnv, reason: str) -> dict[str, Any]:
        """Reset a new object in place of a failed one and flag its rows: truncated, transition not valid."""
        self._restarts[index] = restarts = self._restarts.get(index, self._first_restart) + 1
        rows, first = self._rows[index], index * self._bound.rows_per_object
        rows.final_observations[...] = rows.observations
        self._steps[index] = (env.step, env.actions)
        try:
            reset_env(env, hash2(self._seed or 0, restarts), self.first_world(index))
        except Exception as error:
            self._fail(error, f"reset of a new {self.spec.creators[index].name} raised", index)
        rows.rewards[...] = 0
        rows.terminals[...] = False
        rows.truncations[...] = True
        self._invalid[first : first + len(rows.rewards)] = True
        return {"restarted": True, "reason": reason, "agent_index": self._first_row(index)}
