"""A run that was saved and loaded goes on as if nothing had happened."""

import copy

import pytest
import torch
from torch import nn

from puffer_train.checkpoint import read_checkpoint


def with_dropout(vec):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.Tanh())

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor, self.critic = body, nn.Linear(16, 3), nn.Linear(16, 1)

        def forward(self, observations):
            hidden = self.body(observations)
            return self.actor(hidden), self.critic(hidden)

    return Policy()


RUNS = {
    "mlp": {},
    "memory": {"memory": True},
    "muon": {"optimizer": "muon", "update_epochs": 1.5},
    "puffer3": {"preset": "puffer3", "horizon": 8},
    "dropout": {"policy": with_dropout},
    "asynchronous": {"memory": True, "vec_options": {"batch_size": 4, "backend": "threads", "num_workers": 2}},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_b16_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(make_trainer, equal, options, tmp_path):
    with make_trainer(**options) as trainer:
        trainer.updates(3)
        path = trainer.save_checkpoint(tmp_path / "half.pt")
        trainer.updates(3)
        expected = trainer.state_dict()
        row = trainer.mean_and_log()

    with make_trainer(**options) as trainer:
        trainer.load_checkpoint(path)
        trainer.updates(3)
        state = trainer.state_dict()
        resumed_row = trainer.mean_and_log()

    for name in expected:
        assert equal(state[name], expected[name]), name
    for name, value in row.items():
        if not name.startswith(("SPS", "uptime", "performance/")):
            assert resumed_row[name] == value, name


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_later_updates_leave_a_state_as_it_was(make_trainer, equal, optimizer):
    options = {"optimizer": optimizer, "normalize_observations": True}
    with make_trainer(**options) as trainer, make_trainer(**options) as other:
        trainer.updates(2)
        state = trainer.state_dict()
        kept = copy.deepcopy(state)
        trainer.updates(1)
        other.load_state_dict(state)
        other.updates(1)

        assert equal(state, kept)
        for name in ("policy", "optimizer", "normalizer"):
            assert equal(other.state_dict()[name], trainer.state_dict()[name])


def test_state_holds_tensors_and_plain_values_only(make_trainer, equal, tmp_path):
    with make_trainer(True) as trainer:
        trainer.updates(1)
        path = trainer.save_checkpoint(tmp_path / "checkpoint.pt", {"score": 3.0})
        state, metadata = read_checkpoint(path)

        assert equal(dict(state["policy"]), dict(trainer.policy.state_dict()))
        assert (metadata["update"], metadata["agent_steps"], metadata["score"]) == (1, 64, 3.0)
        assert metadata["config"]["train"]["horizon"] == 8


def test_counters_go_on_after_a_resume(make_trainer, tmp_path):
    with make_trainer(total_timesteps=640) as trainer:
        trainer.updates(5)
        path = trainer.save_checkpoint(tmp_path / "half.pt")
    with make_trainer(total_timesteps=640) as trainer:
        trainer.load_checkpoint(path)
        epochs = []
        while not trainer.done:
            trainer.updates(1)
            epochs.append(trainer.epoch)
            assert trainer.agent_steps > 320

        assert trainer.agent_steps == 640
        assert epochs == [6, 7, 8, 9, 10]


def test_a_run_may_go_on_with_another_number_of_envs(make_trainer, tmp_path):
    with make_trainer() as trainer:
        trainer.updates(2)
        path = trainer.save_checkpoint(tmp_path / "half.pt")
    with make_trainer(vec_options={"num_envs": 4}) as trainer:
        trainer.load_checkpoint(path)
        trainer.updates(1)

        assert trainer.epoch == 3


@pytest.mark.parametrize("vec_options", [{}, {"batch_size": 4, "backend": "threads", "num_workers": 2}])
def test_a_trainer_that_goes_back_without_a_state_of_its_envs_begins_new_episodes(make_trainer, cells, vec_options):
    class Forgetful(cells):
        has_state = False

    with make_trainer(True, env=Forgetful, vec_options=vec_options) as trainer:
        trainer.updates(1)
        state = copy.deepcopy(trainer.state_dict())
        trainer.updates(1)
        trainer.load_state_dict(state)
        assert (trainer.return_scale.returns == 0).all()
        stats = trainer.evaluate()

        assert stats["agent_steps"] == 64
        assert trainer.experience.valid.all()
        assert all((part == 0).all() for part in trainer.experience.states)


def test_a_compiled_or_distributed_policys_names_load(make_trainer, tmp_path):
    with make_trainer() as trainer:
        trainer.updates(1)
        state = trainer.state_dict()
        expected = trainer.weights()
    for prefix in ("_orig_mod.", "module."):
        renamed = {**state, "policy": {prefix + name: value for name, value in state["policy"].items()}}
        with make_trainer() as trainer:
            trainer.load_state_dict(copy.deepcopy(renamed))

            assert torch.equal(trainer.weights(), expected)
