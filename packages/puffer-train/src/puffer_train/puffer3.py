"""The objective of PufferLib 3.0, for comparisons. Where it differs from ours it is kept as it was, faults included.

- The last transition of each segment has no advantage; truncations neither bootstrap nor cut.
- Before every minibatch the advantages of all segments are computed with the stored ratios, which weigh the policy's
  advantage too, though the surrogate applies the ratio again.
- Segments are drawn without replacement, by priority (Σ|A|)^α, and weighted by (S p)^-β, which assumes replacement; the
  exponent grows only to β + (1 - β) α.
- After each minibatch the stored values and ratios of its segments are replaced by the new ones; values are clipped
  against the replaced ones, and policy ratios against the rollout's.
"""

from __future__ import annotations

import torch

from puffer_train.advantages import estimate_advantages, masked_moments, normalize_advantages
from puffer_train.losses import Loss
from puffer_train.noise import uniforms
from puffer_train.update import Update


class Puffer3Update(Update):
    """An update by PufferLib 3.0's objective. Single process, segments only."""

    def run(self) -> dict[str, float]:
        """Run the minibatches and return means of what happened, by name."""
        experience = self.experience
        self._values = experience.values.clone()
        self.units = self.units._replace(values=self._values[:, :-1])
        self._ratios = torch.ones_like(experience.log_probs)
        self._used = experience.valid.clone()
        self._used[:, -1] = False
        self._estimate(self._values, self._ratios)
        variance = self._explained_variance()
        num_minibatches = max(1, int(self.config.update_epochs * self.minibatches_per_pass + 1e-9))
        for index in range(num_minibatches):
            self._estimate(self._values, self._ratios)
            self._draw(index)
            if not self._step(0):
                break
        return self._report(variance)

    def _estimate(self, values: torch.Tensor, ratios: torch.Tensor | None) -> None:
        experience, config = self.experience, self.config
        _, targets = estimate_advantages(
            self.rewards,
            values,
            experience.final_values,
            experience.terminals,
            torch.zeros_like(experience.truncations),
            self._used,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            ratios=ratios,
            rho_clip=config.rho_clip,
            trace_clip=config.trace_clip,
            advantages=self.advantages,
            targets=self.targets,
        )
        torch.sub(targets, values[:, :-1], out=self.advantages)

    def _draw(self, index: int) -> None:
        """Draw the segments of one minibatch and weigh their normalised advantages."""
        config = self.config
        priorities = self.advantages.abs().sum(1) ** config.priority_alpha
        priorities = torch.nan_to_num(priorities, 0.0, 0.0, 0.0)
        probabilities = (priorities + 1e-6) / (priorities.sum() + 1e-6)
        noise = torch.from_numpy(uniforms(config.seed, self.epoch, index, len(probabilities)))
        # The k largest of log p + Gumbel noise are k draws without replacement by p.
        gumbel = -torch.log(-torch.log(noise.to(probabilities.device).clamp(1e-12, 1.0 - 1e-7)))
        self._order = torch.topk(probabilities.log() + gumbel, self.units_per_minibatch).indices
        beta = config.priority_beta + (1.0 - config.priority_beta) * config.priority_alpha * self.progress
        weights = (len(probabilities) * probabilities[self._order]) ** -beta
        advantages, valid = self.advantages[self._order], self.experience.valid[self._order]
        moments = masked_moments(advantages.reshape(1, -1), valid.reshape(1, -1))
        normalized = normalize_advantages(advantages.reshape(1, -1), moments).view_as(advantages)
        self._ordered_advantages = normalized * weights[:, None]
        self._ordered_weights = (valid / moments[0, 0].clamp(min=1.0)).float()
        self._num_valid = moments[:, 0].tolist()

    def _loss(self, part: slice) -> Loss:
        loss = super()._loss(part)
        assert self._order is not None
        index = self._order[part]
        self._values[index, :-1] = loss.values.view(len(index), -1)
        self._ratios[index] = loss.ratios.view(len(index), -1)
        return loss
