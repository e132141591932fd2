"""Everything in the calling thread: the reference for the other backends, and the fastest for small envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_spaces import PufferEnv
from puffer_vector.local import Call, OneSlotSteps, run_call
from puffer_vector.settings import Settings
from puffer_vector.worker import Worker


class SerialVector(OneSlotSteps):
    """Steps all envs in the calling thread, when their batch is received."""

    def __init__(self, settings: Settings, built: Sequence[PufferEnv] = ()) -> None:
        self._calls: dict[int, Call | None] = {}
        self._outcomes: dict[int, Any] = {}
        super().__init__(settings, built)

    def _begin(self, slots: Sequence[int], request: Call | None) -> None:
        for slot in slots:
            self._calls[slot] = request

    def _await(self, slots: npt.NDArray[np.int32], count: int) -> None:
        for slot in slots[:count].tolist():
            if slot in self._calls:
                call = self._calls[slot]
                worker = self._workers[slot]
                self._outcomes[slot] = worker.step_and_collect() if call is None else run_call(worker, call)
                del self._calls[slot]

    def _look_after(self, slots: Sequence[int]) -> None:
        """Do nothing: a slot that is not done was not begun, since the calling thread steps them all."""

    def _is_done(self, slot: int) -> bool:
        return slot in self._outcomes

    def _take(self, slot: int) -> Any:
        outcome = self._outcomes.pop(slot)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _step_only(self, worker: Worker) -> list[dict[str, Any]]:
        return worker.step()
