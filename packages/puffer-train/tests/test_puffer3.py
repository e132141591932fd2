"""The puffer3 preset against PufferLib 3.0's formulas, its faults included."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import puffer_vector
from puffer_policies import default_policy
from puffer_spaces import PufferEnv
from puffer_train.puffer3 import Puffer3Update
from puffer_train.trainer import PuffeRL

NUM_ENVS, HORIZON = 6, 5


class Noisy(PufferEnv):
    """Rewards and observations by a fixed sequence; episodes of 2 steps, every second one cut."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(-9, 9, (3,), np.float32)
    single_action_space = Discrete(3)

    def __init__(self, num_envs=NUM_ENVS, buf=None):
        self.num_envs = self.num_agents = num_envs
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.rng = np.random.default_rng(0)
        self.count = 0
        self.observations[:] = self.rng.normal(size=(self.num_envs, 3))
        return self.observations, []

    def step(self, actions):
        self.count += 1
        self.rewards[:] = 2 * self.rng.normal(size=self.num_envs)
        self.observations[:] = self.rng.normal(size=(self.num_envs, 3))
        if self.count % 2 == 0:
            self.final_observations[:] = 1.0
            (self.truncations if self.count % 4 == 0 else self.terminals)[:] = True
        return self.observations, self.rewards, self.terminals, self.truncations, []


@pytest.fixture
def trainer():
    vec = puffer_vector.make(Noisy, num_envs=NUM_ENVS, seed=0)
    torch.manual_seed(0)
    policy = default_policy(vec, hidden_size=8)
    fields = {"preset": "puffer3", "horizon": HORIZON, "minibatch_size": 3 * HORIZON, "num_iterations": 10}
    with PuffeRL(vec, policy, **fields) as trainer:
        trainer.evaluate()
        yield trainer


@pytest.fixture
def begin_update(make_update, trainer):
    """Makes an update of the objective at some progress of the run."""

    def begin(progress=0.0):
        rewards = trainer.return_scale.apply(trainer.experience.rewards, trainer.config.reward_clip)
        return make_update(trainer, Puffer3Update, rewards=rewards, ent_coef=0.001, progress=progress)

    return begin


def reference_advantages(experience, values, ratios, gamma=0.995, lam=0.90):
    rewards = experience.rewards.clamp(-1, 1)
    advantages = torch.zeros(NUM_ENVS, HORIZON)
    for t in range(HORIZON - 2, -1, -1):
        going_on = 1.0 - experience.terminals[:, t].float()
        rho = ratios[:, t].clamp(max=1.0)
        delta = rho * (rewards[:, t] + gamma * going_on * values[:, t + 1] - values[:, t])
        advantages[:, t] = delta + gamma * lam * going_on * rho * advantages[:, t + 1]
    return advantages


def test_advantages_lose_the_last_slot_clamp_rewards_and_ignore_truncations(trainer, begin_update):
    update = begin_update()
    update.run()
    experience = trainer.experience
    ratios = torch.rand(NUM_ENVS, HORIZON) * 2
    values = torch.randn(NUM_ENVS, HORIZON + 1)
    update._estimate(values, ratios)

    torch.testing.assert_close(update.advantages, reference_advantages(experience, values, ratios))
    torch.testing.assert_close(update.targets, values[:, :-1] + update.advantages)
    assert experience.rewards.abs().max() > 1
    assert experience.terminals.any()
    assert experience.truncations[:, :-1].any()


def test_segments_are_drawn_once_by_priority_and_weighted(trainer, begin_update):
    update = begin_update(progress=0.5)
    update.run()
    priorities = update.advantages.abs().sum(1) ** 0.8
    update._draw(1)

    probabilities = (priorities + 1e-6) / (priorities.sum() + 1e-6)
    beta = 0.2 + 0.8 * 0.8 * 0.5
    weights = (NUM_ENVS * probabilities[update._order]) ** -beta
    drawn = update.advantages[update._order]
    expected = weights[:, None] * (drawn - drawn.mean()) / (drawn.std() + 1e-8)
    assert len(set(update._order.tolist())) == 3
    torch.testing.assert_close(update._ordered_advantages, expected, atol=1e-5, rtol=1e-5)


def test_priorities_decide_how_often_a_segment_is_drawn(trainer, begin_update):
    update = begin_update()
    update.run()
    update.advantages[:] = 1e-6
    update.advantages[2] = 100.0

    for index in range(20):
        update._draw(index)
        assert 2 in update._order.tolist()


def test_values_and_ratios_of_drawn_segments_are_replaced(trainer, begin_update):
    update = begin_update()
    report = update.run()

    changed = (update._values[:, :-1] != trainer.experience.values[:, :-1]).any(1)
    assert report["num_minibatches"] == 2
    assert 3 <= int(changed.sum()) <= 6
    assert (update._values[:, -1] == trainer.experience.values[:, -1]).all()
    # The first minibatch finds the policy of the rollout: ratios change with the second.
    assert (update._ratios != 1).any()


def test_a_run_is_repeatable_and_learns_with_muon(trainer):
    trainer.train()
    for _ in range(3):
        trainer.evaluate()
        losses = trainer.train()

    assert all(np.isfinite(value) for value in losses.values())
    assert type(trainer._learner.optimizer.parts[0]) is torch.optim.Muon
