"""Workers that are Ray actors, on this machine or on a cluster. Importing this needs ray.

An actor has rows of its own; each step carries the actions of its slot there and the results back. Otherwise it runs
the same `Worker` as every backend, so that results are the same.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import ray

from puffer_spaces import Buffers
from puffer_vector.errors import WorkerError
from puffer_vector.messages import (
    call_failure,
    pickled,
    pickled_call,
    pickled_spec,
    run_pickled_call,
    slow_start_text,
    start_failure,
    unpicklable,
)
from puffer_vector.parallel import ParallelVector
from puffer_vector.reports import EnvReport
from puffer_vector.rows import results_of
from puffer_vector.settings import Settings
from puffer_vector.worker import Binding, SlotSpec, Worker

START_S = 300.0
"""How long an actor may take to start, in seconds: a cluster may have to install what it needs."""
STOP_S = 1.0
"""How long an actor may take to close its envs, in seconds."""
_open_vectors = 0
_started_ray = False


class RemoteWorker:
    """The class of the actors: a worker with rows of its own.

    Args:
        payload: A pickled SlotSpec.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._worker: Worker | None = None
        self._rows: Buffers | None = None

    def start(self, method: str, arguments: bytes) -> bytes:
        """Build or bind envs and return the pickled answer: a report, or the error."""
        try:
            if self._worker is None:
                self._worker = Worker(pickle.loads(self._payload))
            answer = getattr(self, method)(*pickle.loads(arguments))
        except BaseException as error:
            answer = start_failure(self._worker, error)
        return pickled(answer)

    def is_up(self) -> bool:
        """Answer as soon as the actor runs."""
        return True

    def probe(self, all_objects: bool) -> list[EnvReport]:
        """Report what the envs are."""
        assert self._worker is not None
        return self._worker.probe(all_objects)

    def bind(self, binding: Binding, like: EnvReport, restarts: int) -> list[EnvReport]:
        """Allocate rows and bind the envs to them."""
        assert self._worker is not None
        self._rows = Buffers.allocate(
            like.single_observation_space, like.single_action_space, binding.num_rows, like.action_mask_size
        )
        self._invalid = np.zeros(binding.num_rows, np.bool_)
        self._worker.count_restarts_from(restarts)
        return self._worker.bind(binding, self._rows, self._invalid, like)

    def step(self, actions: npt.NDArray[Any]) -> tuple[dict[str, Any], bytes]:
        """Step the envs; return their rows and the pickled outcome."""
        assert self._worker is not None
        assert self._rows is not None
        self._rows.actions[...] = actions
        return self._answer(self._worker.step_and_collect)

    def call(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        """Carry out a call of a method of the worker; return the rows and the pickled result."""
        assert self._worker is not None
        return self._answer(run_pickled_call, self._worker, request)

    def put(self, rows: dict[str, npt.NDArray[Any]]) -> None:
        """Overwrite rows."""
        for name, values in rows.items():
            getattr(self._rows, name)[...] = values

    def _answer(self, call: Any, *arguments: Any) -> tuple[dict[str, Any], bytes]:
        worker = self._worker
        assert worker is not None
        try:
            answer = call(*arguments)
        except BaseException as error:
            answer = call_failure(worker, error)
        try:
            message = pickled(answer)
        except Exception as error:
            message = pickled(unpicklable(worker, error))
        assert self._rows is not None
        return {**results_of(self._rows), "invalid": self._invalid}, message


class RayVector(ParallelVector):
    """Steps envs in Ray actors, one a slot.

    Ray is started on this machine unless it runs already or the address of a cluster is set (`RAY_ADDRESS`); what was
    started here is shut down with the last vector env.
    """

    _is_remote = True

    def __init__(self, settings: Settings) -> None:
        self._actors: list[Any] = []
        self._refs: dict[int, Any] = {}
        self._on_step: set[int] = set()
        self._restarts = [0] * settings.plan.num_slots
        self._is_counted = False
        super().__init__(settings)

    def _launch(self, specs: Sequence[SlotSpec]) -> list[EnvReport]:
        global _open_vectors, _started_ray
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
            _started_ray = True
        _open_vectors += 1
        self._is_counted = True
        self._specs = list(specs)
        self._actors = [self._actor(spec) for spec in specs]
        self._wait_until_up(self._actors)
        mixed = self._settings.is_mixed
        probed = range(len(specs)) if mixed else [0]
        refs = {slot: self._tell(slot, "probe", mixed) for slot in probed}
        return [report for reports in self._answers(refs) for report in reports]

    def _actor(self, spec: SlotSpec) -> Any:
        cpus = 0 if _started_ray else 1  # on this machine more workers than CPUs are allowed
        options = ray.remote(RemoteWorker).options(num_cpus=cpus, max_restarts=0)
        return options.remote(pickled_spec(spec, "ray"))

    def _tell(self, slot: int, method: str, *arguments: Any) -> Any:
        return self._actors[slot].start.remote(method, cloudpickle.dumps(arguments))

    def _wait_until_up(self, actors: Sequence[Any]) -> None:
        up = [actor.is_up.remote() for actor in actors]
        late = ray.wait(up, num_returns=len(up), timeout=START_S)[1]
        if late:
            cpus = ray.cluster_resources().get("CPU", 0)
            raise WorkerError(
                f"its actor did not start within {START_S:g} s. Each actor takes one of the {cpus:g} CPUs of the Ray "
                "cluster: use fewer workers, or add machines",
                self._actors.index(actors[up.index(late[0])]),
            )

    def _answers(self, refs: Mapping[int, Any]) -> list[Any]:
        """Return the answers of slots to a message of the start."""
        limit_s = self._settings.timeout_s
        late = ray.wait(list(refs.values()), num_returns=len(refs), timeout=limit_s)[1]
        if late:
            raise WorkerError(slow_start_text(limit_s), next(slot for slot, ref in refs.items() if ref == late[0]))
        return [self._answer(slot, ref) for slot, ref in refs.items()]

    def _answer(self, slot: int, ref: Any) -> Any:
        try:
            answer = pickle.loads(ray.get(ref))
        except ray.exceptions.RayError as error:
            raise WorkerError(f"its actor ended before it was ready: {error}", slot) from error
        if isinstance(answer, WorkerError):
            answer.worker_index = slot
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        self._answers({slot: self._tell_bind(slot) for slot in range(len(self._specs))})
        buffers = Buffers.allocate(
            report.single_observation_space, report.single_action_space, self._plan.num_rows, report.action_mask_size
        )
        return buffers, np.zeros(self._plan.num_rows, np.bool_)

    def _tell_bind(self, slot: int) -> Any:
        return self._tell(slot, "bind", self._plan.binding(slot), self._report, self._restarts[slot])

    def _rows_of(self, slot: int) -> slice:
        return slice(slot * self._plan.rows_per_slot, (slot + 1) * self._plan.rows_per_slot)

    def _request(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        return pickled_call(method, arguments)

    def _begin(self, slots: Sequence[int], request: bytes | None) -> None:
        for slot in slots:
            actor = self._actors[slot]
            if request is None:
                self._on_step.add(slot)
                self._refs[slot] = actor.step.remote(self._buffers.actions[self._rows_of(slot)])
            else:
                self._on_step.discard(slot)
                self._refs[slot] = actor.call.remote(request)

    def _await(self, slots: npt.NDArray[np.int32], count: int) -> None:
        while True:
            refs = [self._refs[slot] for slot in slots.tolist() if slot in self._refs]
            if not refs:
                return
            ready, _ = ray.wait(refs, num_returns=min(count, len(refs)), timeout=self._poll_s, fetch_local=True)
            if len(ready) >= min(count, len(refs)):
                return
            self._check_open()
            self._look_after(slots.tolist())

    def _look_after(self, slots: Sequence[int]) -> None:
        for slot in self._overdue(slots):
            ray.kill(self._actors[slot])
            self._lose(slot, f"it did not answer within timeout_s={self._settings.timeout_s} and was killed")

    def _is_done(self, slot: int) -> bool:
        ref = self._refs.get(slot)
        return ref is None or bool(ray.wait([ref], timeout=0)[0])

    def _take(self, slot: int) -> Any:
        while True:
            try:
                rows, message = ray.get(self._refs.pop(slot))
                break
            except ray.exceptions.RayError as error:
                self._lose(slot, f"its actor ended: {type(error).__name__}")
        invalid = rows.pop("invalid")
        place = self._rows_of(slot)
        for name, array in rows.items():
            getattr(self._buffers, name)[place] = array
        self._invalid[place] = invalid
        answer = pickle.loads(message)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _lose(self, slot: int, reason: str) -> None:
        """Raise the error about an actor that is gone, or replace it."""
        if not self._settings.restart_failed or slot not in self._on_step:
            world = self._plan.first_world + slot * self._plan.worlds_per_slot
            raise self._about_world(reason, slot, world)
        self._restarts[slot] += 1
        self._actors[slot] = self._actor(self._specs[slot])
        self._wait_until_up([self._actors[slot]])
        self._answers({slot: self._tell_bind(slot)})
        self._started([slot])
        self._begin([slot], self._request("replace_all", (self._seed, reason)))

    def set_state(self, state: bytes) -> None:  # noqa: D102
        super().set_state(state)
        for slot, actor in enumerate(self._actors):
            ray.get(actor.put.remote(results_of(self._buffers[self._rows_of(slot)])))

    def _shut(self) -> None:
        global _open_vectors, _started_ray
        if self._failure is None and self._actors:
            closing = [actor.call.remote(self._request("close", ())) for actor in self._actors]
            with contextlib.suppress(Exception):
                ray.wait(closing, num_returns=len(closing), timeout=STOP_S)
        for actor in self._actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)
        self._actors, self._refs = [], {}
        if self._is_counted:
            self._is_counted = False
            _open_vectors -= 1
            if _started_ray and _open_vectors == 0:
                ray.shutdown()
                _started_ray = False
