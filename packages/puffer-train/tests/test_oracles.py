"""Whole rollouts and updates where values, advantages and gradients are known in closed form."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from puffer_spaces import PufferEnv

GAMMA = 0.9


class Switch(PufferEnv):
    """States 0 and 1. Action 1 leaves the state: 0 for 1 with reward 1, 1 for the end with reward 2.

    Action 0 stays, without reward. After `limit` steps an episode is cut.
    """

    rebinds_buffers = True
    has_final_observations = True

    def __init__(self, num_envs=8, limit=5, buf=None):
        self.single_observation_space = Box(0, 1, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_envs = self.num_agents = num_envs
        self.limit = limit
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.states, self.age = np.zeros((2, self.num_envs), np.int64)
        self.observations[:] = np.eye(2)[self.states]
        return self.observations, []

    def step(self, actions):
        leaves = np.asarray(actions).reshape(-1) == 1
        self.rewards[:] = leaves * (1 + self.states)
        self.age += 1
        self.terminals[:] = leaves & (self.states == 1)
        self.truncations[:] = self.age == self.limit
        self.states = np.where(leaves, 1, self.states)
        self.final_observations[:] = np.eye(2)[self.states]
        ended = self.terminals | self.truncations
        self.states[ended] = self.age[ended] = 0
        self.observations[:] = np.eye(2)[self.states]
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Tabular(nn.Module):
    """A softmax policy and a critic with one row a state."""

    def __init__(self, values):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([[0.3, -0.2], [0.1, 0.4]]))
        self.values = nn.Parameter(torch.tensor(values, dtype=torch.float32))

    def forward(self, observations):
        return observations @ self.logits, observations @ self.values


def switch_values():
    """Solve the Bellman equation for the policy of `Tabular`. The time limit is outside of the process."""
    leave = torch.tensor([[0.3, -0.2], [0.1, 0.4]], dtype=torch.float64).softmax(1)[:, 1].numpy()
    transition = np.array([[1 - leave[0], leave[0]], [0.0, 1 - leave[1]]])
    return np.linalg.solve(np.eye(2) - GAMMA * transition, leave * [1.0, 2.0])


@pytest.mark.parametrize("unit", ["segment", "transition"])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.9])
@pytest.mark.parametrize(("horizon", "limit"), [(1, 3), (3, 3), (4, 3), (4, 5), (6, 2), (6, 1), (5, 100)])
@pytest.mark.parametrize("error", [0.0, 0.7])
def test_policy_and_value_gradients_are_those_of_the_bellman_equation(
    make_trainer, make_update, plain, error, horizon, limit, gae_lambda, unit
):
    """Advantages are sums of Q - V where the critic is right, and gradients those of a softmax of two actions."""
    values = switch_values() + np.array([0.0, error])
    fields = {
        **plain,
        "horizon": horizon,
        "gae_lambda": gae_lambda,
        "minibatch_unit": unit,
        "minibatch_size": 8 * horizon,
    }
    options = {"limit": limit}
    with make_trainer(env=Switch, policy=lambda _vec: Tabular(values), vec_options=options, **fields) as trainer:
        trainer.updates(2)
        trainer.evaluate()
        update = make_update(trainer)
        update._begin_pass(0)
        update._loss(slice(0, update.num_units)).total.backward()

        experience, policy = trainer.experience, trainer.policy
        states, actions = experience.observations[..., 1].long().numpy(), experience.actions.numpy()
        following = np.where(actions == 1, 1, states)
        gone = (states == 1) & (actions == 1)
        deltas = actions * (1.0 + states) + GAMMA * np.where(gone, 0.0, values[following]) - values[states]
        if error == 0.0:  # the same by Q and V
            q = np.array([[GAMMA * values[0], 1 + GAMMA * values[1]], [GAMMA * values[1], 2.0]])
            np.testing.assert_allclose(deltas, q[states, actions] - values[states])
        cut = (experience.terminals | experience.truncations).numpy()
        advantages = np.zeros_like(deltas)
        for t in reversed(range(horizon)):
            later = advantages[:, t + 1] if t + 1 < horizon else 0.0
            advantages[:, t] = deltas[:, t] + GAMMA * gae_lambda * np.where(cut[:, t], 0.0, later)
        one_hot, share = np.eye(2)[actions], advantages[..., None] / advantages.size
        scores = one_hot - policy.logits.detach().softmax(1).numpy()[states]
        for state in (0, 1):
            here = states == state
            np.testing.assert_allclose(policy.logits.grad[state], -(share * scores)[here].sum(0), atol=1e-6)
            expected = -0.5 * advantages[here].sum() / advantages.size  # vf_coef of half a square
            np.testing.assert_allclose(policy.values.grad[state], expected, atol=1e-6)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_b12_later_passes_weigh_by_the_ratios_of_two_known_policies(
    make_trainer, make_update, plain, advantages_by_sums, limit
):
    old_values, new_values = [1.0, 2.0], [1.5, -0.5]
    fields = {**plain, "horizon": 5, "rho_clip": 1.1, "trace_clip": 0.8, "minibatch_size": 40}
    options = {"limit": limit}
    with make_trainer(env=Switch, policy=lambda _vec: Tabular(old_values), vec_options=options, **fields) as trainer:
        trainer.evaluate()
        update = make_update(trainer)
        update._begin_pass(0)
        old = trainer.policy.logits.detach().softmax(1)
        with torch.no_grad():
            trainer.policy.logits += torch.tensor([[0.5, 0.0], [0.0, 1.0]])
            trainer.policy.values.copy_(torch.tensor(new_values))
        update._begin_pass(1)

        experience = trainer.experience
        states = torch.cat([experience.observations, experience.next_observations[:, None]], 1)[..., 1].long()
        ratios = (trainer.policy.logits.detach().softmax(1) / old)[states[:, :-1], experience.actions.long()]
        flags = [x.numpy() for x in (experience.terminals, experience.truncations, experience.valid)]
        final = np.where(flags[1] & ~flags[0], experience.final_values, np.nan)
        assert set(final[~np.isnan(final)]) <= set(old_values)  # that of the rollout stays
        expected = advantages_by_sums(
            experience.rewards.numpy(),
            np.array(new_values)[states],
            final,
            *flags,
            ratios.numpy(),
            GAMMA,
            0.95,
            1.1,
            0.8,
        )
        np.testing.assert_allclose(update.advantages, expected[0], atol=1e-5)
        np.testing.assert_allclose(update.targets, expected[1], atol=1e-5)


class Payer(PufferEnv):
    """One constant observation, a constant reward, cut or ended every 5 steps."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(-1, 1, (1,), np.float32)
    single_action_space = Discrete(2)

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
def test_b3_truncations_bootstrap_and_terminations_do_not(make_trainer, cut, low, high, normalize_returns):
    """Discount 0.9: for ever 1 is worth 10; five steps at most are worth 4.1 at most."""
    fields = {"gamma": 0.9, "learning_rate": 0.1, "normalize_observations": False, "update_epochs": 4.0}
    fields |= {"normalize_returns": normalize_returns, "anneal_lr": False}
    with make_trainer(env=Payer, policy=Value, vec_options={"cut": cut}, **fields) as trainer:
        trainer.updates(60)

        assert low < trainer.policy.value.item() * (trainer.return_scale.scale if normalize_returns else 1.0) < high


def test_without_a_future_the_scale_of_returns_is_that_of_rewards(make_trainer, plain):
    fields = {**plain, "normalize_returns": True, "gamma": 0.0}
    with make_trainer(env=Payer, policy=Value, vec_options={"reward": 3.0}, **fields) as trainer:
        trainer.updates(2)

        assert trainer.return_scale.scale == pytest.approx(3.0)


@pytest.mark.parametrize(("fields", "expected"), [({}, 0.5 * 1000.0**2), ({"reward_clip": 1.0}, 0.5)])
def test_b10_rewards_are_not_clamped_unless_asked(make_trainer, plain, fields, expected):
    fields = {**plain, "gamma": 0.0, **fields}
    with make_trainer(env=Payer, policy=Value, vec_options={"reward": 1000.0}, **fields) as trainer:
        trainer.evaluate()

        assert (trainer.experience.rewards == 1000.0).all()
        assert trainer.train()["value_loss"] == pytest.approx(expected)
