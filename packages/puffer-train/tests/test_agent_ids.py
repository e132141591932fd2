"""Policies that tell agents apart are given each row's number in its world, in rollout, update and evaluation."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import puffer_vector
from puffer_policies import IndependentPolicies, default_policy
from puffer_spaces import PufferEnv
from puffer_train.evaluate import evaluate_policy
from puffer_train.trainer import PuffeRL


class Team(PufferEnv):
    """Three agents a world; each sees its own number, and is paid for choosing whether that is odd."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(0, 9, (1,), np.float32)
    single_action_space = Discrete(2)

    def __init__(self, num_envs=1, buf=None):
        self.num_envs, self.num_agents = num_envs, 3 * num_envs
        self.numbers = np.arange(self.num_agents) % 3
        self.num_steps = 0
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.num_steps = 0
        self.observations[:, 0] = self.numbers
        return self.observations, []

    def step(self, actions):
        self.num_steps += 1
        self.rewards[:] = np.asarray(actions).reshape(-1) == self.numbers % 2
        self.truncations[:] = self.num_steps % 5 == 0
        self.final_observations[:] = self.observations
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Checked(IndependentPolicies):
    """Sees to it that the numbers are those in the observations."""

    def forward_eval(self, observations, state=(), agent_ids=None):
        assert agent_ids.tolist() == observations[:, 0].tolist()
        return super().forward_eval(observations, state, agent_ids)

    def forward_sequence(self, observations, state=(), resets=None, agent_ids=None):
        assert agent_ids.tolist() == observations[:, 0, 0].tolist()
        assert (observations[..., 0] == agent_ids[:, None]).all()
        return super().forward_sequence(observations, state, resets, agent_ids)


@pytest.mark.parametrize("memory", [None, "lstm"])
@pytest.mark.parametrize(
    "fields", [{}, {"batch_size": 96}, {"preset": "cleanrl", "horizon": 8}, {"preset": "puffer3", "horizon": 8}]
)
@pytest.mark.parametrize("vec_options", [{}, {"batch_size": 2}])
def test_each_policy_gets_the_rows_of_its_agent(memory, fields, vec_options):
    if memory is not None and fields.get("preset") == "cleanrl":
        pytest.skip("single transitions have no memory")
    vec = puffer_vector.make(Team, num_envs=4, seed=1, **vec_options)
    torch.manual_seed(0)
    policy = Checked([default_policy(vec, hidden_size=8, recurrent=memory) for _ in range(3)])

    with PuffeRL(vec, policy, **{"horizon": 8, "normalize_observations": False, "cpu_threads": 1, **fields}) as trainer:
        for _ in range(2):
            trainer.evaluate()
            trainer.train()
    evaluation = evaluate_policy(policy, Team, num_episodes=6)

    assert evaluation.num_episodes == 6
