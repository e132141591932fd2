"""Drawing the actions of a rollout."""

from __future__ import annotations

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
        is_one_choice = type(head) is CategoricalHead and len(head.nvec) == 1 and head.starts is None
        is_plain = is_one_choice and head.action_dtype == torch.int32 and head.action_shape == ()
        self._native = kernels() if is_plain and device.type == "cpu" else None
        self._device = device

    def draw(
        self, parameters: torch.Tensor, noise: npt.NDArray[np.float32], action_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions (rows, *action_shape) and their log-probabilities, float32 (rows,).

        Args:
            parameters: float32 (rows, num_parameters).
            noise: (rows, num_noise), uniforms of [0, 1).
            action_mask: bool (rows, num_choices) or None.
        """
        if self._native is not None and action_mask is None and self._suits_loop(parameters, noise):
            rows = len(parameters)
            actions, log_probs = torch.empty(rows, dtype=torch.int32), torch.empty(rows)
            logits = parameters.contiguous().numpy()
            if self._native.sample_categorical(logits, noise, actions.numpy(), log_probs.numpy()):
                return actions, log_probs
        drawn: tuple[torch.Tensor, torch.Tensor] = self.head.sample_with_log_prob(
            parameters, torch.from_numpy(noise).to(self._device), action_mask
        )
        return drawn

    def _suits_loop(self, parameters: torch.Tensor, noise: npt.NDArray[np.float32]) -> bool:
        """Return whether there are few logits, in shapes that the loop, which does not look, may read."""
        rows = len(parameters)
        is_fit = parameters.shape == (rows, self.head.num_parameters) and noise.shape == (rows, self.head.num_noise)
        return is_fit and parameters.numel() <= MAX_NATIVE_LOGITS
