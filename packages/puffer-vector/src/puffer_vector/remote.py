"""Workers that are Ray actors, on this machine or on a cluster. Importing this needs ray.

An actor has rows of its own; each step carries the actions of its slot there and the results back. Otherwise it runs
the same `Worker` as every backend, so that results are the same.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import ray

from puffer_spaces import Buffers
from puffer_vector.errors import WorkerError
from puffer_vector.local import Call
from puffer_vector.parallel import ParallelVector
from puffer_vector.process_worker import described_failure
from puffer_vector.reports import EnvReport
from puffer_vector.settings import Settings
from puffer_vector.worker import Binding, SlotSpec, Worker

STOP_S = 1.0
"""How long an actor may take to close its envs, in seconds."""
_RESULTS = ("observations", "rewards", "terminals", "truncations", "masks", "final_observations", "action_mask")
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
            answer = described_failure(self._worker, error)
        return bytes(cloudpickle.dumps(answer))

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
        return self._answer(self._worker.step_and_collect, ())

    def call(self, method: str, arguments: bytes) -> tuple[dict[str, Any], bytes]:
        """Call a method of the worker; return the rows and the pickled result."""
        return self._answer(getattr(self._worker, method), pickle.loads(arguments))

    def put(self, rows: dict[str, npt.NDArray[Any]]) -> None:
        """Overwrite rows."""
        for name, values in rows.items():
            getattr(self._rows, name)[...] = values

    def _answer(self, call: Any, arguments: tuple[Any, ...]) -> tuple[dict[str, Any], bytes]:
        worker = self._worker
        assert worker is not None
        try:
            answer = call(*arguments)
        except Exception as error:
            answer = error
        except BaseException as error:
            answer = worker.describe_failure(f"the env raised {error!r}", int(worker.progress[0]), error)
        try:
            message = cloudpickle.dumps(answer)
            if isinstance(answer, Exception):
                pickle.loads(message)
        except Exception as error:
            reason = f"what an env returns to another process must be picklable: {error}"
            message = cloudpickle.dumps(worker.describe_failure(reason, int(worker.progress[0]), error))
        rows = {name: array for name in _RESULTS if (array := getattr(self._rows, name)) is not None}
        return {**rows, "invalid": self._invalid}, bytes(message)


class RayVector(ParallelVector):
    """Steps envs in Ray actors, one a slot.

    Ray is started on this machine unless it runs already or the address of a cluster is set (`RAY_ADDRESS`); what was
    started here is shut down with the last vector env.
    """

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
        mixed = self._settings.is_mixed
        probed = range(len(specs)) if mixed else [0]
        refs = [self._tell(slot, "probe", mixed) for slot in probed]
        return [report for slot, ref in zip(probed, refs, strict=True) for report in self._answer(slot, ref)]

    def _actor(self, spec: SlotSpec) -> Any:
        try:
            payload = cloudpickle.dumps(spec)
        except Exception as error:
            raise TypeError(
                f"the env creator must be picklable for ray; {spec.creators[0].name} is not: {error}. "
                "Build what cannot be pickled inside the creator."
            ) from error
        return ray.remote(RemoteWorker).options(num_cpus=1, max_restarts=0).remote(payload)

    def _tell(self, slot: int, method: str, *arguments: Any) -> Any:
        return self._actors[slot].start.remote(method, cloudpickle.dumps(arguments))

    def _answer(self, slot: int, ref: Any) -> Any:
        try:
            answer = pickle.loads(ray.get(ref))
        except ray.exceptions.RayError as error:
            raise WorkerError(f"its actor ended before it was ready: {error}", slot) from error
        if isinstance(answer, WorkerError):
            answer.worker_index = slot
            raise answer
        return answer

    def _bind(self, report: EnvReport) -> tuple[Buffers, npt.NDArray[np.bool_]]:
        slots = range(len(self._specs))
        refs = [self._tell_bind(slot) for slot in slots]
        for slot, ref in zip(slots, refs, strict=True):
            self._answer(slot, ref)
        buffers = Buffers.allocate(
            report.single_observation_space, report.single_action_space, self._plan.num_rows, report.action_mask_size
        )
        return buffers, np.zeros(self._plan.num_rows, np.bool_)

    def _tell_bind(self, slot: int) -> Any:
        return self._tell(slot, "bind", self._plan.binding(slot), self._report, self._restarts[slot])

    def _rows_of(self, slot: int) -> slice:
        return slice(slot * self._plan.rows_per_slot, (slot + 1) * self._plan.rows_per_slot)

    def _begin(self, slots: Sequence[int], call: Call | None) -> None:
        for slot in slots:
            actor = self._actors[slot]
            if call is None:
                self._on_step.add(slot)
                self._refs[slot] = actor.step.remote(self._buffers.actions[self._rows_of(slot)])
            else:
                self._on_step.discard(slot)
                self._refs[slot] = actor.call.remote(call[0], cloudpickle.dumps(call[1]))

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
        self._answer(slot, self._tell_bind(slot))
        self._started([slot])
        self._begin([slot], ("replace_all", (self._seed, reason)))

    def set_state(self, state: bytes) -> None:  # noqa: D102
        super().set_state(state)
        names = [name for name in _RESULTS if getattr(self._buffers, name) is not None]
        for slot, actor in enumerate(self._actors):
            place = self._rows_of(slot)
            ray.get(actor.put.remote({name: getattr(self._buffers, name)[place] for name in names}))

    def _shut(self) -> None:
        global _open_vectors, _started_ray
        if self._failure is None and self._actors:
            closing = [actor.call.remote("close", cloudpickle.dumps(())) for actor in self._actors]
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
