"""The preset `cleanrl` against a plain textbook PPO, written out here, update by update."""

import copy

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.distributions import Categorical

import puffer_vector
from puffer_spaces import PufferEnv
from puffer_train.noise import fill_uniform, permutation
from puffer_train.trainer import PuffeRL

NUM_ENVS, HORIZON, NUM_UPDATES, NUM_EPOCHS, NUM_MINIBATCHES = 8, 16, 10, 4, 4
BATCH, MINIBATCH = NUM_ENVS * HORIZON, NUM_ENVS * HORIZON // NUM_MINIBATCHES
SEED = 3


class Pendulums(PufferEnv):
    """Points that drift; an action pushes left or right, leaving [-1, 1] ends the episode, the middle pays."""

    rebinds_buffers = True
    has_final_observations = True
    single_observation_space = Box(-2, 2, (2,), np.float32)
    single_action_space = Discrete(2)

    def __init__(self, num_envs=NUM_ENVS, buf=None):
        self.num_envs = self.num_agents = num_envs
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.resets = np.zeros(self.num_envs, np.int64)
        self.observations[:] = 0.0
        self.observations[:, 0] = np.linspace(-0.5, 0.5, self.num_envs)
        return self.observations, []

    def step(self, actions):
        self.observations[:, 1] = 0.9 * self.observations[:, 1] + 0.1 * (2 * np.asarray(actions).reshape(-1) - 1)
        self.observations[:, 0] += 0.3 * self.observations[:, 1] + 0.05 * self.observations[:, 0]
        ended = np.abs(self.observations[:, 0]) > 1
        self.rewards[:] = 1 - np.abs(self.observations[:, 0])
        self.terminals[:] = ended
        self.final_observations[:] = self.observations
        self.resets += ended
        self.observations[ended, 0] = 0.1 * (self.resets[ended] % 7 - 3)
        self.observations[ended, 1] = 0.0
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x):
        return self.actor(x), self.critic(x)


def make_agent():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        agent = Agent()
    with torch.no_grad():
        agent.actor[2].weight.mul_(0.01)
    return agent


def textbook_ppo(agent, vec):
    """Yield the agent's weights after each update. Only noise and order of minibatches come from the package."""
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    next_obs = torch.tensor(vec.reset(SEED)[0])
    next_done = torch.zeros(NUM_ENVS)
    num_steps = 0
    for update in range(NUM_UPDATES):
        optimizer.param_groups[0]["lr"] = (1.0 - update / NUM_UPDATES) * 2.5e-4
        obs, actions, logprobs = (
            torch.zeros(HORIZON, NUM_ENVS, 2),
            torch.zeros(HORIZON, NUM_ENVS),
            torch.zeros(HORIZON, NUM_ENVS),
        )
        rewards, dones, values = (torch.zeros(HORIZON, NUM_ENVS) for _ in range(3))
        for step in range(HORIZON):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                logits, value = agent(next_obs)
                noise = np.empty((NUM_ENVS, 1), np.float32)
                fill_uniform(noise, SEED, np.full(NUM_ENVS, num_steps), np.arange(NUM_ENVS))
                action = (torch.softmax(logits, 1)[:, 0] <= torch.from_numpy(noise[:, 0])).long()
                logprobs[step] = Categorical(logits=logits).log_prob(action)
            actions[step], values[step] = action, value.flatten()
            next_obs, reward, terminal, _, _ = (
                torch.tensor(np.array(x)) for x in vec.step(action.numpy().astype(np.int32))
            )
            rewards[step], next_done = reward, terminal.float()
            num_steps += 1

        with torch.no_grad():
            next_value = agent(next_obs)[1].reshape(1, -1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = 0
            for t in reversed(range(HORIZON)):
                nextnonterminal = 1.0 - (next_done if t == HORIZON - 1 else dones[t + 1])
                nextvalues = next_value if t == HORIZON - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * nextvalues * nextnonterminal - values[t]
                advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nextnonterminal * lastgaelam
            returns = advantages + values

        # Samples in the order of the package's storage, one env after the other, so that indices mean the same.
        b_obs, b_actions, b_logprobs = (x.transpose(0, 1).flatten(0, 1) for x in (obs, actions, logprobs))
        b_advantages, b_returns, b_values = (x.T.flatten() for x in (advantages, returns, values))
        for epoch in range(NUM_EPOCHS):
            b_inds = permutation(SEED, update, epoch, 0, BATCH)
            for start in range(0, BATCH, MINIBATCH):
                mb_inds = torch.from_numpy(b_inds[start : start + MINIBATCH])
                logits, newvalue = agent(b_obs[mb_inds])
                distribution = Categorical(logits=logits)
                ratio = (distribution.log_prob(b_actions[mb_inds]) - b_logprobs[mb_inds]).exp()
                mb_advantages = b_advantages[mb_inds]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * torch.clamp(ratio, 0.8, 1.2)).mean()
                newvalue = newvalue.view(-1)
                v_clipped = b_values[mb_inds] + torch.clamp(newvalue - b_values[mb_inds], -0.2, 0.2)
                v_loss = (
                    0.5 * torch.max((newvalue - b_returns[mb_inds]) ** 2, (v_clipped - b_returns[mb_inds]) ** 2).mean()
                )
                loss = pg_loss - 0.01 * distribution.entropy().mean() + v_loss * 0.5
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        yield [parameter.detach().clone() for parameter in agent.parameters()]


def test_the_cleanrl_preset_equals_the_textbook_over_ten_updates():
    agent = make_agent()
    with puffer_vector.make(Pendulums, num_envs=NUM_ENVS, seed=SEED) as vec:
        textbook = list(textbook_ppo(copy.deepcopy(agent), vec))
    vec = puffer_vector.make(Pendulums, num_envs=NUM_ENVS, seed=SEED)
    fields = {"horizon": HORIZON, "minibatch_size": MINIBATCH, "total_timesteps": BATCH * NUM_UPDATES, "seed": SEED}
    with PuffeRL(vec, agent, preset="cleanrl", **fields) as trainer:
        for weights in textbook:
            assert not trainer.done
            trainer.evaluate()
            trainer.train()

            for mine, its in zip(trainer.policy.parameters(), weights, strict=True):
                torch.testing.assert_close(mine.detach(), its, atol=1e-6, rtol=0)
        assert trainer.done
        assert trainer.experience.terminals.any()
