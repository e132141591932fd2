"""An update: which samples meet in a minibatch, with what weights, and what changes no result."""

import numpy as np
import pytest
import torch
from torch import nn

from puffer_train import update
from puffer_train.errors import NonFiniteError
from puffer_train.losses import STATISTIC_NAMES


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("segments", [1, 3])
def test_b5_the_first_minibatch_has_ratio_one_also_with_memory_and_resets_inside_segments(
    make_trainer, memory, segments
):
    with make_trainer(memory, batch_size=64 * segments, minibatch_size=64 * segments) as trainer:
        for _ in range(3):
            trainer.evaluate()
            losses = trainer.train()

            assert losses["importance"] == pytest.approx(1.0, abs=1e-6)
            assert abs(losses["old_approx_kl"]) < 1e-6
            assert losses["clipfrac"] == 0.0
        assert trainer.normalizer.count > 0


@pytest.mark.parametrize(("update_epochs", "expected"), [(1.0, 4), (0.5, 2), (2.75, 11), (0.01, 1)])
def test_update_epochs_is_a_replay_ratio(make_trainer, update_epochs, expected):
    with make_trainer(update_epochs=update_epochs, minibatch_size=16) as trainer:
        assert trainer.updates(1)["num_minibatches"] == expected


def test_b11_each_pass_uses_every_segment_once_with_equal_weight(make_trainer, make_update):
    with make_trainer(minibatch_size=16, normalize_advantages="none") as trainer:
        trainer.evaluate()
        update = make_update(trainer)
        orders = []
        for pass_index in range(3):
            update._begin_pass(pass_index)
            assert sorted(update._order.tolist()) == list(range(8))
            assert (update._ordered_weights == 1 / 16).all()
            orders.append(tuple(update._order.tolist()))

        assert len(set(orders)) == 3


def test_segment_blocks_share_equally_in_each_minibatch(make_trainer, make_update):
    with make_trainer(minibatch_size=32, segment_blocks=2) as trainer:
        trainer.evaluate()
        update = make_update(trainer)
        update._begin_pass(0)

        for minibatch in update._order.view(2, 4):
            assert [int((minibatch < 4).sum()), int((minibatch >= 4).sum())] == [2, 2]


def test_later_passes_use_current_values_and_ratios(make_trainer, make_update):
    with make_trainer(update_epochs=2, minibatch_size=64, learning_rate=0.01) as trainer:
        trainer.evaluate()
        update = make_update(trainer)
        values, ratios = update._current_values_and_ratios()
        torch.testing.assert_close(values, trainer.experience.values, atol=1e-6, rtol=0)
        torch.testing.assert_close(ratios, torch.ones_like(ratios), atol=1e-6, rtol=0)
        update._begin_pass(0)
        first = update.targets.clone()
        update._step(0)
        update._begin_pass(1)

        assert not torch.equal(update.targets, first)


def test_target_kl_stops_before_the_step_that_goes_too_far(make_trainer):
    with make_trainer(update_epochs=20, learning_rate=0.1, target_kl=1e-3, anneal_lr=False) as trainer:
        stopped = trainer.updates(1)
    with make_trainer(update_epochs=20, learning_rate=0.1, anneal_lr=False) as trainer:
        free = trainer.updates(1)

    assert 1 <= stopped["num_minibatches"] < free["num_minibatches"] == 80
    assert stopped["approx_kl"] <= 1e-3


def test_target_kl_is_compared_with_approx_kl(make_trainer, make_update):
    with make_trainer(minibatch_size=64) as trainer:
        trainer.evaluate()
        with torch.no_grad():
            for index, parameter in enumerate(trainer.policy.parameters()):
                parameter += 0.3 * torch.sin(torch.arange(parameter.numel()) + index).view_as(parameter)
        update = make_update(trainer)
        update._begin_pass(0)
        kl = update._loss(slice(0, 8)).statistics[STATISTIC_NAMES.index("approx_kl")].item()
        assert kl > 1e-3
        for target_kl, is_taken in ((0.99 * kl, False), (1.01 * kl, True)):
            trainer.change(target_kl=target_kl)
            update = make_update(trainer)
            update._begin_pass(0)
            before = trainer.weights()

            assert update._step(0) is is_taken
            assert torch.equal(trainer.weights(), before) is not is_taken
            assert all(parameter.grad is None for parameter in trainer.policy.parameters())


@pytest.mark.parametrize(("normalize_advantages", "num_groups"), [("batch", 1), ("minibatch", 4)])
def test_advantages_are_normalised_over_the_batch_or_each_minibatch(
    make_trainer, make_update, normalize_advantages, num_groups
):
    with make_trainer(minibatch_size=16, normalize_advantages=normalize_advantages) as trainer:
        trainer.evaluate()
        update = make_update(trainer)
        update._begin_pass(0)
        groups = update._ordered_advantages.view(num_groups, -1)

        torch.testing.assert_close(groups.mean(1), torch.zeros(num_groups), atol=1e-5, rtol=0)
        torch.testing.assert_close(groups.std(1), torch.ones(num_groups), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "fields", [{"minibatch_size": 8, "horizon": 8}, {"minibatch_unit": "transition", "minibatch_size": 1, "horizon": 2}]
)
def test_minibatches_of_one_sample_stay_finite(make_trainer, fields):
    for normalize_advantages in ("batch", "minibatch"):
        with make_trainer(vec_options={"num_envs": 2}, normalize_advantages=normalize_advantages, **fields) as trainer:
            losses = trainer.updates(2)

            assert all(np.isfinite(value) for value in losses.values())
            assert torch.isfinite(trainer.weights()).all()


@pytest.mark.parametrize("fields", [{"memory": True}, {"minibatch_unit": "transition"}])
def test_units_are_the_same_taken_at_once_or_part_by_part(make_trainer, monkeypatch, fields):
    weights = []
    for limit in (1 << 22, 0):
        monkeypatch.setattr(update, "ORDERED_AT_ONCE_BYTES", limit)
        with make_trainer(minibatch_size=16, update_epochs=2, **fields) as trainer:
            trainer.updates(3)
            weights.append(trainer.weights())

    assert torch.equal(*weights)


@pytest.mark.parametrize("memory", [False, True])
def test_b13_microbatches_change_no_result(make_trainer, memory):
    def run(microbatch_size):
        with make_trainer(memory, microbatch_size=microbatch_size, minibatch_size=32, update_epochs=2) as trainer:
            losses = trainer.updates(2)
            assert all(parameter.grad is None for parameter in trainer.policy.parameters())  # nothing runs on
            return losses, trainer.weights()

    whole, parts = run(None), run(8)

    torch.testing.assert_close(parts[1], whole[1], atol=2e-5, rtol=0)
    assert parts[0] == pytest.approx(whole[0], rel=1e-3, abs=1e-4)


class Decided(nn.Module):
    """Always takes action 1."""

    def __init__(self, vec):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, 3), nn.Linear(16, 1)
        with torch.no_grad():
            self.actor.weight.mul_(0.01)
            self.actor.bias.copy_(torch.tensor([-60.0, 60.0, -60.0]))

    def forward(self, observations):
        hidden = self.body(observations)
        return self.actor(hidden), self.critic(hidden)


@pytest.mark.parametrize("normalize_advantages", ["batch", "minibatch"])
def test_b2_b6_padding_changes_nothing(make_trainer, cells, padded, normalize_advantages):
    """The actions of both runs are fixed by a policy without a choice, since noise is keyed by row."""

    def run(env, minibatch_size):
        fields = {"normalize_advantages": normalize_advantages, "minibatch_size": minibatch_size, "num_iterations": 3}
        with make_trainer(env=env, policy=Decided, vec_options={"num_envs": 4}, **fields) as trainer:
            losses = trainer.updates(1)
            statistics = trainer.normalizer.mean.clone(), trainer.return_scale.scale
            return losses, trainer.weights(), trainer.agent_steps, *statistics

    plain, mixed = run(cells, 32), run(padded, 64)

    assert mixed[0] == pytest.approx(plain[0], rel=1e-4, abs=1e-6)
    torch.testing.assert_close(mixed[1], plain[1], atol=1e-6, rtol=1e-4)
    assert mixed[2] == plain[2] == 32
    torch.testing.assert_close(mixed[3], plain[3])
    assert mixed[4] == pytest.approx(plain[4])


@pytest.mark.parametrize("preset", ["default", "puffer3"])
def test_a_minibatch_of_padding_alone_moves_nothing(make_trainer, padded, preset):
    fields = {"preset": preset, "minibatch_size": 8, "horizon": 8, "weight_decay": 0.1, "optimizer": "adamw"}
    with make_trainer(env=padded, vec_options={"num_envs": 2}, **fields) as trainer:
        trainer.evaluate()
        trainer.experience.valid[:] = False
        before = trainer.weights()

        assert trainer.train()["num_minibatches"] == 0
        assert torch.equal(trainer.weights(), before)
        if preset == "default":
            assert trainer.updates(1)["num_minibatches"] == 2  # every second row is padding


def test_segments_do_not_see_each_other(make_trainer):
    with make_trainer(True) as trainer:
        trainer.evaluate()
        experience, policy = trainer.experience, trainer.policy
        arguments = (experience.states, experience.resets[:, :-1])
        _, before = policy.forward_sequence(experience.observations, *arguments)
        experience.observations[0] = 9.0
        _, after = policy.forward_sequence(experience.observations, *arguments)

        assert torch.equal(before[1:], after[1:])
        assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("memory", [False, True])
def test_b9_bfloat16_ends_with_the_forward_pass(make_trainer, memory):
    with make_trainer(memory, precision="bfloat16") as trainer:
        losses = trainer.updates(2)

        assert not torch.is_autocast_enabled("cpu")
        assert all(parameter.dtype == torch.float32 for parameter in trainer.policy.parameters())
        assert trainer.experience.values.dtype == torch.float32
        assert trainer._learner.optimizer.parts[0].state_dict()["state"][0]["exp_avg"].dtype == torch.float32
        # bf16 has 8 bits; the ratio is that of two roundings.
        assert losses["importance"] == pytest.approx(1.0, abs=0.02)


def test_b17_explained_variance_is_that_of_the_values_before_the_update(make_trainer, make_update):
    with make_trainer(update_epochs=2, learning_rate=0.1, normalize_returns=False) as trainer:
        trainer.evaluate()
        update = make_update(trainer)
        update._begin_pass(0)
        residuals = update.targets - trainer.experience.values[:, :-1]
        expected = 1.0 - (residuals.var() / update.targets.var()).item()

        assert trainer.train()["explained_variance"] == pytest.approx(expected, abs=1e-5)
        assert abs(expected) < 0.9  # neither a perfect critic nor none at all


def test_b18_a_loss_that_is_not_finite_ends_the_run(make_trainer):
    with make_trainer(learning_rate=1e30, anneal_lr=False, update_epochs=4) as trainer:
        trainer.evaluate()
        with pytest.raises(NonFiniteError, match=r"losses and gradients must be finite.*update 1"):
            trainer.train()
