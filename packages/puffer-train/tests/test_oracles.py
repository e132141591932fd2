"""Learning where the answer is known."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from puffer_spaces import PufferEnv


class Payer(PufferEnv):
    """One constant observation, a constant reward, cut or ended every 5 steps."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(-1, 1, (1,), np.float32)
    single_action_space = Discrete(2)
    num_agents = 4
    num_envs = 4

    def __init__(self, num_envs=4, cut=True, reward=1.0, buf=None):
        self.num_agents = self.num_envs = num_envs
        self.cut, self.reward = cut, reward
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.age = (first_world + np.arange(self.num_envs)) % 5
        self.observations[:] = 1.0
        return self.observations, []

    def step(self, actions):
        self.age += 1
        ended = self.age == 5
        (self.truncations if self.cut else self.terminals)[:] = ended
        self.age[ended] = 0
        self.final_observations[:] = 1.0
        self.observations[:] = 1.0
        self.rewards[:] = self.reward
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Value(nn.Module):
    def __init__(self, _vec):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, observations):
        return torch.zeros(len(observations), 2) + 0 * self.value, self.value.expand(len(observations), 1)


@pytest.mark.parametrize(("cut", "low", "high"), [(True, 8.0, 11.0), (False, 2.0, 4.1)])
@pytest.mark.parametrize("normalize_returns", [False, True])
def test_r067_b3_truncations_bootstrap_and_terminations_do_not(make_trainer, cut, low, high, normalize_returns):
    """Discount 0.9: for ever 1 is worth 10; five steps at most are worth 4.1 at most."""
    fields = {"gamma": 0.9, "learning_rate": 0.1, "normalize_observations": False, "update_epochs": 4.0}
    fields |= {"normalize_returns": normalize_returns, "anneal_lr": False}
    with make_trainer(env=Payer, policy=Value, vec_options={"cut": cut}, **fields) as trainer:
        trainer.updates(60)

        assert low < trainer.policy.value.item() * (trainer.return_scale.scale if normalize_returns else 1.0) < high


def test_b10_rewards_are_not_clamped_unless_asked(make_trainer):
    def targets(**fields):
        fields |= {"gamma": 0.0, "learning_rate": 0.0, "normalize_returns": False}
        with make_trainer(env=Payer, policy=Value, vec_options={"reward": 1000.0}, **fields) as trainer:
            trainer.evaluate()
            assert (trainer.experience.rewards == 1000.0).all()
            return trainer.train()["value_loss"]

    assert targets() == pytest.approx(0.5 * 1000.0**2)
    assert targets(reward_clip=1.0) == pytest.approx(0.5)
