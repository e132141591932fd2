"""The PPO loss over a part of a minibatch."""

from __future__ import annotations

from typing import NamedTuple

import torch

STATISTIC_NAMES = ("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clipfrac", "importance")
"""What `Loss.statistics` holds, in its order."""


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
    *,
    old_log_probs: torch.Tensor,
    old_values: torch.Tensor,
    advantages: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    clip_coef: float,
    vf_coef: float,
    vf_clip_coef: float | None,
    ent_coef: float,
) -> Loss:
    """Return the clipped surrogate with value loss and entropy bonus.

        L = Σ w [max(-A ρ, -A clip(ρ, 1 - ε, 1 + ε)) + c_v ½ (v - target)² - c_e entropy],    ρ = exp(log π - log π_old)

    Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equations 7 and 9 (https://arxiv.org/abs/1707.06347).

    Args:
        log_probs: float32 (num_steps,), of the taken actions under the current policy.
        entropies: float32 (num_steps,).
        values: float32 (num_steps,), current.
        old_log_probs: float32 (num_steps,), when the actions were taken.
        old_values: float32 (num_steps,), when the actions were taken. Read for value clipping only.
        advantages: float32 (num_steps,).
        targets: float32 (num_steps,), what the values should be.
        weights: float32 (num_steps,), 1 / number of valid steps of the minibatch where valid, else 0: sums of this
            function over the parts of a minibatch are masked means over the minibatch.
        clip_coef: ε.
        vf_coef: c_v.
        vf_clip_coef: The value loss is the larger of that of v and of v kept this near the old value. None: that of v.
        ent_coef: c_e.
    """
    log_ratios = log_probs - old_log_probs
    ratios = log_ratios.exp()
    unclipped = -advantages * ratios
    clipped = -advantages * ratios.clamp(1.0 - clip_coef, 1.0 + clip_coef)
    policy_loss = torch.dot(torch.maximum(unclipped, clipped), weights)
    squares = (values - targets).square()
    if vf_clip_coef is not None:
        near = old_values + (values - old_values).clamp(-vf_clip_coef, vf_clip_coef)
        squares = torch.maximum(squares, (near - targets).square())
    value_loss = 0.5 * torch.dot(squares, weights)
    entropy = torch.dot(entropies, weights)
    total = policy_loss - ent_coef * entropy + vf_coef * value_loss
    with torch.no_grad():
        distances = ratios - 1.0
        kl = torch.dot(distances - log_ratios, weights)
        clip_fraction = torch.dot((distances.abs() > clip_coef).float(), weights)
        importance = torch.dot(ratios, weights)
        old_kl = -torch.dot(log_ratios, weights)
        statistics = torch.stack([policy_loss, value_loss, entropy, old_kl, kl, clip_fraction, importance]).detach()
    return Loss(total, statistics, ratios.detach(), values.detach())


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
