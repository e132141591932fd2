"""Exceptions a caller of a vector env may want to catch."""

from __future__ import annotations

from puffer_spaces import MissingAdapter, MissingSuite, PufferError, UnknownEnvError

PASSED_ON = (MissingAdapter, MissingSuite, UnknownEnvError)
"""Errors of a creator that reach the caller as they are from every backend: they say what to install or to name."""


class WorkerError(PufferError, RuntimeError):
    """An environment failed, or the worker that steps it died or did not answer in time.

    Attributes:
        reason: What happened, in one sentence.
        worker_index: Index of the worker.
        world: Number of the first world of the failed env object in the whole vector env, or None if unknown.
        seed: Seed of that world, or None before the first seeded reset.
        step: Steps since the last reset, counting the failed one; 0 while building or resetting.
        remote_traceback: Traceback of the original exception as text; "" when the worker died without one.
        flight_record: Path of the file that `replay` reads, or None.
    """

    def __init__(
        self,
        reason: str,
        worker_index: int,
        world: int | None = None,
        seed: int | None = None,
        step: int = 0,
        remote_traceback: str = "",
        flight_record: str | None = None,
    ) -> None:
        self.reason = reason
        self.worker_index = worker_index
        self.world = world
        self.seed = seed
        self.step = step
        self.remote_traceback = remote_traceback
        self.flight_record = flight_record
        super().__init__(reason)

    def __str__(self) -> str:
        world = "" if self.world is None else f", world {self.world}"
        text = f"worker {self.worker_index}{world} (seed {self.seed}, step {self.step}): {self.reason}"
        if self.flight_record:
            where = f"Its last actions are in {self.flight_record}; puffer_vector.replay repeats them."
            text = f"{text.rstrip('.')}. {where}"
        if self.remote_traceback:
            text += f"\n\nTraceback in the worker:\n{self.remote_traceback.rstrip()}"
        return text

    def __reduce__(self) -> tuple[type[WorkerError], tuple[object, ...]]:
        fields = (self.reason, self.worker_index, self.world, self.seed, self.step)
        return type(self), (*fields, self.remote_traceback, self.flight_record)


class ClosedError(PufferError, RuntimeError):
    """The vector env is closed."""
