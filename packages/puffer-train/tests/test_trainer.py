"""The trainer as it is called: what it takes, how long it runs, what may change, and what it reports."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import puffer_vector
from puffer_policies import LSTMWrapper, default_policy
from puffer_spaces import PufferEnv
from puffer_train.config import CHANGEABLE, ConfigError
from puffer_train.errors import RunError
from puffer_train.trainer import PuffeRL
from puffer_train.update import Update


def test_envs_may_be_given_as_creators_and_are_closed_after_a_config_error(cells):
    with PuffeRL(cells, horizon=4, total_timesteps=100) as trainer:
        trainer.evaluate()
        vec = trainer.vec
    assert vec.is_closed

    given = puffer_vector.make(cells, num_envs=4, seed=1)
    with pytest.raises(ConfigError, match="batch_size must be at least minibatch_size"):
        PuffeRL(given, horizon=4, minibatch_size=64)
    assert not given.is_closed
    given.close()


def test_memory_needs_whole_segments(make_trainer):
    with pytest.raises(ConfigError, match="minibatch_unit must be segment"):
        make_trainer(memory=True, preset="cleanrl", horizon=4)


@pytest.mark.parametrize(
    ("policy", "hint"),
    [(torch.nn.Linear, r"got <class .*Give Linear\(\.\.\.\)"), ("mlp", "got 'mlp'. Give None for the default one")],
)
def test_a_policy_is_a_module(make_trainer, policy, hint):
    with pytest.raises(ConfigError, match=f"policy must be an nn.Module; {hint}"):
        make_trainer(policy=lambda _vec: policy)


def test_a_policy_whose_outputs_lead_to_no_parameter_is_told_so(make_trainer):
    class Detached(torch.nn.Linear):
        def forward(self, observations):
            outputs = super().forward(observations).detach()
            return outputs[:, :3], outputs[:, 3]

    with (
        make_trainer(policy=lambda _vec: Detached(4, 4)) as trainer,
        pytest.raises(RunError, match="must depend on its parameters"),
    ):
        trainer.updates(1)


def test_unknown_devices_are_named(make_trainer):
    with pytest.raises(ConfigError, match="device must be auto"):
        make_trainer(device="gpu0")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="one that this machine has; got cuda"):
            make_trainer(device="cuda")


def test_pufferlibs_wrapper_trains(make_trainer):
    with make_trainer(policy=lambda vec: LSTMWrapper(vec, default_policy(vec, hidden_size=16), 16, 16)) as trainer:
        assert trainer.updates(2)["clipfrac"] <= 1.0


def test_b14_wrapper_and_trainer_leave_the_weights_of_a_policy_as_they_are(make_trainer, equal):
    expected = {}

    def wrapped(vec):
        policy = default_policy(vec, hidden_size=16)
        expected.update({f"policy.{name}": value.clone() for name, value in policy.state_dict().items()})
        return LSTMWrapper(vec, policy, 16, 16)

    with make_trainer(policy=wrapped) as trainer:
        trainer.evaluate()
        weights = trainer.policy.state_dict()

        assert equal({name: weights[name] for name in expected}, expected)
        # A small gain of the action head: the first policy is close to uniform.
        losses = trainer.train()
        assert losses["entropy"] == pytest.approx(np.log(3), abs=0.05)


def test_num_iterations_ends_the_run_instead_of_total_timesteps(make_trainer):
    with make_trainer(total_timesteps=10**9, num_iterations=2) as trainer:
        assert trainer.total_agent_steps == 128
        while not trainer.done:
            trainer.updates(1)

        assert trainer.epoch == 2


def test_stop_after_updates_keeps_the_schedules_of_the_whole_run(make_trainer):
    with make_trainer(total_timesteps=640, stop_after_updates=2) as trainer:
        rates = []
        while not trainer.done:
            trainer.updates(1)
            rates.append(trainer.learning_rate)

        assert rates == pytest.approx([3e-3, 3e-3 * 0.9])
        assert trainer.total_agent_steps == 640


@pytest.mark.parametrize("anneal_lr", [True, False])
@pytest.mark.parametrize("ent_coef_final", [None, 0.0])
def test_schedules_follow_their_curves_and_what_is_logged_is_what_is_applied(make_trainer, anneal_lr, ent_coef_final):
    with make_trainer(
        num_iterations=10, anneal_lr=anneal_lr, min_lr_ratio=0.5, ent_coef=0.1, ent_coef_final=ent_coef_final
    ) as trainer:
        for index in range(10):
            trainer.updates(1)
            expected = 3e-3 * (1 - 0.5 * index / 10 if anneal_lr else 1.0)
            assert trainer.learning_rate == pytest.approx(expected)
            row = trainer.mean_and_log()
            assert row["learning_rate"] == trainer.learning_rate
            assert row["ent_coef"] == pytest.approx(0.1 if ent_coef_final is None else 0.1 * (1 - index / 10))
        assert trainer.done


def test_an_update_gets_the_scale_of_its_rollout_and_the_scheduled_weight_of_the_entropy(make_trainer, monkeypatch):
    seen = []

    class Watched(Update):
        def __init__(self, *arguments, rewards, ent_coef, **rest):
            seen.append((rewards, ent_coef))
            super().__init__(*arguments, rewards=rewards, ent_coef=ent_coef, **rest)

    monkeypatch.setattr("puffer_train.trainer.Update", Watched)
    with make_trainer(num_iterations=4, ent_coef=0.4, ent_coef_final=0.0) as trainer:
        trainer.updates(1)
        for progress in (0.25, 0.5, 0.75):
            scale = trainer.return_scale.scale
            trainer.updates(1)
            rewards, ent_coef = seen[-1]
            assert trainer.mean_and_log()["ent_coef"] == ent_coef

            torch.testing.assert_close(rewards, trainer.experience.rewards / scale)
            assert trainer.return_scale.scale != scale
            assert ent_coef == pytest.approx(0.4 * (1 - progress))


def test_learning_rate_and_other_fields_change_between_updates(make_trainer):
    with make_trainer(num_iterations=10) as trainer:
        trainer.updates(5)
        trainer.learning_rate = 1e-4
        assert trainer.learning_rate == 1e-4
        trainer.updates(1)
        assert trainer.learning_rate == pytest.approx(1e-4)
        trainer.updates(1)
        assert trainer.learning_rate == pytest.approx(0.8e-4)
        trainer.change(clip_coef=0.1, gamma=0.9)
        assert (trainer.config.clip_coef, trainer.config.gamma) == (0.1, 0.9)
        with pytest.raises(ConfigError, match="gamma must be between"):
            trainer.change(gamma=2.0)
        with pytest.raises(ConfigError, match="got horizon"):
            trainer.change(horizon=4)
        state = trainer.state_dict()
    with make_trainer(num_iterations=10) as trainer:
        trainer.load_state_dict(state)
        assert trainer.config.clip_coef == 0.1


def test_a_learning_rate_between_a_rollout_and_its_update_holds_for_it(make_trainer):
    with make_trainer(total_timesteps=640) as trainer:
        trainer.updates(3)
        trainer.evaluate()
        trainer.learning_rate = 1e-4
        trainer.train()

        assert trainer.learning_rate == pytest.approx(1e-4)
        trainer.updates(1)
        assert trainer.learning_rate == pytest.approx(1e-4 * 6 / 7)


def test_going_back_takes_back_what_was_changed_since(make_trainer):
    with make_trainer() as trainer:
        trainer.change(gamma=0.5)
        trainer.updates(1)
        state = trainer.state_dict()
        trainer.change(gamma=0.7, clip_coef=0.1)
        trainer.load_state_dict(state)

        assert (trainer.config.gamma, trainer.config.clip_coef) == (0.5, 0.2)
        assert trainer.state_dict()["changes"] == {"gamma": 0.5}


CHANGES = {
    "learning_rate": 1e-4,
    "anneal_lr": False,
    "schedule": "cosine",
    "min_lr_ratio": 0.5,
    "total_timesteps": 20_000,
    "num_iterations": 40,
    "update_epochs": 1.5,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "rho_clip": 2.0,
    "trace_clip": 0.5,
    "clip_coef": 0.1,
    "vf_coef": 1.0,
    "vf_clip_coef": 0.1,
    "ent_coef": 0.0,
    "ent_coef_final": 0.1,
    "max_grad_norm": 1.0,
    "reward_clip": 1.0,
    "target_kl": 0.1,
    "stop_after_updates": 30,
    "priority_alpha": 0.5,
    "priority_beta": 0.5,
}


def test_every_field_that_may_change_is_taken_up_by_the_next_update_and_after_a_resume(make_trainer):
    with make_trainer(horizon=2) as trainer:
        for name, value in CHANGES.items():
            trainer.change(**{name: value})
            trainer.updates(1)
        state = trainer.state_dict()
    with make_trainer(horizon=2) as trainer:
        trainer.load_state_dict(state)

        assert {name: getattr(trainer.config, name) for name in CHANGEABLE} == CHANGES
        assert trainer.updates(1)["num_minibatches"] == 6
        assert trainer.learning_rate == 1e-4


def test_b17_logged_losses_are_those_of_the_interval(make_trainer):
    with make_trainer() as trainer:
        trainer.updates(1)
        trainer.mean_and_log()
        reports = []
        for _ in range(2):
            trainer.evaluate()
            reports.append(trainer.train())
        row = trainer.mean_and_log()

        for name in reports[0]:
            assert row[f"losses/{name}"] == pytest.approx((reports[0][name] + reports[1][name]) / 2)
        assert row["epoch"] == 3
        assert row["agent_steps"] == 192
        assert row["SPS"] > 0


def test_an_update_needs_a_rollout_of_its_own(make_trainer):
    message = r"a rollout of its own; there is none. Call evaluate\(\) before train\(\)"
    with make_trainer() as trainer:
        with pytest.raises(RuntimeError, match=message):
            trainer.train()
        trainer.updates(1)
        with pytest.raises(RuntimeError, match=message):
            trainer.train()
        state = trainer.state_dict()
        trainer.evaluate()
        trainer.load_state_dict(state)
        with pytest.raises(RuntimeError, match=message):
            trainer.train()
        assert trainer.epoch == 1


def test_observations_without_dimensions_are_refused(make_trainer):
    class Scalar(PufferEnv):
        single_observation_space, single_action_space, num_agents = Box(-1, 1, ()), Discrete(2), 1

    with pytest.raises(
        ConfigError, match=r"at least one dimension; got Box\(-1.0, 1.0, \(\), float32\). Use shape \(1,\)"
    ):
        make_trainer(env=Scalar)


def test_losses_before_the_first_update_of_an_interval_are_left_out(make_trainer):
    with make_trainer() as trainer:
        assert not any(name.startswith("losses/") for name in trainer.mean_and_log())


def test_a_logger_gets_every_row(make_trainer):
    rows = []

    class Kept:
        def log(self, row):
            rows.append(row)

        def close(self):
            pass

    with make_trainer(logger=Kept()) as trainer:
        trainer.updates(1)
        row = trainer.mean_and_log()

    assert rows == [row]
