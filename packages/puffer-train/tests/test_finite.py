"""What counts as finite, and what nobody looks at."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from puffer_spaces import Layout, PufferEnv
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
    with pytest.raises(NonFiniteError, match="the policy's outputs"):
        check_outputs(observations, values, torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]), places(2))


MIXED = Layout(Dict({"goal": Discrete(4), "image": Box(0, 255, (5,), np.uint8), "speed": Box(-1, 1, (2,), np.float32)}))


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_b18_a_leaf_of_a_row_of_bytes_is_named(number):
    values = [{"goal": 3, "image": np.full(5, 255, np.uint8), "speed": np.array([x, 0.0])} for x in (0.0, number)]
    observations = torch.from_numpy(np.stack([MIXED.flatten(value) for value in values]))
    where = RowPlaces(np.arange(2), np.full(2, 7), agents_per_world=1, layout=MIXED)
    assert observations.dtype == torch.uint8

    with pytest.raises(NonFiniteError, match=r"observations must be finite; got nan or inf as speed in env 1.*step 7"):
        check_outputs(observations, torch.tensor([0.0, torch.nan]), None, where)
    with pytest.raises(NonFiniteError, match=r"the policy's outputs must be finite.*env 0"):
        check_outputs(observations, torch.tensor([torch.nan, 0.0]), None, where)


def test_b18_a_bad_number_in_bytes_is_named_in_a_rollout(make_trainer, cells):
    layout = Layout(Dict({"count": Discrete(9), "number": Box(-9, 9, (1,), np.float32)}))

    class Bytes(cells):
        def __init__(self, num_envs=4, buf=None):
            super().__init__(num_envs, None)
            self.single_observation_space, self.observation_layout = layout.row_space, layout
            self.original_observation_space = layout.space
            PufferEnv.__init__(self, buf)

        def reset(self, seed=None, first_world=0, options=None):
            self.num_steps = 0
            return self.observations, []

        def step(self, actions):
            self.num_steps += 1
            if self.num_steps == 5:
                self.observations[2] = layout.flatten({"count": 1, "number": np.array([np.nan])})
            return self.observations, self.rewards, self.terminals, self.truncations, []

    with (
        make_trainer(env=Bytes) as trainer,
        pytest.raises(
            NonFiniteError, match=r"observations must be finite; got nan or inf as number in env 2.*at step 5"
        ),
    ):
        trainer.evaluate()
