"""Rewards as they are learned from."""

from __future__ import annotations

import math
from typing import Any

import torch

from puffer_train.distributed import Ranks
from puffer_train.experience import Experience

_MIN_SCALE = 1e-4


class ReturnScale:
    """Root mean square of discounted returns, by which rewards are divided.

    The return is that of the past, G = γ G + r, restarted with each episode: it needs no value estimate, so an error of
    the values cannot feed back into their scale. The mean square, not the variance: constant returns have no variance.

    Args:
        num_agents: Rows whose returns run on from rollout to rollout.
        device: Where the rollouts are.
    """

    def __init__(self, num_agents: int, device: torch.device | str = "cpu") -> None:
        self.returns = torch.zeros(num_agents, device=device)
        self.mean_square = 0.0
        self.count = 0.0

    @property
    def scale(self) -> float:
        """What a reward is divided by; 1 until a reward was seen."""
        return max(math.sqrt(self.mean_square), _MIN_SCALE) if self.mean_square > 0.0 else 1.0

    def update(
        self, experience: Experience, *, gamma: float, reward_clip: float | None, ranks: Ranks | None = None
    ) -> None:
        """Take the rewards of a rollout into the scale.

        Args:
            experience: A full experience.
            gamma: Discount per step.
            reward_clip: Bound of a reward's absolute value, or None.
            ranks: Processes whose rewards count together.
        """
        # Steps lead: each is one operation on all agents.
        rewards = experience.agent_steps("rewards").T.contiguous()
        if reward_clip is not None:
            rewards = rewards.clamp(-reward_clip, reward_clip)
        valid = experience.agent_steps("valid").T.contiguous()
        ended = experience.agent_steps("terminals") | experience.agent_steps("truncations")
        restarts = ended.T | ~valid
        squares = torch.zeros_like(self.returns, dtype=torch.float64)
        for reward, weight, restart in zip(rewards, valid.float(), restarts, strict=True):
            self.returns.mul_(gamma).add_(reward)
            squares += self.returns * self.returns * weight
            self.returns.masked_fill_(restart, 0.0)
        totals = torch.stack([squares.sum(), valid.sum().double()])
        if ranks is not None:
            ranks.sum_(totals)
        total, count = totals.tolist()
        if count:
            self.count += count
            self.mean_square += (total - count * self.mean_square) / self.count

    def apply(self, rewards: torch.Tensor, reward_clip: float | None) -> torch.Tensor:
        """Return rewards as values learn them: clipped, then divided by the scale."""
        if reward_clip is not None:
            rewards = rewards.clamp(-reward_clip, reward_clip)
        return rewards if self.scale == 1.0 else rewards / self.scale

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and the returns of unfinished episodes."""
        return {"returns": self.returns.clone(), "mean_square": self.mean_square, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state that `state_dict` returned."""
        if state["returns"].shape == self.returns.shape:
            self.returns.copy_(state["returns"])
        self.mean_square = float(state["mean_square"])
        self.count = float(state["count"])
