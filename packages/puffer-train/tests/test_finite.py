"""What counts as finite, and what nobody looks at."""

import numpy as np
import pytest
import torch

from puffer_train.errors import NonFiniteError
from puffer_train.finite import RowPlaces, check_outputs, check_rewards


def places(num_rows):
    return RowPlaces(np.arange(num_rows), np.full(num_rows, 7), agents_per_world=2)


@pytest.mark.parametrize("rubbish", [[np.nan, 0.0], [np.inf, -np.inf], [3e38, 3e38]])
def test_rows_without_an_agent_may_hold_anything(rubbish):
    rewards = np.array([*rubbish, 1.0], np.float32)

    check_rewards(rewards, np.array([False, False, True]), places(3))


def test_finite_rewards_whose_sum_overflows_are_finite():
    check_rewards(np.full(3, 3e38, np.float32), np.ones(3, bool), places(3))


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_b18_a_reward_is_named_with_world_agent_and_step(reward):
    rewards = np.array([1.0, 1.0, 1.0, reward], np.float32)

    with pytest.raises(NonFiniteError, match=r"rewards must be finite.*env 1, agent 1, at step 7"):
        check_rewards(rewards, np.ones(4, bool), places(4))


def test_a_forbidden_choice_is_finite_and_an_impossible_one_is_not():
    observations, values = torch.zeros(2, 3), torch.zeros(2)
    check_outputs(observations, values, torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), places(2))

    with pytest.raises(NonFiniteError, match="the policy's outputs"):
        check_outputs(observations, values, torch.tensor([[0.0, 0.0], [0.0, torch.inf]]), places(2))
