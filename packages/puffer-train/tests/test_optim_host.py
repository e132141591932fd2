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


@pytest.mark.parametrize("seed", range(40))
def test_drawn_gradients_are_clipped_as_in_double(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 11, (seed % 5,), generator=generator).tolist()
    parameters = [nn.Parameter(torch.zeros(size)) for size in (*sizes, 3)]
    for parameter in parameters[:-1]:  # the last has none
        parameter.grad = 10.0 ** (seed % 7 - 3) * torch.randn(parameter.shape, generator=generator)
    before = [parameter.grad.double() for parameter in parameters[:-1]]

    norm = clip_gradients(parameters, 0.5)
    expected = torch.cat([torch.zeros(1, dtype=torch.float64), *before]).norm()

    assert float(norm) == pytest.approx(expected.item(), rel=1e-6)
    assert parameters[-1].grad is None
    for parameter, gradient in zip(parameters, before, strict=False):
        scaled = gradient * min(1.0, 0.5 / (expected.item() + 1e-6))
        torch.testing.assert_close(parameter.grad.double(), scaled, rtol=1e-6, atol=1e-9)


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


@pytest.mark.parametrize("seed", range(40))
def test_drawn_steps_are_those_of_torch_in_double(seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    shapes = [(), (1,), (3, 5), (0, 2), (7,)][: draw(1, 3, 5)]
    starts = [torch.randn(shape, generator=generator) for shape in shapes]
    ours = [nn.Parameter(start.clone()) for start in starts]
    exact = [nn.Parameter(start.double()) for start in starts]
    settings = {"lr": 0.1, "betas": draw((0.9, 0.999), (0.0, 0.5), (0.5, 0.0)), "eps": draw(1e-8, 1e-3)}
    settings["weight_decay"] = draw(0.0, 0.1, 3.0)
    optimizers = HostAdamW(ours, fused=True, **settings), torch.optim.AdamW(exact, **settings)
    for _ in range(15):
        learning_rate, scale = draw(0.1, 1e-3, 0.0), draw(1e-4, 1.0, 1e4)
        for one, other in zip(ours, exact, strict=True):
            one.grad = scale * torch.randn(one.shape, generator=generator)
            other.grad = one.grad.double()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = learning_rate
            optimizer.step()

    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_a_shared_parameter_takes_one_step():
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.Tanh(), layer)
    other = copy.deepcopy(model)
    optimizers = HostAdamW(model.parameters(), **SETTINGS), torch.optim.AdamW(other.parameters(), **SETTINGS)
    for _ in range(3):
        for each, optimizer in zip((model, other), optimizers, strict=True):
            optimizer.zero_grad()
            each(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()

    assert_equal(model, other, atol=1e-6)


def test_a_graph_from_before_a_step_is_not_differentiated():
    model = network()
    optimizer = HostAdamW(model.parameters(), **SETTINGS)
    for seed in range(2):
        set_gradients(model, seed)
        optimizer.step()
    loss = model(torch.ones(1, 3)).sum()
    optimizer.step()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_closure_is_called_at_each_step():
    model = network()
    optimizer = HostAdamW(model.parameters(), **SETTINGS)
    calls = []

    def closure():
        calls.append(1)
        set_gradients(model, len(calls))
        return torch.tensor(5.0)

    assert [float(optimizer.step(closure)) for _ in range(3)] == [5.0] * 3
    assert len(calls) == 3


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_options_that_the_loop_lacks_go_torchs_way(option):
    ours, theirs = network(), network()
    settings = {**SETTINGS, option: True}
    optimizers = HostAdamW(ours.parameters(), **settings), torch.optim.AdamW(theirs.parameters(), **settings)
    for seed in range(5):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            set_gradients(model, seed)
            optimizer.step()

    assert_equal(ours, theirs)


def test_a_state_that_was_only_looked_at_is_made():
    model = network()
    optimizer = HostAdamW(model.parameters(), **SETTINGS)
    assert not any(optimizer.state[parameter] for parameter in model.parameters())
    set_gradients(model, 0)
    optimizer.step()

    assert optimizer.state[model[0].weight]["step"].item() == 1.0


def test_a_state_of_another_memory_format_or_dtype_goes_torchs_way():
    ours, theirs = network(), network()
    optimizers = HostAdamW(ours.parameters(), **SETTINGS), torch.optim.AdamW(theirs.parameters(), **SETTINGS)
    for seed in range(4):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            set_gradients(model, seed)
            optimizer.step()
            state = optimizer.state[model[0].weight]
            state["exp_avg"] = state["exp_avg"].t().contiguous().t()
            state["step"] = state["step"].double()

    assert_equal(ours, theirs)


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
