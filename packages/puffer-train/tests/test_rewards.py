"""The scale of returns, by hand."""

import math

import pytest
import torch

from puffer_train.experience import Experience
from puffer_train.rewards import ReturnScale


def experience_of(rewards, terminals=(), invalid=()):
    """One agent, one segment."""
    experience = Experience(
        num_agents=1,
        segments_per_agent=1,
        horizon=len(rewards),
        observation_shape=(1,),
        observation_dtype=torch.float32,
        action_shape=(),
        action_dtype=torch.int32,
    )
    experience.rewards[0] = torch.tensor(rewards)
    experience.valid[:] = True
    experience.terminals[0, list(terminals)] = True
    experience.valid[0, list(invalid)] = False
    return experience


def test_scale_is_the_root_mean_square_of_discounted_returns():
    scale = ReturnScale(1)

    scale.update(experience_of([1.0, 2.0, 4.0], terminals=[1]), gamma=0.5, reward_clip=None)

    assert scale.scale == pytest.approx(math.sqrt((1.0 + 2.5**2 + 4.0**2) / 3))


def test_returns_run_on_from_rollout_to_rollout():
    scale = ReturnScale(1)
    for _ in range(2):
        scale.update(experience_of([1.0]), gamma=0.5, reward_clip=None)

    assert scale.mean_square == pytest.approx((1.0 + 1.5**2) / 2)


def test_padding_does_not_count_and_restarts_the_return():
    scale = ReturnScale(1)

    scale.update(experience_of([2.0, 0.0, 2.0], invalid=[1]), gamma=1.0, reward_clip=None)

    assert scale.scale == 2.0
    assert scale.count == 2


def test_clipping_comes_before_scaling():
    scale = ReturnScale(1)
    scale.update(experience_of([-8.0], terminals=[0]), gamma=1.0, reward_clip=4.0)

    assert scale.apply(torch.tensor([-8.0, 2.0]), 4.0).tolist() == [-1.0, 0.5]


def test_the_stored_rewards_stay_as_they_came():
    experience = experience_of([-8.0, 3.0])
    ReturnScale(1).update(experience, gamma=0.9, reward_clip=1.0)

    assert experience.rewards.tolist() == [[-8.0, 3.0]]


@pytest.mark.parametrize("reward", [0.0, 1e-12])
def test_no_reward_leaves_a_usable_scale(reward):
    scale = ReturnScale(1)
    scale.update(experience_of([reward]), gamma=0.9, reward_clip=None)

    assert torch.isfinite(scale.apply(torch.tensor([reward]), None)).all()


def test_constant_returns_do_not_divide_by_nothing():
    scale = ReturnScale(1)
    scale.update(experience_of([3.0, 3.0], terminals=[0, 1]), gamma=0.9, reward_clip=None)

    assert scale.scale == 3.0


def test_state_round_trip():
    scale, again = ReturnScale(1), ReturnScale(1)
    scale.update(experience_of([1.0, 2.0]), gamma=0.9, reward_clip=None)
    again.load_state_dict(scale.state_dict())
    for each in (scale, again):
        each.update(experience_of([5.0]), gamma=0.9, reward_clip=None)

    assert again.scale == scale.scale
