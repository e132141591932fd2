"""Spaces and stand-ins for envs that several test files use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from puffer_spaces import ActionLayout, Layout

MakeEnv = Callable[[spaces.Space[Any], spaces.Space[Any]], SimpleNamespace]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Small tensors gain nothing from threads, and lose much where other processes use the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _fixed_random_state() -> None:
    torch.manual_seed(0)


@pytest.fixture
def make_env() -> MakeEnv:
    """Build what a policy sees of an env: rows as the emulation of nested spaces makes them."""

    def build(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> SimpleNamespace:
        observation_layout, action_layout = Layout(observation_space), ActionLayout(action_space)
        return SimpleNamespace(
            single_observation_space=observation_layout.row_space,
            single_action_space=action_layout.row_space,
            observation_layout=observation_layout,
            action_layout=action_layout,
        )

    return build


@pytest.fixture
def sample_rows() -> Callable[[Layout, int], torch.Tensor]:
    """Draw rows of a layout as a tensor (rows, *row_shape)."""

    def sample(layout: Layout, num_rows: int) -> torch.Tensor:
        layout.space.seed(0)
        return torch.from_numpy(np.stack([layout.flatten(layout.space.sample()) for _ in range(num_rows)]))

    return sample


class Heads(nn.Module):
    """(logits, value) of five floats for three actions: the least that is a policy."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(5, 3), nn.Linear(5, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(observations), self.critic(observations)


@pytest.fixture
def heads() -> type[nn.Module]:
    """The class of the plainest policy of a user."""
    return Heads
