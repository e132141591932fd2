"""Heads for Discrete, MultiDiscrete and MultiBinary actions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.distributions import Bernoulli, Categorical, OneHotCategorical

from puffer_policies.heads import ActionHead

Tensor = torch.Tensor

MASKED = -1e30
"""Logit of a masked choice: its exponential is exactly 0, and unlike -inf it makes no NaN where all are masked."""


class CategoricalHead(ActionHead):
    """Independent choices: one Categorical per element of the action.

    Parameters are the logits of all elements side by side.

    Args:
        nvec: Number of choices of each element.
        starts: Value of the first choice of each element; zeros if None.
        action_shape: Shape of an action: () for a Discrete.
        action_dtype: Dtype of actions.

    Raises:
        ValueError: An element has no choice, or there is no element.
    """

    starts: Tensor | None

    def __init__(
        self,
        nvec: Sequence[int],
        starts: Sequence[int] | None = None,
        action_shape: tuple[int, ...] | None = None,
        action_dtype: torch.dtype = torch.int32,
    ) -> None:
        super().__init__()
        self.nvec = tuple(int(n) for n in nvec)
        if not self.nvec or min(self.nvec) < 1:
            raise ValueError(f"nvec must hold positive numbers of choices; got {self.nvec}.")
        self.num_choices = sum(self.nvec)
        self.num_parameters = self.num_choices
        self.num_noise = len(self.nvec)
        self.action_shape = (len(self.nvec),) if action_shape is None else action_shape
        self.action_dtype = action_dtype
        # Neighbours with equal numbers of choices are computed together.
        self.runs = [(n, len(list(run))) for n, run in groupby(self.nvec)]
        has_starts = starts is not None and any(starts)
        self.register_buffer("starts", torch.tensor(starts) if has_starts else None, persistent=False)

    def _log_prob_and_entropy(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        choices = self._split_elements(self._to_choices(actions))
        runs = zip(self._split(parameters), self._split_mask(mask), choices, strict=True)
        parts = [_sum_elements(logits, run_mask, run_choices) for logits, run_mask, run_choices in runs]
        if len(parts) == 1:
            return parts[0]
        return torch.stack([part[0] for part in parts]).sum(0), torch.stack([part[1] for part in parts]).sum(0)

    def _entropy(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        choices = torch.zeros(parameters.shape[0], len(self.nvec), dtype=torch.long, device=parameters.device)
        return self._log_prob_and_entropy(parameters, self._to_actions(choices), mask)[1]

    def _sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        runs = zip(self._split(parameters), self._split_mask(mask), self._split_elements(noise), strict=True)
        parts = [
            invert_cdf(masked(logits, run_mask), run_noise.reshape(-1)).view(run_noise.shape)
            for logits, run_mask, run_noise in runs
        ]
        return self._to_actions(parts[0] if len(parts) == 1 else torch.cat(parts, 1))

    def _mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        runs = zip(self._split(parameters), self._split_mask(mask), self.runs, strict=True)
        parts = [masked(logits, run_mask).argmax(-1).view(-1, count) for logits, run_mask, (_, count) in runs]
        return self._to_actions(torch.cat(parts, 1))

    def _bad_rows(self, parameters: Tensor) -> Tensor:
        bad = torch.zeros(parameters.shape[0], dtype=torch.bool, device=parameters.device)
        for logits, (_, count) in zip(self._split(parameters), self.runs, strict=True):
            top = logits.amax(-1)  # NaN and +inf win, -inf only where the element has nothing else
            bad |= (~torch.isfinite(top)).view(-1, count).any(1)
        return bad

    def _to_parameters(self, output: Any) -> Tensor:
        parts = [self._logits_of(part) for part in (output if isinstance(output, tuple | list) else [output])]
        if not all(isinstance(part, Tensor) and part.ndim > 1 for part in parts):
            raise self.unfit(output)
        rows = [part.flatten(1) for part in parts]
        widths = [part.shape[1] for part in rows]
        if widths not in ([self.num_parameters], list(self.nvec)):
            raise self.unfit(output)
        return rows[0] if len(rows) == 1 else torch.cat(rows, 1)

    def _logits_of(self, output: Any) -> Any:
        return output.logits if isinstance(output, Categorical | OneHotCategorical) else output

    def expected(self) -> str:
        """Say in words what a policy returns for this head."""
        if len(self.nvec) == 1:
            return f"logits (rows, {self.nvec[0]})"
        return f"logits (rows, {self.num_parameters}) or a tuple of logits with {list(self.nvec)} columns"

    def _split(self, parameters: Tensor) -> list[Tensor]:
        """Cut (rows, sum of nvec) into logits (rows * elements, choices), one tensor per run of equal elements."""
        if len(self.runs) == 1:
            return [parameters.reshape(-1, self.runs[0][0])]
        return [part.reshape(-1, n) for part, (n, _) in zip(self._columns(parameters), self.runs, strict=True)]

    def _split_mask(self, mask: Tensor | None) -> list[Tensor | None]:
        if mask is None:
            return [None] * len(self.runs)
        return [part.reshape(-1, n) for part, (n, _) in zip(self._columns(mask), self.runs, strict=True)]

    def _columns(self, joined: Tensor) -> tuple[Tensor, ...]:
        return cast(tuple[Tensor, ...], joined.split([n * count for n, count in self.runs], 1))

    def _split_elements(self, joined: Tensor) -> tuple[Tensor, ...]:
        return cast(tuple[Tensor, ...], joined.split([count for _, count in self.runs], 1))

    def _to_choices(self, actions: Tensor) -> Tensor:
        choices = actions.reshape(actions.shape[0], len(self.nvec)).long()
        return choices if self.starts is None else choices - self.starts

    def _to_actions(self, choices: Tensor) -> Tensor:
        if self.starts is not None:
            choices = choices + self.starts
        return choices.to(self.action_dtype).reshape(-1, *self.action_shape)


class BernoulliHead(CategoricalHead):
    """Independent bits: one logit per bit, that of a 1. A mask has two columns per bit, for 0 and 1.

    Args:
        num_bits: Number of bits.
        action_shape: Shape of an action.
        action_dtype: Dtype of actions.
    """

    def __init__(
        self, num_bits: int, action_shape: tuple[int, ...] | None = None, action_dtype: torch.dtype = torch.int32
    ) -> None:
        super().__init__([2] * num_bits, None, action_shape, action_dtype)
        self.num_parameters = num_bits

    def _logits_of(self, output: Any) -> Any:
        return output.logits if isinstance(output, Bernoulli) else output

    def _split(self, parameters: Tensor) -> list[Tensor]:
        ones = parameters.reshape(-1)
        return [torch.stack([torch.zeros_like(ones), ones], 1)]

    def expected(self) -> str:
        """Say in words what a policy returns for this head."""
        return f"logits of the ones (rows, {self.num_parameters})"


class CategoricalTerms(Function):
    """Log-probability of a choice and entropy of a Categorical, with the gradient in closed form.

        log p = l - log Σ exp l      H = -Σ p log p      ∂log p_a/∂l = 1[a] - p      ∂H/∂l = -p (log p + H)

    It works on (choices, rows): a softmax over few choices is vectorised over rows there and up to 20 times faster.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, choices: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute both.

        Args:
            ctx: Filled for `backward`.
            logits: float32 (rows, n). -inf counts as masked.
            choices: int64 (rows,).
            mask: bool (rows, n) or None.

        Returns:
            Log-probabilities and entropies, float32 (rows,).
        """
        log_probs = masked(logits, mask).t().contiguous().log_softmax(0)
        probs = log_probs.exp()
        terms = probs * log_probs
        entropy = terms.sum(0).neg()
        ctx.save_for_backward(probs, terms, entropy, choices, mask)
        return log_probs.gather(0, choices.unsqueeze(0)).squeeze(0), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_prob: Tensor, grad_entropy: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logits, exactly 0 where masked."""
        probs, terms, entropy, choices, mask = ctx.saved_tensors
        grad = torch.addcmul(terms, probs, entropy).mul_(-grad_entropy)
        grad = torch.addcmul(grad, probs, grad_log_prob, value=-1.0)
        grad = grad.scatter_add(0, choices.unsqueeze(0), grad_log_prob.unsqueeze(0)).t()
        return grad if mask is None else grad.masked_fill(~mask, 0.0), None, None


def categorical_terms(logits: Tensor, choices: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute `CategoricalTerms`, under a compiler of plain operations: it fuses these and their gradients itself."""
    if not torch.compiler.is_compiling():
        return cast(tuple[Tensor, Tensor], CategoricalTerms.apply(logits, choices, mask))
    log_probs = masked(logits, mask).log_softmax(1)
    log_prob = log_probs.gather(1, choices.unsqueeze(1)).squeeze(1)
    return log_prob, -(log_probs.exp() * log_probs).sum(1)


def masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Give masked choices a logit whose exponential is exactly 0; mask is bool like logits, or None."""
    logits = logits.clamp_min(MASKED)
    return logits if mask is None else torch.where(mask, logits, MASKED)


def invert_cdf(logits: Tensor, noise: Tensor) -> Tensor:
    """Return the first choice whose cumulated probability exceeds noise: int64 (rows,) from (rows, n) and (rows,)."""
    probs = logits.t().contiguous().softmax(0).t().contiguous()
    cumulated = probs.cumsum(1)
    choices = (cumulated <= noise.unsqueeze(1) * cumulated[:, -1:]).sum(1)
    if probs.device.type == "cpu":
        return choices
    # A parallel cumulated sum may rise by a rounding error over a choice of probability 0.
    chosen = probs.gather(1, choices.clamp(max=probs.shape[1] - 1).unsqueeze(1)).squeeze(1)
    return torch.where(chosen > 0, choices, probs.argmax(1))


def _sum_elements(logits: Tensor, mask: Tensor | None, choices: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over the elements of one run: choices (rows, elements)."""
    log_prob, entropy = categorical_terms(logits, choices.reshape(-1), mask)
    if choices.shape[1] == 1:
        return log_prob, entropy
    return log_prob.view(choices.shape).sum(1), entropy.view(choices.shape).sum(1)
