"""A network for target. It imports torch and puffer-policies, so it is only imported to train."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from puffer_policies import MLP, Policy, make_action_head

NUM_OWN = 6
"""Numbers about the agent itself, behind the ways: heading (cosine, sine), speed, last reward, place (x, y)."""
FIELD = (1080.0, 720.0)
"""Width and height of the plane, pixels: units of the ways."""
NEAR = 300.0
"""Pixels that count as 1 in the features."""


class WaysEncoder(nn.Module):
    """Reads the way to each goal by one small network, the way to each other agent by another, whatever their number.

    Ways are turned into the agent's own frame, ahead and aside, so that what is learned for one heading holds for all.
    Of the goals' features the largest count, of the agents' the mean.

    Args:
        num_goals: Goals in the plane.
        num_others: Other agents in the plane.
        hidden_size: Outputs.
        way_size: Features of a way.
    """

    scale: torch.Tensor

    def __init__(self, num_goals: int, num_others: int, hidden_size: int, way_size: int) -> None:
        super().__init__()
        self.num_goals, self.num_others = num_goals, num_others
        self.hidden_size, self.way_size = hidden_size, way_size
        self.goal = MLP(4, way_size, num_layers=2)
        self.other = MLP(4, way_size)
        own_size = (hidden_size + 1) // 2
        self.own = MLP(NUM_OWN, own_size)
        self.joint = MLP(2 * way_size + own_size, hidden_size)
        self.register_buffer("scale", torch.tensor(FIELD) / NEAR, persistent=False)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Map (rows, 2 * (num_goals + num_others) + NUM_OWN) to (rows, hidden_size)."""
        rows, num_ways = len(observations), self.num_goals + self.num_others
        own = observations[:, 2 * num_ways :]
        ways = observations[:, : 2 * num_ways].reshape(rows, num_ways, 2) * self.scale
        seen = _seen_from(ways, own[:, :1], own[:, 1:2])
        goals = self.goal(seen[:, : self.num_goals].reshape(-1, 4)).reshape(rows, self.num_goals, self.way_size)
        parts = [goals.amax(1), self.own(own)]
        if self.num_others:
            others = self.other(seen[:, self.num_goals :].reshape(-1, 4))
            parts.append(others.reshape(rows, self.num_others, self.way_size).mean(1))
        else:
            parts.append(torch.zeros(rows, self.way_size, dtype=goals.dtype, device=goals.device))
        return cast(torch.Tensor, self.joint(torch.cat(parts, 1)))


def _seen_from(ways: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Return direction ahead and aside, distance and nearness of each way, (rows, num_ways, 4).

    Args:
        ways: (rows, num_ways, 2), right and down, in units of `NEAR`.
        cosine: (rows, 1), of the heading.
        sine: (rows, 1).
    """
    right, down = ways.unbind(2)
    ahead, aside = right * cosine + down * sine, down * cosine - right * sine
    distance = (ahead.square() + aside.square() + 1e-6).sqrt()
    soft = distance + 0.1  # directions fade out where the agent has arrived
    return torch.stack([ahead / soft, aside / soft, distance, 1.0 / (distance + 0.3)], 2)


class TargetPolicy(Policy):
    """`WaysEncoder` with the heads of the env's action space.

    Args:
        env: The vector env, or a target env.
        hidden_size: Features.
        way_size: Features of the way to a goal or an agent.
    """

    def __init__(self, env: Any, hidden_size: int = 128, way_size: int = 32) -> None:
        (size,) = env.single_observation_space.shape
        num_others = env.num_agents // env.num_envs - 1
        num_goals = (size - NUM_OWN) // 2 - num_others
        head = make_action_head(env.single_action_space, env.action_layout)
        super().__init__(WaysEncoder(num_goals, num_others, hidden_size, way_size), head)
