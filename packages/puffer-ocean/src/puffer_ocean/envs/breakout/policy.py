"""A network for breakout. It imports torch and puffer-policies, so it is only imported to train."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from puffer_policies import MLP, Policy, make_action_head

FIRST_BRICK = 10
"""Index of the first brick in the observation; before it are paddle, ball and counters."""


class WallEncoder(nn.Module):
    """Reads the ball and the wall apart, and joins them afterwards.

    What the paddle has to do depends on a few numbers about the ball. In one layer with the bricks, every brick that
    breaks moves the features that follow the ball, and a wall nearly cleared is unlike any seen before.

    Args:
        num_bricks: Bricks of the wall.
        hidden_size: Features of the ball, and outputs.
        wall_size: Features of the wall.
    """

    def __init__(self, num_bricks: int, hidden_size: int, wall_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.ball = MLP(FIRST_BRICK, hidden_size)
        self.wall = MLP(num_bricks, wall_size)
        self.joint = MLP(hidden_size + wall_size, hidden_size)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Map (rows, FIRST_BRICK + num_bricks) to (rows, hidden_size)."""
        ball, bricks = observations[:, :FIRST_BRICK], observations[:, FIRST_BRICK:]
        return cast(torch.Tensor, self.joint(torch.cat([self.ball(ball), self.wall(bricks)], 1)))


class BreakoutPolicy(Policy):
    """`WallEncoder` with the heads of the env's action space.

    Args:
        env: The vector env, or a breakout env.
        hidden_size: Features.
        wall_size: Features of the wall.
    """

    def __init__(self, env: Any, hidden_size: int = 128, wall_size: int = 32) -> None:
        (size,) = env.single_observation_space.shape
        head = make_action_head(env.single_action_space, env.action_layout)
        super().__init__(WallEncoder(size - FIRST_BRICK, hidden_size, wall_size), head)
