"""Advantages and value targets of whole segments."""

from __future__ import annotations

import torch

from puffer_train.native import kernels

_EPSILON = 1e-8


def estimate_advantages(
    rewards: torch.Tensor,
    values: torch.Tensor,
    final_values: torch.Tensor,
    terminals: torch.Tensor,
    truncations: torch.Tensor,
    valid: torch.Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    ratios: torch.Tensor | None = None,
    rho_clip: float = 1.0,
    trace_clip: float = 1.0,
    advantages: torch.Tensor | None = None,
    targets: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimate advantages for the policy and targets for the values.

        v'ₜ = V(final observationₜ) where truncated, else vₜ₊₁
        δₜ = rₜ + γ (1 - termₜ) v'ₜ - vₜ                       nₜ = (1 - termₜ)(1 - truncₜ)
        Aₜ = δₜ + γ λ nₜ Dₜ₊₁                                   for the policy
        Dₜ = min(ρₜ, ρ̄) δₜ + γ λ nₜ min(ρₜ, c̄) Dₜ₊₁             target = vₜ + Dₜ

    With ratios ρ of 1, A = D is the generalised advantage estimate (Schulman et al. 2016, arXiv:1506.02438, equation
    16). Else D is V-trace's v_s - V (Espeholt et al. 2018, arXiv:1802.01561, equation 1, with λ). The ratio of a step's
    own action enters D but not A, because the policy loss multiplies A by that ratio itself. A step that is not valid
    has A = 0, target vₜ, and cuts the trace.

    Args:
        rewards: float32 (num_segments, horizon). rewards[:, t] follows the action of step t.
        values: float32 (num_segments, horizon + 1). The last column bootstraps.
        final_values: float32 (num_segments, horizon). Value of the observation in which a truncated episode ended.
        terminals: bool (num_segments, horizon). Wins over a truncation on the same step.
        truncations: bool (num_segments, horizon).
        valid: bool (num_segments, horizon). Whether the row acted on this step.
        gamma: Discount per step, in [0, 1].
        gae_lambda: 0 is one-step TD, 1 is Monte Carlo.
        ratios: float32 (num_segments, horizon), probability of each action now over that when it was taken.
            None: all 1, whatever the bounds.
        rho_clip: ρ̄, bound of the ratio that weighs a step's own error.
        trace_clip: c̄, bound of the ratio that weighs what follows.
        advantages: Written and returned where given; else a new tensor.
        targets: Written and returned where given; else a new tensor.

    Returns:
        `(advantages, targets)`, each float32 (num_segments, horizon), not normalised.

    Raises:
        ValueError: If the shapes do not agree.
    """
    shape = rewards.shape
    if values.shape != (shape[0], shape[1] + 1):
        raise ValueError(
            f"values must have one column more than rewards; got {tuple(values.shape)} and {tuple(shape)}. "
            "Append the value of the observation after the last step."
        )
    names = ("final_values", "terminals", "truncations", "valid", "ratios", "advantages", "targets")
    others = (final_values, terminals, truncations, valid, ratios, advantages, targets)
    for name, tensor in zip(names, others, strict=True):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} must have the shape of rewards, {tuple(shape)}; got {tuple(tensor.shape)}.")
    advantages = torch.empty_like(rewards) if advantages is None else advantages
    targets = torch.empty_like(rewards) if targets is None else targets
    native = kernels() if rewards.device.type == "cpu" else None
    arguments = (rewards, values, final_values, terminals, truncations, valid, ratios)
    scalars = (gamma, gae_lambda, rho_clip, trace_clip)
    if native is not None and all(x is None or x.is_contiguous() for x in (*arguments, advantages, targets)):
        arrays = [None if x is None else _as_array(x) for x in arguments]
        native.estimate_advantages(*arrays, *scalars, advantages.numpy(), targets.numpy())
    else:
        _estimate_by_columns(*arguments, *scalars, advantages, targets)
    return advantages, targets


def _as_array(tensor: torch.Tensor) -> object:
    return tensor.detach().view(torch.uint8 if tensor.dtype == torch.bool else tensor.dtype).numpy()


def _estimate_by_columns(
    rewards: torch.Tensor,
    values: torch.Tensor,
    final_values: torch.Tensor,
    terminals: torch.Tensor,
    truncations: torch.Tensor,
    valid: torch.Tensor,
    ratios: torch.Tensor | None,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    trace_clip: float,
    advantages: torch.Tensor,
    targets: torch.Tensor,
) -> None:
    zero = torch.zeros_like(rewards[:, 0])
    next_values = torch.where(truncations, final_values, values[:, 1:])
    deltas = rewards - values[:, :-1] + torch.where(terminals, 0.0, gamma * next_values)
    cut = terminals | truncations
    difference = zero
    for t in range(rewards.shape[1] - 1, -1, -1):
        delta = deltas[:, t]
        trace = torch.where(cut[:, t], zero, gamma * gae_lambda * difference)
        advantages[:, t] = torch.where(valid[:, t], delta + trace, zero)
        if ratios is None:
            difference = advantages[:, t]
        else:
            rho = ratios[:, t].clamp(max=rho_clip)
            c = ratios[:, t].clamp(max=trace_clip)
            difference = torch.where(valid[:, t], rho * delta + c * trace, zero)
        targets[:, t] = values[:, t] + difference


def masked_moments(x: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Return [count, sum, sum of squares] of the valid part of each row of `x`: float64 (num_rows, 3)."""
    kept = torch.where(valid, x, 0.0).double()
    return torch.stack([valid.sum(1).double(), kept.sum(1), (kept * kept).sum(1)], dim=1)


def normalize_advantages(advantages: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """Give the advantages of a group mean 0 and standard deviation 1.

    A single sample, or samples that are all equal, become 0: their standard deviation is 0, never undefined.

    Args:
        advantages: float32 (num_groups, group size). Those that are not valid may have any finite value.
        moments: float64 (num_groups, 3), `masked_moments` summed over processes.

    Returns:
        float32 (num_groups, group size).
    """
    count, total, squares = moments.unbind(1)
    mean = total / count.clamp(min=1.0)
    variance = ((squares - count * mean * mean) / (count - 1.0).clamp(min=1.0)).clamp(min=0.0)
    std = variance.sqrt()
    normalized: torch.Tensor = (advantages - mean.float()[:, None]) / (std.float()[:, None] + _EPSILON)
    return normalized
