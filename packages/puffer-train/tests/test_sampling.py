"""Actions drawn by the compiled loop are those of the head."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from puffer_policies import NonFiniteParametersError
from puffer_policies.discrete import CategoricalHead
from puffer_train import sampling
from puffer_train.sampling import Sampler

CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")
EXTREMES = np.array([-np.inf, -3e38, -1e30, -200.0, -88.0, 0.0], np.float32)


def draw(head, logits, noise, mask=None, values=None, check=lambda: None):
    values = torch.zeros(len(logits)) if values is None else values
    return Sampler(head, CPU).draw(logits, values, noise, mask, check)


@pytest.mark.parametrize("num_choices", [1, 2, 18])
def test_the_loop_draws_what_the_head_draws(num_choices):
    head = CategoricalHead([num_choices], action_shape=())
    logits = 4.0 * torch.randn(300, num_choices, generator=torch.Generator().manual_seed(0))
    logits[::7, 0] = float("-inf") if num_choices > 1 else 0.0
    noise = np.random.default_rng(0).random((300, 1), np.float32)

    actions, log_probs = draw(head, logits, noise)
    expected, expected_log_probs = head.sample_with_log_prob(logits, torch.from_numpy(noise))

    assert torch.equal(actions, expected)
    torch.testing.assert_close(log_probs, expected_log_probs, atol=1e-6, rtol=0)


def test_noise_next_to_1_draws_a_choice_that_can_be():
    logits = torch.tensor([[0.0, 1.0, float("-inf")]])
    noise = np.full((1, 1), np.float32(1.0) - np.float32(2.0**-24))

    actions, log_probs = draw(CategoricalHead([3], action_shape=()), logits, noise)

    assert actions.item() == 1
    assert torch.isfinite(log_probs).all()


@pytest.mark.parametrize(
    "row", [[NAN, 0, 1], [0, NAN, 1], [0, 1, NAN], [-INF, NAN, 0], [0, INF, 1], [-INF, -INF, -INF]]
)
def test_parameters_that_are_not_finite_get_the_head_s_error(row):
    logits = torch.tensor([[0.0, 0.0, 0.0], row])

    with pytest.raises(NonFiniteParametersError):
        draw(CategoricalHead([3], action_shape=()), logits, np.zeros((2, 1), np.float32))


@pytest.mark.parametrize(("shape", "noise_shape"), [((2, 5), (2, 1)), ((4, 3), (1, 1)), ((2, 3), (2, 0))])
def test_shapes_that_do_not_fit_get_the_head_s_error(shape, noise_shape):
    with pytest.raises(ValueError, match="must be"):
        draw(CategoricalHead([3], action_shape=()), torch.zeros(shape), np.zeros(noise_shape, np.float32))


@pytest.mark.parametrize("seed", range(200))
def test_drawn_cases_invert_the_distribution(seed):
    rng = np.random.default_rng(seed)
    rows, num_choices = int(rng.integers(0, 20)), int(rng.integers(1, 40))
    logits = rng.normal(0, 10.0 ** rng.integers(-3, 4), (num_choices, rows)).astype(np.float32).T  # strided
    logits = np.where(rng.random(logits.shape) < 0.2, rng.choice(EXTREMES), logits)
    logits[:, rng.integers(num_choices)] = rng.normal()
    noise = rng.random((rows, 1), np.float32)
    noise[rng.random(rows) < 0.3] = rng.choice([0.0, 1.0 - 2.0**-24])

    head = CategoricalHead([num_choices], action_shape=())
    actions, log_probs = draw(head, torch.from_numpy(logits), noise)

    exact = torch.from_numpy(logits).double().log_softmax(1)
    after = exact.exp().cumsum(1)
    before = after - exact.exp()
    chosen = actions.long()[:, None]
    torch.testing.assert_close(log_probs, exact.gather(1, chosen)[:, 0].float(), atol=2e-6, rtol=1e-6)
    assert torch.isfinite(log_probs).all()
    assert (before.gather(1, chosen).numpy() <= noise + 1e-5).all()
    assert (noise <= after.gather(1, chosen).numpy() + 1e-5).all()


@pytest.mark.parametrize(("value", "is_checked"), [(0.0, False), (NAN, True), (INF, True), (-INF, True)])
def test_what_the_loop_finds_not_finite_is_checked_before_the_head_draws(value, is_checked):
    checked = []
    head = CategoricalHead([2], action_shape=())

    draw(
        head,
        torch.zeros(3, 2),
        np.zeros((3, 1), np.float32),
        None,
        torch.tensor([0.0, value, 1.0]),
        lambda: checked.append(1),
    )

    assert bool(checked) == is_checked


def test_masked_actions_are_never_drawn():
    mask = torch.tensor([[False, True]]).expand(64, 2)
    noise = np.linspace(0, 0.99, 64, dtype=np.float32)[:, None]

    actions, _ = draw(CategoricalHead([2], action_shape=()), torch.zeros(64, 2), noise, mask)

    assert actions.eq(1).all()


def test_many_rows_are_drawn_by_the_head(monkeypatch):
    monkeypatch.setattr(sampling, "MAX_NATIVE_LOGITS", 3)
    head = CategoricalHead([2], action_shape=())
    logits, noise = torch.randn(2, 2), np.full((2, 1), 0.5, np.float32)

    checked = []

    actions, _ = draw(head, logits, noise, check=lambda: checked.append(1))

    assert torch.equal(actions, head.sample(logits, torch.from_numpy(noise)))
    assert checked  # the loop would have seen for itself
