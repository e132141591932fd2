"""A head whose elements depend on those chosen before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from puffer_policies.discrete import CategoricalHead, categorical_terms, invert_cdf, masked
from puffer_policies.initialization import ACTOR_GAIN, layer_init
from puffer_policies.linear import Linear

Tensor = torch.Tensor


class AutoregressiveHead(CategoricalHead):
    """Discrete elements chosen one after the other: p(a) = Π p(a_j | a_1 .. a_{j-1}, features).

        logits_j = W_j tanh(features + Σ_{i<j} E_i[a_i]) + b_j

    Parameters are features, not logits; the head has weights of its own. For given actions all elements are computed in
    one pass. The entropy is the sum of the elements' entropies given the choices before them, those of the actions in
    `log_prob_and_entropy` (an unbiased estimate for sampled actions) and the most likely ones in `entropy`.

    Args:
        nvec: Number of choices of each element.
        starts: Value of the first choice of each element; zeros if None.
        action_shape: Shape of an action.
        action_dtype: Dtype of actions.
        width: Number of features.
    """

    parameter_gain = 1.0

    def __init__(
        self,
        nvec: Sequence[int],
        starts: Sequence[int] | None = None,
        action_shape: tuple[int, ...] | None = None,
        action_dtype: torch.dtype = torch.int32,
        width: int = 64,
    ) -> None:
        super().__init__(nvec, starts, action_shape, action_dtype)
        self.num_parameters = width
        self.logits = nn.ModuleList([layer_init(Linear(width, n), std=ACTOR_GAIN) for n in self.nvec])
        self.chosen = nn.ModuleList([nn.Embedding(n, width) for n in self.nvec[:-1]])
        for embedding in self.chosen:
            nn.init.normal_(cast(nn.Embedding, embedding).weight, std=0.1)

    def expected(self) -> str:
        """Say in words what a policy returns for this head."""
        return f"features (rows, {self.num_parameters})"

    def _log_prob_and_entropy(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        choices, features = self._to_choices(actions), parameters
        log_probs, entropies = [], []
        for index, element_mask in enumerate(self._element_masks(mask)):
            logits = self._element_logits(index, features)
            log_prob, entropy = categorical_terms(logits, choices[:, index], element_mask)
            log_probs.append(log_prob)
            entropies.append(entropy)
            features = self._after(index, features, choices[:, index])
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def _entropy(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return self._log_prob_and_entropy(parameters, self.mode(parameters, mask), mask)[1]

    def _sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        return self._choose(parameters, mask, noise)

    def _mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        return self._choose(parameters, mask, None)

    def _choose(self, features: Tensor, mask: Tensor | None, noise: Tensor | None) -> Tensor:
        choices = []
        for index, element_mask in enumerate(self._element_masks(mask)):
            logits = masked(self._element_logits(index, features), element_mask)
            choices.append(logits.argmax(1) if noise is None else invert_cdf(logits, noise[:, index]))
            features = self._after(index, features, choices[-1])
        return self._to_actions(torch.stack(choices, 1))

    def _element_logits(self, index: int, features: Tensor) -> Tensor:
        layer = cast(Linear, self.logits[index])
        return cast(Tensor, layer(torch.tanh(features).to(layer.weight.dtype))).float()

    def _after(self, index: int, features: Tensor, choices: Tensor) -> Tensor:
        return features + self.chosen[index](choices) if index < len(self.chosen) else features

    def _element_masks(self, mask: Tensor | None) -> list[Tensor | None]:
        return [None] * len(self.nvec) if mask is None else list(mask.split(list(self.nvec), 1))

    def _bad_rows(self, parameters: Tensor) -> Tensor:
        return ~torch.isfinite(parameters).all(1)
