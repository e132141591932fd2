"""Clipping and AdamW by compiled loops are those of torch."""

import copy

import pytest
import torch
from torch import nn

from puffer_train import optim_host
from puffer_train.native import kernels
from puffer_train.optim_host import HostAdamW, clip_gradients, is_small

SETTINGS = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def set_gradients(model, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


def assert_equal(one, other, atol=1e-7):
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, its, atol=atol, rtol=0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_clipping_is_that_of_torch(scale):
    ours, theirs = network(), network()
    for model in (ours, theirs):
        set_gradients(model, 0, scale)

    norm = clip_gradients(list(ours.parameters()), 0.5)
    expected = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)

    assert float(norm) == pytest.approx(expected.item(), rel=1e-6)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, atol=1e-7, rtol=1e-6)


def test_a_gradient_that_is_not_finite_spoils_the_norm():
    model = network()
    set_gradients(model, 0)
    model[0].bias.grad[0] = float("nan")

    assert not torch.isfinite(torch.tensor(clip_gradients(list(model.parameters()), 0.5)))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torch(weight_decay):
    settings = {**SETTINGS, "weight_decay": weight_decay}
    ours, theirs = network(), network()
    optimizers = HostAdamW(ours.parameters(), **settings), torch.optim.AdamW(theirs.parameters(), **settings)
    for seed in range(30):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            set_gradients(model, seed)
            optimizer.step()

    assert_equal(ours, theirs, atol=1e-6)


@pytest.mark.skipif(kernels() is None, reason="needs the compiled loops")
def test_the_first_step_only_is_torchs(monkeypatch):
    model = network()
    optimizer = HostAdamW(model.parameters(), **SETTINGS)
    steps = []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, closure=None: steps.append(1))
    set_gradients(model, 0)
    optimizer.step()
    for parameter in model.parameters():
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.zeros(()), **moments}
    optimizer.step()

    assert len(steps) == 1


@pytest.mark.parametrize("is_ours_first", [True, False])
def test_the_state_goes_on_with_the_other_form(is_ours_first):
    kinds = (HostAdamW, torch.optim.AdamW)
    first, second = kinds if is_ours_first else kinds[::-1]
    model = network()
    optimizer = first(model.parameters(), **SETTINGS)
    for seed in range(3):
        set_gradients(model, seed)
        optimizer.step()
    other = copy.deepcopy(model)
    again = second(other.parameters(), **SETTINGS)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, stepped in ((model, optimizer), (other, again)):
        set_gradients(each, 3)
        stepped.step()

    assert_equal(model, other)


def test_parameters_without_a_gradient_stand_still():
    ours, theirs = network(), network()
    optimizers = HostAdamW(ours.parameters(), **SETTINGS), torch.optim.AdamW(theirs.parameters(), **SETTINGS)
    for seed in range(4):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            set_gradients(model, seed)
            model[seed % 2 * 2].bias.grad = None
            optimizer.step()

    assert_equal(ours, theirs)


def test_moments_of_another_shape_are_refused():
    model = network()
    optimizer = HostAdamW(model.parameters(), **SETTINGS)
    for seed in range(2):
        set_gradients(model, seed)
        optimizer.step()
    optimizer.state[model[0].weight]["exp_avg"] = torch.zeros(2)

    with pytest.raises((ValueError, RuntimeError)):
        optimizer.step()


def test_large_or_strided_or_double_tensors_go_torchs_way(monkeypatch):
    assert is_small([torch.zeros(3, 4)])
    assert not is_small([torch.zeros(3, 4).t()])
    assert not is_small([torch.zeros(3, dtype=torch.float64)])
    monkeypatch.setattr(optim_host, "MAX_PARAMETERS", 11)
    assert not is_small([torch.zeros(3, 4)])
