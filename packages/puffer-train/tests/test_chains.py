"""Whole rollouts and updates of chains, where the values of all steps are known."""

import copy
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from puffer_policies import adapt_policy
from puffer_spaces import PufferEnv
from puffer_train.distributed import Ranks
from puffer_train.optim import make_optimizer
from puffer_train.update import Update

GAMMA = 0.9


class Chain(PufferEnv):
    """World w walks a chain of w + 1 steps; step a pays (a + 1) / 10. Then the agent is absent for `rest` steps.

    The observation is [step of the episode, world], without the step where it is `hidden`. Absent rows hold rubbish.
    """

    rebinds_buffers = True
    has_final_observations = True

    def __init__(self, num_envs=6, ends="terminal", rest=0, hidden=False, buf=None):
        self.single_observation_space = Box(-1e6, 1e6, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_envs = self.num_agents = num_envs
        self.ends, self.rest, self.hidden = ends, rest, hidden
        super().__init__(buf)

    def reset(self, seed=None, first_world=0, options=None):
        self.worlds = first_world + np.arange(self.num_envs)
        self.age, self.resting = np.zeros((2, self.num_envs), np.int64)
        self._show(self.observations)
        return self.observations, []

    def step(self, actions):
        acts = self.resting == 0
        self.rewards[:] = np.where(acts, (self.age + 1) / 10, np.nan)
        self.age += acts
        ended = acts & (self.age == self.worlds + 1)
        self.terminals[:] = ended & (self.ends != "cut")
        self.truncations[:] = ended & (self.ends != "terminal")
        self._show(self.final_observations)
        self.age[ended] = 0
        self.resting = np.where(ended, self.rest, np.maximum(self.resting - 1, 0))
        self._show(self.observations)
        self.masks[:] = self.resting == 0
        self.observations[~self.masks] = np.nan
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _show(self, rows):
        rows[:, 0] = 0 if self.hidden else self.age
        rows[:, 1] = self.worlds


def chain_values(ends):
    """Values of each step of each world: (6, 8). A time limit is outside of the chain, which goes on for ever."""
    if ends == "cut":
        step = torch.arange(8.0).repeat(6, 1)
        return ((step + 1) / (1 - GAMMA) + GAMMA / (1 - GAMMA) ** 2) / 10
    values = torch.zeros(6, 8)
    for world in range(6):
        for step in range(world, -1, -1):
            values[world, step] = (step + 1) / 10 + GAMMA * values[world, step + 1]
    return values


class Table(nn.Module):
    """Reads the value of [step, world] from a table."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(values.clone())

    def forward(self, observations):
        step, world = observations.long().unbind(-1)
        return 0.0 * self.values.sum() + torch.zeros(len(step), 2), self.values[world, step]


class Counting(Table):
    """Knows the step by memory only: it counts its steps since the last reset."""

    is_recurrent = True

    def __init__(self, values):
        super().__init__(values)
        self.action_head = adapt_policy(Table(values), Box(-1e6, 1e6, (2,), np.float32), Discrete(2)).action_head

    def initial_state(self, num_rows, device=None):
        return (torch.zeros(num_rows, 1),)

    def forward_eval(self, observations, state):
        counted = torch.cat([state[0], observations[:, 1:]], 1)
        return (*self(counted), (state[0] + 1,))

    def forward_sequence(self, observations, state, resets):
        count, values = state[0], []
        for t in range(observations.shape[1]):
            count = torch.where(resets[:, t, None], 0.0, count)
            _, step_values, (count,) = self.forward_eval(observations[:, t], (count,))
            values.append(step_values)
        values = torch.stack(values, 1)
        return 0.0 * self.values.sum() + torch.zeros(values.numel(), 2), values


@pytest.fixture
def make_chains(make_trainer, plain):
    """Makes a trainer of six chains, two segments an agent, with a critic that is given."""

    def make(values, horizon, memory=False, num_segments=2, **options):
        fields = {**plain, **{name: options.pop(name) for name in list(options) if name not in ("ends", "rest")}}
        return make_trainer(
            env=Chain,
            policy=lambda _vec: (Counting if memory else Table)(values),
            vec_options={"num_envs": 6, "hidden": memory, **options},
            horizon=horizon,
            batch_size=6 * horizon * num_segments,
            **fields,
        )

    return make


def steps_of_chains(num_slots, first, rest):
    """Return the step of the episode in each slot of each world, -1 where the agent is absent: (6, num_slots)."""
    slot = first + torch.arange(num_slots)
    rows = []
    for world in range(6):
        position = slot % (world + 1 + rest)
        rows.append(torch.where(position <= world, position, -1))
    return torch.stack(rows)


@pytest.mark.parametrize("rest", [0, 1, 3])
@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("ends", ["terminal", "cut", "both"])
@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 7])
def test_b1_b3_b4_a_perfect_critic_finds_no_advantage_at_any_alignment(
    make_chains, make_update, ends, memory, rest, horizon
):
    """Episodes of 1 to 6 steps, ended or cut, in segments of all lengths; also where only memory knows the step."""
    with make_chains(chain_values(ends), horizon, memory, ends=ends, rest=rest) as trainer:
        for rollout in range(3):
            trainer.evaluate()
            update = make_update(trainer)
            update._begin_pass(0)
            steps = steps_of_chains(2 * horizon, 2 * horizon * rollout, rest).view(12, horizon)

            assert torch.equal(trainer.experience.valid, steps >= 0)
            torch.testing.assert_close(update.advantages, torch.zeros(12, horizon), atol=1e-4, rtol=0)
            known = chain_values(ends)[torch.arange(12)[:, None] // 2, steps.clamp(min=0)]
            torch.testing.assert_close(update.targets[steps >= 0], known[steps >= 0], atol=1e-4, rtol=0)


def test_b17_a_perfect_critic_explains_all_variance(make_chains):
    with make_chains(chain_values("terminal"), 5, rest=2) as trainer:
        for _ in range(2):
            trainer.evaluate()

            assert trainer.train()["explained_variance"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("rest", [0, 2])
@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 7])
def test_b1_without_a_critic_advantages_are_the_rewards_to_come_in_episode_and_segment(
    make_chains, make_update, rest, horizon
):
    with make_chains(torch.zeros(6, 8), horizon, rest=rest, gae_lambda=1.0) as trainer:
        for rollout in range(3):
            trainer.evaluate()
            update = make_update(trainer)
            update._begin_pass(0)
            steps = steps_of_chains(2 * horizon, 2 * horizon * rollout, rest).view(12, horizon).tolist()
            expected = [
                [
                    sum(GAMMA**k * (step + 1 + k) / 10 for k in range(min(row // 2 + 1 - step, horizon - t)))
                    if step >= 0
                    else 0.0
                    for t, step in enumerate(segment)
                ]
                for row, segment in enumerate(steps)
            ]

            torch.testing.assert_close(update.advantages, torch.tensor(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize(
    ("update_epochs", "expected"), [(0.25, {0: 9, 1: 3}), (0.5, {0: 6, 1: 6}), (1.5, {1: 6, 2: 6})]
)
def test_a_replay_ratio_uses_each_segment_as_often_as_it_says(make_chains, memory, update_epochs, expected):
    fields = {"update_epochs": update_epochs, "minibatch_size": 12, "recompute_advantages": "never"}
    with make_chains(chain_values("cut"), 4, memory, ends="cut", **fields) as trainer:
        trainer.evaluate()
        trainer.experience.actions[:] = 0
        trainer.experience.log_probs[:] = np.log(0.5)
        uses = torch.zeros(12, dtype=torch.long)
        forward = trainer._learner.forward

        def counted(observations, state, resets):
            for sample in observations.view(-1, 4, 2):
                uses[(trainer.experience.observations == sample).flatten(1).all(1).nonzero()[0]] += 1
            return forward(observations, state, resets)

        trainer.experience.observations[:, 0, 0] += torch.arange(12) / 100  # tells segments apart, whole steps do not
        trainer._learner.forward = counted
        trainer.train()

        assert dict(zip(*map(torch.Tensor.tolist, uses.unique(return_counts=True)), strict=True)) == expected


@dataclasses.dataclass(frozen=True)
class Meeting(Ranks):
    """Ranks that are threads of one process."""

    seats: list = None
    barrier: threading.Barrier = None

    def sum_(self, tensor):
        self.seats[self.rank] = tensor.clone()
        self.barrier.wait(60)
        total = sum(self.seats)
        self.barrier.wait(60)
        return tensor.copy_(total)


def share_of(experience, rank):
    """Return half of the segments."""
    share = copy.copy(experience)
    share.num_segments = experience.num_segments // 2
    for name, value in vars(experience).items():
        if isinstance(value, torch.Tensor) and not name.startswith("_"):
            setattr(share, name, value[rank * share.num_segments : (rank + 1) * share.num_segments])
    return share


def test_b15_ranks_with_unequal_padding_have_the_means_of_one_process(make_chains, make_update):
    """Each step is a mean over the valid steps of both, not a mean of their means."""
    fields = {"learning_rate": 0.01, "minibatch_size": 24, "update_epochs": 2.0, "target_kl": 1e3, "segment_blocks": 2}
    with make_chains(torch.zeros(6, 8), 4, rest=3, **fields) as trainer:
        trainer.evaluate()
        config = dataclasses.replace(trainer.config, segment_blocks=1)
        seats, barrier, updates = [None, None], threading.Barrier(2), []
        for rank in (0, 1):
            share, policy = share_of(trainer.experience, rank), copy.deepcopy(trainer._learner.policy)
            parameters = list(policy.parameters())
            learner = dataclasses.replace(
                trainer._learner,
                policy=policy,
                parameters=parameters,
                optimizer=make_optimizer(config, parameters),
                ranks=Meeting(rank, 2, seats, barrier),
                forward=policy.forward_sequence,
            )
            updates.append(Update(learner, share, config, rewards=share.rewards, ent_coef=0.0, progress=0.0, epoch=0))
        assert updates[0].experience.valid.sum() != updates[1].experience.valid.sum()
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(Update.run, updates))
        expected = make_update(trainer).run()

        for update, report in zip(updates, reports, strict=True):
            torch.testing.assert_close(update.learner.parameters[0], trainer.policy.values, atol=1e-6, rtol=0)
            assert report == pytest.approx(expected, abs=1e-5)
        assert (trainer.policy.values != 0).any()
