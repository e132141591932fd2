"""Optimizers: who updates what, and state round trips."""

import copy

import pytest
import torch
from torch import nn

from puffer_train.config import TrainConfig
from puffer_train.optim import make_optimizer


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def step(model, optimizer, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model(torch.randn(8, 3, generator=generator)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def settings_of(optimizer):
    groups = [group for part in optimizer.parts for group in part.param_groups]
    return [{name: value for name, value in group.items() if name != "params"} for group in groups]


@pytest.mark.parametrize(("name", "torch_class"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_adam_equals_torchs_own(name, torch_class):
    ours, theirs = network(), network()
    optimizer = make_optimizer(TrainConfig(optimizer=name, learning_rate=0.01, weight_decay=0.0), ours.parameters())
    reference = torch_class(theirs.parameters(), lr=0.01, eps=1e-5, weight_decay=0.0)
    for seed in range(20):
        step(ours, optimizer, seed)
        step(theirs, reference, seed)

    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its, atol=1e-6, rtol=0)


def test_muon_gets_the_matrices_and_adamw_the_rest():
    model = network()
    optimizer = make_optimizer(TrainConfig(optimizer="muon"), model.parameters())

    shapes = [[tuple(p.shape) for group in part.param_groups for p in group["params"]] for part in optimizer.parts]
    assert shapes == [[(4, 3)], [(4,), (1, 4), (1,)]]
    before = copy.deepcopy(model.state_dict())
    step(model, optimizer)
    assert all(not torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_state_round_trip_and_learning_rate(name):
    model = network()
    optimizer = make_optimizer(TrainConfig(optimizer=name), model.parameters())
    step(model, optimizer)
    optimizer.learning_rate = 0.5
    copied = copy.deepcopy(model)
    again = make_optimizer(TrainConfig(optimizer=name), copied.parameters())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(model, optimizer, 1)
    step(copied, again, 1)

    assert again.learning_rate == 0.5
    for mine, its in zip(model.parameters(), copied.parameters(), strict=True):
        assert torch.equal(mine, its)


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_a_state_leaves_the_settings_that_were_given(name):
    model = network()
    optimizer = make_optimizer(TrainConfig(optimizer=name), model.parameters())
    step(model, optimizer)
    config = TrainConfig(optimizer=name, adam_eps=0.1, adam_beta1=0.5, weight_decay=0.3, muon_momentum=0.7)
    again = make_optimizer(config, model.parameters())
    given = settings_of(again)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    assert settings_of(again) == given != settings_of(optimizer)
    assert again.parts[0].state[again.parts[0].param_groups[0]["params"][0]]


@pytest.mark.parametrize(("model", "kinds"), [(network(), "Muon and Adam"), (nn.Linear(3, 2, bias=False), "Muon")])
def test_a_state_of_another_optimizer_is_refused(model, kinds):
    state = make_optimizer(TrainConfig(optimizer="muon"), model.parameters()).state_dict()

    with pytest.raises(ValueError, match=f"must be of Adam; got one of {kinds}"):
        make_optimizer(TrainConfig(optimizer="adam"), model.parameters()).load_state_dict(state)


def test_a_policy_without_parameters_is_refused():
    with pytest.raises(ValueError, match="require gradients"):
        make_optimizer(TrainConfig(), [])
