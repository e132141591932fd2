"""The PPO loss over a part of a minibatch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from puffer_train.native import kernels

STATISTIC_NAMES = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "importance")
"""What `Loss.statistics` holds, in its order."""

Coefficients = tuple[float, float, float, float]
"""clip_coef, vf_coef, vf_clip_coef (infinite: none) and ent_coef."""

Tensors = tuple[torch.Tensor, ...]


class LossTerms(TypedDict):
    """What a loss needs beside the outputs of the policy.

    Attributes:
        old_log_probs: float32 (num_steps,), when the actions were taken.
        old_values: float32 (num_steps,), when the actions were taken. Read for value clipping only.
        advantages: float32 (num_steps,).
        targets: float32 (num_steps,), what the values should be.
        weights: float32 (num_steps,), 1 / number of valid steps of the minibatch where valid, else 0: sums of
            losses over the parts of a minibatch are masked means over the minibatch.
        clip_coef: ε.
        vf_coef: c_v.
        vf_clip_coef: The value loss is the larger of that of v and of v kept this near the old value. None: that of v.
        ent_coef: c_e.
    """

    old_log_probs: torch.Tensor
    old_values: torch.Tensor
    advantages: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    clip_coef: float
    vf_coef: float
    vf_clip_coef: float | None
    ent_coef: float


class Loss(NamedTuple):
    """A loss and what is reported of it.

    Attributes:
        total: What is differentiated, a scalar.
        statistics: float32 (len(STATISTIC_NAMES),), detached sums weighted like the loss.
        ratios: Probability ratios, detached.
        values: Current values, detached.
    """

    total: torch.Tensor
    statistics: torch.Tensor
    ratios: torch.Tensor
    values: torch.Tensor


def ppo_loss(
    log_probs: torch.Tensor,
    entropies: torch.Tensor,
    values: torch.Tensor,
    **terms: Unpack[LossTerms],
) -> Loss:
    """Return the clipped surrogate with value loss and entropy bonus.

        L = Σ w [max(-A ρ, -A clip(ρ, 1 - ε, 1 + ε)) + c_v ½ (v - target)² - c_e entropy],    ρ = exp(log π - log π_old)

    Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equations 7 and 9 (https://arxiv.org/abs/1707.06347).

    Args:
        log_probs: float32 (num_steps,), of the taken actions under the current policy.
        entropies: float32 (num_steps,).
        values: float32 (num_steps,), current.
        **terms: All of `LossTerms`.

    Raises:
        ValueError: If the shapes do not agree.
    """
    given, coefficients = _take_apart(terms)
    _check_shapes(given, log_probs=log_probs, entropies=entropies, values=values)
    native = kernels() if log_probs.device.type == "cpu" else None
    if native is not None:
        total, statistics, ratios = _NativeLoss.apply(log_probs, entropies, values, given, coefficients, native)
        return Loss(total, statistics, ratios, values.detach())
    old_log_probs, old_values, advantages, targets, weights = given
    clip_coef, vf_coef, vf_clip_coef, ent_coef = coefficients
    log_ratios = log_probs - old_log_probs
    ratios = log_ratios.exp()
    unclipped = -advantages * ratios
    clipped = -advantages * ratios.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    policy_loss = torch.dot(torch.maximum(unclipped, clipped), weights)
    squares = (values - targets).square()
    if vf_clip_coef < math.inf:
        near = old_values + (values - old_values).clamp(-vf_clip_coef, vf_clip_coef)
        squares = torch.maximum(squares, (near - targets).square())
    value_loss = 0.5 * torch.dot(squares, weights)
    entropy = torch.dot(entropies, weights)
    total = policy_loss - ent_coef * entropy + vf_coef * value_loss
    with torch.no_grad():
        distances = ratios - 1.0
        kl = torch.dot(distances - log_ratios, weights)
        clip_fraction = torch.dot((distances.abs() > clip_coef).to(weights.dtype), weights)
        importance = torch.dot(ratios, weights)
        old_kl = -torch.dot(log_ratios, weights)
        statistics = torch.stack([policy_loss, value_loss, entropy, old_kl, kl, clip_fraction, importance]).detach()
    return Loss(total, statistics, ratios.detach(), values.detach())


def _take_apart(terms: LossTerms) -> tuple[Tensors, Coefficients]:
    """Return the tensors and the numbers of the terms, each in their order."""
    clip_value = math.inf if terms["vf_clip_coef"] is None else terms["vf_clip_coef"]
    given = (terms["old_log_probs"], terms["old_values"], terms["advantages"], terms["targets"], terms["weights"])
    return given, (terms["clip_coef"], terms["vf_coef"], clip_value, terms["ent_coef"])


def _check_shapes(given: Tensors, **current: torch.Tensor) -> None:
    """Check that all have one number a step, as many as the first of `current`."""
    named = current | dict(zip(("old_log_probs", "old_values", "advantages", "targets", "weights"), given, strict=True))
    first, size = next(iter(named.items()))
    for name, tensor in named.items():
        if tensor.ndim != 1 or tensor.shape != size.shape:
            raise ValueError(
                f"{name} must be (num_steps,), as {first}; got {tuple(tensor.shape)} and {tuple(size.shape)}. "
                "Flatten both, one number a step."
            )


def choice_loss(
    logits: torch.Tensor,
    choices: torch.Tensor,
    values: torch.Tensor,
    *,
    native: Any,
    **terms: Unpack[LossTerms],
) -> Loss:
    """Return `ppo_loss` of actions that are one choice each, by compiled loops from the logits on.

    Args:
        logits: float32 (num_steps, num_choices), current, in host memory.
        choices: int32 (num_steps,), the taken actions.
        values: float32 (num_steps,), current.
        native: The compiled loops.
        **terms: All of `LossTerms`.

    Raises:
        ValueError: If the shapes do not agree, or a choice does not exist.
    """
    given, coefficients = _take_apart(terms)
    _check_shapes(given, choices=choices, values=values)
    if logits.ndim != 2 or len(logits) != len(choices):
        raise ValueError(
            f"logits must be (num_steps, num_choices) for {len(choices)} choices; got {tuple(logits.shape)}. "
            "Pass a row for each."
        )
    total, statistics, ratios = _ChoiceLoss.apply(logits, values, choices, given, coefficients, native)
    return Loss(total, statistics, ratios, values.detach())


class _NativeLoss(Function):
    """`ppo_loss` and its gradient in one loop over the steps, where thirty small operations take longer to begin."""

    @staticmethod
    def forward(
        ctx: Any,
        log_probs: torch.Tensor,
        entropies: torch.Tensor,
        values: torch.Tensor,
        given: Tensors,
        coefficients: Coefficients,
        native: Any,
    ) -> Tensors:
        """Return the total, the statistics and the ratios."""
        gradients, *results = _terms(ctx, (log_probs, entropies, values, *given), coefficients, native)
        ctx.save_for_backward(gradients)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        """Scale the gradients that the loop found."""
        by_log_prob, by_entropy, by_value = ctx.saved_tensors[0] * grad_total
        return by_log_prob, by_entropy, by_value, None, None, None


class _ChoiceLoss(Function):
    """`choice_loss` and its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        values: torch.Tensor,
        choices: torch.Tensor,
        given: Tensors,
        coefficients: Coefficients,
        native: Any,
    ) -> Tensors:
        """Return the total, the statistics and the ratios."""
        logits = logits.detach().contiguous()
        table, by_logit = torch.empty_like(logits), torch.empty_like(logits)
        log_probs, entropies = logits.new_empty(2, len(logits))
        made = choices.contiguous().numpy()
        if not native.categorical_terms(logits.numpy(), made, table.numpy(), log_probs.numpy(), entropies.numpy()):
            raise ValueError(
                f"choices must be of 0 to {logits.shape[1] - 1}; got others. Pass those that were sampled."
            )
        gradients, *results = _terms(ctx, (log_probs, entropies, values, *given), coefficients, native)
        by_log_prob, by_entropy, by_value = gradients
        native.categorical_gradient(
            table.numpy(), made, entropies.numpy(), by_log_prob.numpy(), by_entropy.numpy(), by_logit.numpy()
        )
        ctx.save_for_backward(by_logit, by_value)
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        """Scale the gradients that the loops found."""
        by_logit, by_value = ctx.saved_tensors
        return by_logit * grad_total, by_value * grad_total, None, None, None, None


def _terms(ctx: Any, steps: Tensors, coefficients: Coefficients, native: Any) -> Tensors:
    """Return gradients (3, num_steps) by log-probability, entropy and value, the total, the statistics, the ratios."""
    log_probs = steps[0]
    ratios = torch.empty_like(log_probs)
    gradients = log_probs.new_empty(3, len(log_probs))
    sums = log_probs.new_empty(len(STATISTIC_NAMES))
    arrays = [part.detach().contiguous().numpy() for part in steps]
    total = native.ppo_terms(*arrays, *coefficients, ratios.numpy(), gradients.numpy(), sums.numpy())
    ctx.mark_non_differentiable(sums, ratios)
    return gradients, log_probs.new_full((), total), sums, ratios


def explained_variance(target_moments: torch.Tensor, residual_moments: torch.Tensor) -> torch.Tensor:
    """Return 1 - var(targets - values) / var(targets); 0 where targets do not vary.

    Args:
        target_moments: float64 (1, 3), `masked_moments` of the targets, summed over processes.
        residual_moments: float64 (1, 3), those of targets minus values.
    """
    variances = []
    for count, total, squares in (target_moments[0], residual_moments[0]):
        variances.append(squares / count.clamp(min=1.0) - (total / count.clamp(min=1.0)).square())
    target, residual = variances
    return torch.where(target > 1e-12, 1.0 - residual / target.clamp(min=1e-12), 0.0)
