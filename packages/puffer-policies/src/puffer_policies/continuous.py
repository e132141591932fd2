"""Heads for Box actions: Normal, tanh-Normal and Beta."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import distributions
from torch.nn import functional

from puffer_policies.heads import ONE_BELOW, ActionHead

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
NORMAL_ENTROPY = 0.5 + LOG_SQRT_2PI
"""Entropy of a Normal with deviation 1, in nats."""

EDGE = 1e-6
"""Bounded actions stay so far inside their range of 1: float32 cannot tell densities apart that are nearer."""

OUTER_EDGE, INNER_EDGE = 1.0 - 2.0 * EDGE, 1.0 - 4.0 * EDGE
"""Samples of a tanh-Normal are clamped to the first; from the second on they count as the tail. Between the two lies
the rounding of actions that are scaled to bounds and back."""

MAX_RANGE = 1e6
"""Bounds further apart than this say "no bound": actions are then not scaled to them."""

BETA_TRIES = 4
"""Tries of the rejection sampler for a Gamma; each fails with probability below 0.05, so all do once in 160,000."""


class BoxHead(ActionHead):
    """What heads for a Box share: independent elements, bounds, and a scale that takes [-1, 1] to them.

    Args:
        low: Lower bound of each element; -inf where there is none.
        high: Upper bound of each element; inf where there is none.
        action_shape: Shape of an action.
        action_dtype: Dtype of actions.
        rescale: Whether [-1, 1] of the distribution stands for the bounds of the elements that have both.
        state_dependent_std: Whether the policy's network computes the second half of the parameters too.
    """

    low: Tensor
    high: Tensor
    half_range: Tensor | None
    center: Tensor | None

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        action_shape: tuple[int, ...] | None = None,
        action_dtype: torch.dtype = torch.float32,
        *,
        rescale: bool = True,
        state_dependent_std: bool = False,
    ) -> None:
        super().__init__()
        lows, highs = np.asarray(low, np.float64).ravel(), np.asarray(high, np.float64).ravel()
        self.size = len(lows)
        self.num_parameters = 2 * self.size
        self.num_free = 0 if state_dependent_std else self.size
        self.num_noise = self.size
        self.action_shape = (self.size,) if action_shape is None else action_shape
        self.action_dtype = action_dtype
        with np.errstate(over="ignore", invalid="ignore"):
            bounded = (highs > lows) & (highs - lows <= MAX_RANGE)
        self.is_bounded = bool(bounded.all())
        bottom, top = np.where(bounded, lows, -1.0), np.where(bounded, highs, 1.0)
        half_range, center = (top - bottom) / 2, (top + bottom) / 2
        is_scaled = rescale and bool((half_range != 1.0).any() or (center != 0.0).any())
        self.clips = bool(np.isfinite(lows).any() or np.isfinite(highs).any())
        self.log_volume = float(np.log(half_range).sum()) if is_scaled else 0.0
        for name, values in (("low", lows), ("high", highs)):
            self.register_buffer(name, torch.from_numpy(values).float(), persistent=False)
        for name, values in (("half_range", half_range), ("center", center)):
            self.register_buffer(name, torch.from_numpy(values).float() if is_scaled else None, persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move the bounds with the module, but keep them float32: half precision would round them."""
        exact = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in exact.items():
            setattr(self, name, buffer.to(getattr(self, name).device))
        return self

    def env_actions(self, actions: Tensor) -> Tensor:
        """Clip actions to the bounds of the Box."""
        if not self.clips:
            return actions
        rows = actions.reshape(len(actions), self.size)
        clipped = torch.maximum(torch.minimum(rows, self.high.to(rows.dtype)), self.low.to(rows.dtype))
        return clipped.reshape(actions.shape)

    def _log_prob_and_entropy(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._log_prob(parameters, actions, mask), self._entropy(parameters, mask)

    def _log_prob(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return self._log_density(self._halves(parameters), self._to_unit(actions)).sum(1) - self.log_volume

    def _entropy(self, parameters: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return self._entropies(self._halves(parameters)).sum(1) + self.log_volume

    def _sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return self._to_actions(self._draw(self._halves(parameters), noise))

    def _mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return self._to_actions(self._modes(self._halves(parameters)))

    def _halves(self, parameters: Tensor) -> Pair:
        return parameters[:, : self.size], parameters[:, self.size :]

    def _to_unit(self, actions: Tensor) -> Tensor:
        values = actions.reshape(actions.shape[0], self.size).float()
        return values if self.center is None or self.half_range is None else (values - self.center) / self.half_range

    def _to_actions(self, values: Tensor) -> Tensor:
        if self.center is not None and self.half_range is not None:
            values = torch.addcmul(self.center, values, self.half_range)
        return values.to(self.action_dtype).reshape(-1, *self.action_shape)

    def _draw(self, halves: Pair, noise: Tensor) -> Tensor:
        raise NotImplementedError

    def _modes(self, halves: Pair) -> Tensor:
        raise NotImplementedError

    def _log_density(self, halves: Pair, values: Tensor) -> Tensor:
        raise NotImplementedError

    def _entropies(self, halves: Pair) -> Tensor:
        raise NotImplementedError


class NormalHead(BoxHead):
    """Independent Normals. Parameters: means, then logarithms of deviations, (rows, 2 * size).

    Samples are not bounded; `env_actions` clips what the env is sent, the log-probability is that of the sample.
    """

    def _draw(self, halves: Pair, noise: Tensor) -> Tensor:
        mean, log_std = halves
        return torch.addcmul(mean, log_std.exp(), standard_normal(noise))

    def _modes(self, halves: Pair) -> Tensor:
        return halves[0]

    def _log_density(self, halves: Pair, values: Tensor) -> Tensor:
        mean, log_std = halves
        return -0.5 * ((values - mean) * torch.exp(-log_std)).square() - log_std - LOG_SQRT_2PI

    def _entropies(self, halves: Pair) -> Tensor:
        return halves[1] + NORMAL_ENTROPY

    def _to_parameters(self, output: Any) -> Tensor:
        normal = output.base_dist if isinstance(output, distributions.Independent) else output
        if isinstance(normal, distributions.Normal):
            output = (normal.mean, normal.stddev)
        if not isinstance(output, tuple | list) or len(output) != 2:
            raise self.unfit(output)
        mean, std = output
        if not isinstance(mean, Tensor) or not isinstance(std, Tensor) or mean.ndim < 2:
            raise self.unfit(output)
        mean = mean.flatten(1)
        std = std.flatten(1) if std.ndim > 1 else std.reshape(1, -1)
        if mean.shape[1] != self.size or std.shape[1] not in (1, self.size) or std.shape[0] not in (1, len(mean)):
            raise self.unfit(output)
        return torch.cat([mean, torch.log(std).expand_as(mean)], 1)

    def expected(self) -> str:
        """Say in words what a policy returns for this head."""
        return f"mean and standard deviation, each (rows, {self.size}), the deviation perhaps (1, {self.size})"


class TanhNormalHead(BoxHead):
    """Normals squashed by tanh into the bounds. Parameters as for `NormalHead`, before the squashing.

        y = tanh(x)    log p(y) = log N(x) - log(1 - y²)

    Haarnoja et al. 2018, appendix C (https://arxiv.org/abs/1801.01290). Float32 has no numbers for the tails: samples
    beyond |x| = 6.6 are one action each side, whose probability is that of the whole tail, so that gradients stay those
    of what is sampled. The entropy has no closed form; 16 nodes of Gauss-Hermite are exact to 0.02 for deviations of x
    up to e, to 3 % beyond. `mode` is the squashed mean, the median of the distribution.
    """

    nodes: Tensor
    node_weights: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _require_bounds(self, "tanh_normal")
        nodes, weights = np.polynomial.hermite_e.hermegauss(16)
        self.register_buffer("nodes", torch.from_numpy(nodes).float(), persistent=False)
        self.register_buffer(
            "node_weights", torch.from_numpy(weights / math.sqrt(2 * math.pi)).float(), persistent=False
        )

    def _draw(self, halves: Pair, noise: Tensor) -> Tensor:
        mean, log_std = halves
        x = torch.addcmul(mean, log_std.exp(), standard_normal(noise))
        return torch.tanh(x).clamp(-OUTER_EDGE, OUTER_EDGE)

    def _modes(self, halves: Pair) -> Tensor:
        return torch.tanh(halves[0])

    def _log_density(self, halves: Pair, values: Tensor) -> Tensor:
        mean, log_std = halves
        x = torch.atanh(values.clamp(-INNER_EDGE, INNER_EDGE))
        z = (x - mean) * torch.exp(-log_std)
        density = -0.5 * z.square() - log_std - LOG_SQRT_2PI - _log_slope(x)
        tail = torch.special.log_ndtr(-z * torch.sign(x))
        return torch.where(values.abs() < INNER_EDGE, density, tail)

    def _entropies(self, halves: Pair) -> Tensor:
        mean, log_std = halves
        x = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * self.nodes
        return log_std + NORMAL_ENTROPY + (_log_slope(x) * self.node_weights).sum(-1)


class BetaHead(BoxHead):
    """Betas stretched over the bounds. Parameters: those of alpha, then those of beta, (rows, 2 * size).

        alpha = 1 + softplus(a)    beta = 1 + softplus(b)

    Both are above 1, so the density has one peak and is 0 at the bounds. Chou et al. 2017, "Improving stochastic policy
    gradients in continuous control with deep reinforcement learning using the Beta distribution" (ICML).
    Samples are X / (X + Y) of two Gammas by Marsaglia & Tsang 2000, "A simple method for generating gamma variables",
    with a fixed number of tries.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _require_bounds(self, "beta")
        self.num_free = 0
        self.num_noise = self.size * 2 * BETA_TRIES * 2

    def _draw(self, halves: Pair, noise: Tensor) -> Tensor:
        alpha, beta = _concentrations(halves)
        noise = noise.view(len(noise), self.size, 2, BETA_TRIES, 2)
        x, y = _gamma(alpha, noise[:, :, 0]), _gamma(beta, noise[:, :, 1])
        return (x / (x + y)).clamp(EDGE, 1 - EDGE) * 2.0 - 1.0

    def _modes(self, halves: Pair) -> Tensor:
        # (alpha - 1) / (alpha + beta - 2), and the middle where both are 1.
        left, right = (functional.softplus(half) + EDGE for half in halves)
        return left / (left + right) * 2.0 - 1.0

    def _log_density(self, halves: Pair, values: Tensor) -> Tensor:
        alpha, beta = _concentrations(halves)
        share = ((values + 1.0) * 0.5).clamp(EDGE, 1 - EDGE)
        powers = torch.xlogy(alpha - 1.0, share) + (beta - 1.0) * torch.log1p(-share)
        return powers - _log_beta(alpha, beta) - math.log(2.0)

    def _entropies(self, halves: Pair) -> Tensor:
        alpha, beta = _concentrations(halves)
        total = alpha + beta
        spread = (alpha - 1.0) * torch.digamma(alpha) + (beta - 1.0) * torch.digamma(beta)
        return _log_beta(alpha, beta) - spread + (total - 2.0) * torch.digamma(total) + math.log(2.0)


def standard_normal(noise: Tensor) -> Tensor:
    """Turn uniform numbers k / 2^24 into Normal ones by the inverse distribution at the middle of [k, k + 1) / 2^24.

    The middle is exact in float32 and never 0 or 1; the largest result is 5.4 in size.
    """
    return torch.erfinv(2.0 * noise - ONE_BELOW) * math.sqrt(2.0)


def _gamma(concentration: Tensor, noise: Tensor) -> Tensor:
    """Draw Gammas of concentration >= 1: (rows, size) from noise (rows, size, tries, 2)."""
    d = (concentration - 1.0 / 3.0).unsqueeze(-1)
    normal = standard_normal(noise[..., 0])
    v = (1.0 + normal / torch.sqrt(9.0 * d)).clamp_min(1e-6).pow(3)
    accepted = torch.log1p(-noise[..., 1]) < 0.5 * normal.square() + d * (1.0 - v + torch.log(v))
    first = accepted.to(torch.uint8).argmax(-1, keepdim=True)
    return (d * v).gather(-1, first).squeeze(-1)


def _concentrations(halves: Pair) -> Pair:
    return 1.0 + functional.softplus(halves[0]), 1.0 + functional.softplus(halves[1])


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)


def _log_slope(x: Tensor) -> Tensor:
    """Compute log(1 - tanh(x)²) without cancellation."""
    return 2.0 * (math.log(2.0) - x - functional.softplus(-2.0 * x))


def _require_bounds(head: BoxHead, name: str) -> None:
    if not head.is_bounded:
        raise ValueError(
            f"distribution {name!r} needs a Box with low < high, at most {MAX_RANGE:,.0f} apart; got "
            f"low {head.low.tolist()}, high {head.high.tolist()}. Use 'normal', or declare such bounds."
        )
