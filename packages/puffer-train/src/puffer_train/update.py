"""One update of the policy from one rollout: advantages, minibatches, losses, optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch

from puffer_train.advantages import estimate_advantages, masked_moments, normalize_advantages
from puffer_train.agent_numbers import number_arguments
from puffer_train.config import TrainConfig
from puffer_train.distributed import Ranks
from puffer_train.errors import NonFiniteError, RunError
from puffer_train.experience import Experience
from puffer_train.losses import STATISTIC_NAMES, Loss, LossTerms, choice_loss, explained_variance, ppo_loss
from puffer_train.noise import permutation
from puffer_train.optim import Optimizer
from puffer_train.optim_host import clip_gradients
from puffer_train.sampling import loops_for

CPU_MICROBATCH_SIZE = 4096
"""Rows whose activations stay in a core's cache: a third faster than minibatches of 32768 at once (width 128)."""

CPU_MEMORY_MICROBATCH_SIZE = 32768
"""The same for a policy with memory. It multiplies the rows of one time step at once, which must not be few."""

ORDERED_AT_ONCE_BYTES = 1 << 22
"""Size up to which a pass takes all units in order at once: small operations take longer to begin than to copy."""


@dataclass
class Learner:
    """What an update needs beside the experience.

    Attributes:
        policy: Adapted policy: `forward_sequence`, `action_head`.
        parameters: Those that the optimizer updates.
        optimizer: Takes the steps.
        normalize: Applied to observations on their way to the policy.
        autocast: Makes the context in which the policy runs.
        ranks: The processes that update together.
        forward: `policy.forward_sequence`, compiled where asked for.
    """

    policy: Any
    parameters: Sequence[torch.nn.Parameter]
    optimizer: Optimizer
    normalize: Callable[[torch.Tensor], torch.Tensor]
    autocast: Callable[[], AbstractContextManager[Any]]
    ranks: Ranks
    forward: Callable[..., tuple[torch.Tensor, torch.Tensor]]


class Units(NamedTuple):
    """The experience cut into what is shuffled: segments or single transitions, each (num_units, unit length, ...).

    The states and the numbers of the agents are (num_units, ...). `targets` are those of the update.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    targets: torch.Tensor
    resets: torch.Tensor
    agent_numbers: torch.Tensor
    action_mask: torch.Tensor | None
    states: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, experience: Experience, targets: torch.Tensor, unit: str) -> Self:
        """Cut a full experience into units of a kind, `segment` or `transition`."""
        length = experience.horizon if unit == "segment" else 1

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.reshape(-1, length, *tensor.shape[2:])

        return cls(
            observations=cut(experience.observations),
            actions=cut(experience.actions),
            log_probs=cut(experience.log_probs),
            values=cut(experience.values[:, :-1]),
            targets=cut(targets),
            resets=cut(experience.resets[:, :-1]),
            agent_numbers=experience.agent_numbers.repeat_interleave(experience.horizon // length),
            action_mask=None if experience.action_mask is None else cut(experience.action_mask),
            states=experience.states if unit == "segment" else (),
        )

    def take(self, index: slice | torch.Tensor) -> Self:
        """Return some of the units."""

        def pick(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[index] if isinstance(index, slice) else tensor.index_select(0, index.to(tensor.device))

        *plain, action_mask, states = self
        picked_mask = None if action_mask is None else pick(action_mask)
        return type(self)._make([*map(pick, plain), picked_mask, tuple(map(pick, states))])

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        *plain, action_mask, states = self
        return sum(tensor.nbytes for tensor in (*plain, *states, *([] if action_mask is None else [action_mask])))


class Update:
    """Clipped PPO over the passes of one update. Made anew for each update.

    Args:
        learner: Policy, optimizer and the like.
        experience: Filled by a rollout.
        config: Resolved.
        rewards: float32 (num_segments, horizon), as they are learned from: clipped and scaled.
        ent_coef: Weight of the entropy in this update.
        progress: Part of the run that was done before this update.
        epoch: Number of this update, from 0; with the seed it fixes the order of minibatches.
    """

    def __init__(
        self,
        learner: Learner,
        experience: Experience,
        config: TrainConfig,
        *,
        rewards: torch.Tensor,
        ent_coef: float,
        progress: float,
        epoch: int,
    ) -> None:
        self.learner = learner
        self.experience = experience
        self.config = config
        self.rewards = rewards
        self.ent_coef = ent_coef
        self.progress = progress
        self.epoch = epoch
        self.advantages = torch.empty_like(experience.rewards)
        self.targets = torch.empty_like(experience.rewards)
        self.units = Units.of(experience, self.targets, config.minibatch_unit)
        self.num_units, self.unit_length = self.units.log_probs.shape
        assert config.batch_size is not None
        assert config.minibatch_size is not None
        self.units_per_minibatch = config.minibatch_size // (config.unit_size * learner.ranks.world_size)
        self.minibatches_per_pass = self.num_units // self.units_per_minibatch
        device = experience.values.device
        self.microbatch_size = config.microbatch_size or config.minibatch_size
        if config.microbatch_size is None and device.type == "cpu":
            self.microbatch_size = CPU_MEMORY_MICROBATCH_SIZE if learner.policy.is_recurrent else CPU_MICROBATCH_SIZE
        self.units_per_microbatch = max(1, self.microbatch_size // config.unit_size)
        self._order: torch.Tensor | None = None
        self._ordered_units: Units | None = None
        self._num_valid: list[float] = []
        self._statistics = torch.zeros(len(STATISTIC_NAMES), device=device)
        self._gradient_norm = torch.zeros((), device=device)
        self._num_steps = 0

    def run(self) -> dict[str, float]:
        """Run all passes and return means of what happened, by name.

        Raises:
            NonFiniteError: If a loss or gradient was not finite.
        """
        num_minibatches = max(1, int(self.config.update_epochs * self.minibatches_per_pass + 1e-9))
        variance = torch.zeros(())
        for index in range(num_minibatches):
            pass_index, minibatch = divmod(index, self.minibatches_per_pass)
            if minibatch == 0:
                self._begin_pass(pass_index)
                if pass_index == 0:
                    variance = self._explained_variance()
            if not self._step(minibatch):
                break
        return self._report(variance)

    def _begin_pass(self, pass_index: int) -> None:
        """Bring the advantages up to date, normalise them, and draw the order of the units."""
        if pass_index == 0:
            self._estimate(self.experience.values, None)
        elif self.config.recompute_advantages == "epoch":
            self._estimate(*self._current_values_and_ratios())
        self._order = self._draw_order(pass_index)
        shape = (self.num_units, self.unit_length)
        advantages, valid = self.advantages.view(shape), self.experience.valid.view(shape)
        if self._order is None:
            self._ordered_units = self.units
        else:
            advantages, valid = advantages.index_select(0, self._order), valid.index_select(0, self._order)
            is_few = self.units.nbytes <= ORDERED_AT_ONCE_BYTES
            self._ordered_units = self.units.take(self._order) if is_few else None
        groups = self.minibatches_per_pass
        advantages, valid = advantages.reshape(groups, -1), valid.reshape(groups, -1)
        moments = self.learner.ranks.sum_(masked_moments(advantages, valid))
        self._num_valid = moments[:, 0].tolist()
        counts = moments[:, 0].clamp(min=1.0)
        weights = (valid / counts[:, None]).float()
        if self.config.normalize_advantages == "batch":
            moments = moments.sum(0, keepdim=True).expand(groups, 3)
        if self.config.normalize_advantages != "none":
            advantages = normalize_advantages(advantages, moments)
        # From here on both are in the order of the minibatches.
        self._ordered_advantages = advantages.reshape(shape)
        self._ordered_weights = weights.reshape(shape)

    def _estimate(self, values: torch.Tensor, ratios: torch.Tensor | None) -> None:
        experience, config = self.experience, self.config
        estimate_advantages(
            self.rewards,
            values,
            experience.final_values,
            experience.terminals,
            experience.truncations,
            experience.valid,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            ratios=ratios,
            rho_clip=config.rho_clip,
            trace_clip=config.trace_clip,
            advantages=self.advantages,
            targets=self.targets,
        )

    @torch.no_grad()
    def _current_values_and_ratios(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return values of all observations and ratios of all actions under the policy as it is now."""
        experience = self.experience
        values, ratios = torch.empty_like(experience.values), torch.empty_like(experience.log_probs)
        at_once = max(1, self.microbatch_size // experience.horizon)
        for first in range(0, experience.num_segments, at_once):
            part = slice(first, first + at_once)
            observations = torch.cat([experience.observations[part], experience.next_observations[part, None]], dim=1)
            state = tuple(stored[part] for stored in experience.states)
            parameters, part_values = self._forward(
                observations, state, experience.resets[part], experience.agent_numbers[part]
            )
            parameters = parameters.view(*part_values.shape, -1)[:, :-1].flatten(0, 1)
            mask = None if experience.action_mask is None else experience.action_mask[part].flatten(0, 1)
            actions = experience.actions[part].flatten(0, 1)
            log_probs = self.learner.policy.action_head.log_prob(parameters, actions, mask)
            values[part] = part_values
            ratios[part] = (log_probs.view(-1, experience.horizon) - experience.log_probs[part]).exp()
        return values, ratios

    def _draw_order(self, pass_index: int) -> torch.Tensor | None:
        """Return the units in the order of their minibatches; None where one minibatch takes all as they are."""
        if self.minibatches_per_pass == 1:
            return None
        blocks = self.config.segment_blocks
        ranks = self.learner.ranks
        size = self.num_units // blocks
        orders = [
            torch.from_numpy(permutation(self.config.seed, self.epoch, pass_index, ranks.rank * blocks + block, size))
            + block * size
            for block in range(blocks)
        ]
        # Each minibatch takes its share of every block.
        shares = [order.view(self.minibatches_per_pass, -1) for order in orders]
        return torch.cat(shares, dim=1).flatten().to(self.rewards.device)

    def _step(self, minibatch: int) -> bool:
        """Take one optimizer step. Return False, without the step, if the policy is too far from the rollout's.

        A minibatch of padding alone teaches nothing: momentum and weight decay would move the weights all the same.
        """
        if not self._num_valid[minibatch]:
            return True
        statistics = torch.zeros_like(self._statistics)
        first = minibatch * self.units_per_minibatch
        for start in range(first, first + self.units_per_minibatch, self.units_per_microbatch):
            stop = min(start + self.units_per_microbatch, first + self.units_per_minibatch)
            loss = self._loss(slice(start, stop))
            if not loss.total.requires_grad:
                raise RunError(
                    "the policy's outputs must depend on its parameters; no gradient leads to any. "
                    "Return them without detach, no_grad or whole numbers."
                )
            loss.total.backward()
            statistics += loss.statistics
        learner = self.learner
        if (
            self.config.target_kl is not None
            and self.config.target_kl < learner.ranks.sum_(statistics.clone())[4].item()
        ):
            learner.optimizer.zero_grad()
            return False
        learner.ranks.sum_gradients_(learner.parameters)
        norm = clip_gradients(learner.parameters, self.config.max_grad_norm)
        learner.optimizer.step()
        learner.optimizer.zero_grad()
        self._statistics += statistics
        self._gradient_norm += norm
        self._num_steps += 1
        return True

    def _loss(self, part: slice) -> Loss:
        """Return the loss of a part of the ordered units."""
        if self._ordered_units is not None:
            units = self._ordered_units.take(part)
        else:
            assert self._order is not None
            units = self.units.take(self._order[part])
        parameters, values = self._forward(units.observations, units.states, units.resets, units.agent_numbers)
        actions = units.actions.flatten(0, 1)
        mask = None if units.action_mask is None else units.action_mask.flatten(0, 1)
        terms: LossTerms = {
            "old_log_probs": units.log_probs.flatten(),
            "old_values": units.values.flatten(),
            "advantages": self._ordered_advantages[part].flatten(),
            "targets": units.targets.flatten(),
            "weights": self._ordered_weights[part].flatten(),
            "clip_coef": self.config.clip_coef,
            "vf_coef": self.config.vf_coef,
            "vf_clip_coef": self.config.vf_clip_coef,
            "ent_coef": self.ent_coef,
        }
        head = self.learner.policy.action_head
        native = loops_for(head, parameters) if mask is None else None
        if native is not None:
            return choice_loss(parameters, actions, values.flatten(), **terms, native=native)
        log_probs, entropies = head.log_prob_and_entropy(parameters, actions, mask)
        return ppo_loss(log_probs, entropies, values.flatten(), **terms)

    def _forward(
        self,
        observations: torch.Tensor,
        state: Sequence[torch.Tensor],
        resets: torch.Tensor,
        agent_numbers: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (action parameters (num_units * length, P), values (num_units, length)) in float32."""
        observations = observations.to(resets.device, non_blocking=True)
        numbers = number_arguments(self.learner.policy, agent_numbers)
        with self.learner.autocast():
            inputs = self.learner.normalize(observations)
            parameters, values = self.learner.forward(inputs, tuple(state), resets, *numbers)
        return parameters.float(), values.float().view(observations.shape[:2])

    def _explained_variance(self) -> torch.Tensor:
        """Return how much of the targets the values of the rollout explain."""
        valid = self.experience.valid.view(1, -1)
        residuals = self.targets - self.experience.values[:, :-1]
        moments = [masked_moments(x.view(1, -1), valid) for x in (self.targets, residuals)]
        return explained_variance(*map(self.learner.ranks.sum_, moments))

    def _report(self, variance: torch.Tensor) -> dict[str, float]:
        num_steps = max(self._num_steps, 1)
        sums = self.learner.ranks.sum_(self._statistics) / num_steps
        numbers = torch.cat(
            [sums, (self._gradient_norm / num_steps).view(1), variance.view(1).to(sums.device)]
        ).tolist()
        report = dict(zip((*STATISTIC_NAMES, "grad_norm", "explained_variance"), numbers, strict=True))
        report["num_minibatches"] = float(self._num_steps)
        for name, value in report.items():
            if not math.isfinite(value) and name != "explained_variance":
                raise NonFiniteError(
                    f"losses and gradients must be finite; got {name}={value} in update {self.epoch + 1}. "
                    "The update diverged: lower learning_rate or max_grad_norm, and resume from an earlier checkpoint."
                )
        return report
