"""Torch's random generators, lent to a run: dropout and the like repeat, and nobody else notices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class PrivateGenerator:
    """A state of torch's global generators that is in force only inside `use`.

    Args:
        seed: Fixes the state.
        device: Where the run computes; a CUDA device has a generator of its own.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [device] if device.type == "cuda" else []
        self._states: list[torch.Tensor] = []
        with self._forked():
            torch.manual_seed(seed)
            self._keep()

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Put this state in force, keep what it becomes, and put the old one back."""
        with self._forked():
            torch.set_rng_state(self._states[0])
            for device, state in zip(self._devices, self._states[1:], strict=False):
                torch.cuda.set_rng_state(state, device)
            yield
            self._keep()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors."""
        return {"states": [state.clone() for state in self._states]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state that `state_dict` returned, also of a run on another kind of device."""
        self._states = [each.clone() for each in state["states"]] + self._states[len(state["states"]) :]

    def _forked(self) -> contextlib.AbstractContextManager[None]:
        return torch.random.fork_rng(devices=self._devices)

    def _keep(self) -> None:
        self._states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]
