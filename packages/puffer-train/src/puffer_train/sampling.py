"""Drawing the actions of a rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from puffer_policies import CategoricalHead
from puffer_train.native import kernels

MAX_NATIVE_LOGITS = 8192
"""Logits up to which one loop beats twenty array operations, which take some 3 µs each to begin."""


class Sampler:
    """Draws actions from an action head: one choice for each of few rows by a compiled loop.

    Args:
        head: Action head of the policy.
        device: Where its parameters are.
    """

    def __init__(self, head: Any, device: torch.device) -> None:
        self.head = head
        self._device = device

    def draw(
        self,
        parameters: torch.Tensor,
        values: torch.Tensor,
        noise: npt.NDArray[np.float32],
        action_mask: torch.Tensor | None,
        check: Callable[[], object],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions (rows, *action_shape) and their log-probabilities, float32 (rows,).

        Args:
            parameters: float32 (rows, num_parameters).
            values: float32 (rows,), the other output of the policy.
            noise: (rows, num_noise), uniforms of [0, 1).
            action_mask: bool (rows, num_choices) or None.
            check: Called where the loop has not seen for itself that parameters and values are finite.
        """
        native = loops_for(self.head, parameters) if action_mask is None else None
        rows = len(parameters)
        if native is not None and noise.shape == (rows, 1) and values.shape == (rows,):
            actions, log_probs = torch.empty(rows, dtype=torch.int32), torch.empty(rows)
            given = (parameters.contiguous().numpy(), values.contiguous().numpy(), noise)
            if native.sample_categorical(*given, actions.numpy(), log_probs.numpy()):
                return actions, log_probs
        check()
        drawn: tuple[torch.Tensor, torch.Tensor] = self.head.sample_with_log_prob(
            parameters, torch.from_numpy(noise).to(self._device), action_mask
        )
        return drawn


def loops_for(head: Any, parameters: torch.Tensor) -> Any | None:
    """Return the compiled loops where they suit an action head and its parameters, else None.

    An action has to be one number of 0 to n - 1, int32, and the logits have to be few and in host memory. The loops do
    not look at shapes.
    """
    if type(head) is not CategoricalHead or len(head.nvec) > 1 or head.starts is not None:
        return None
    if head.action_dtype != torch.int32 or head.action_shape != () or parameters.shape[1:] != head.nvec:
        return None
    return kernels() if parameters.is_cpu and parameters.numel() <= MAX_NATIVE_LOGITS else None
