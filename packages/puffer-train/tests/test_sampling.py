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


@pytest.mark.parametrize("num_choices", [1, 2, 18])
def test_the_loop_draws_what_the_head_draws(num_choices):
    head = CategoricalHead([num_choices], action_shape=())
    logits = 4.0 * torch.randn(300, num_choices, generator=torch.Generator().manual_seed(0))
    logits[::7, 0] = float("-inf") if num_choices > 1 else 0.0
    noise = np.random.default_rng(0).random((300, 1), np.float32)

    actions, log_probs = Sampler(head, CPU).draw(logits, noise, None)
    expected, expected_log_probs = head.sample_with_log_prob(logits, torch.from_numpy(noise))

    assert torch.equal(actions, expected)
    torch.testing.assert_close(log_probs, expected_log_probs, atol=1e-6, rtol=0)


def test_noise_next_to_1_draws_a_choice_that_can_be():
    logits = torch.tensor([[0.0, 1.0, float("-inf")]])
    noise = np.full((1, 1), np.float32(1.0) - np.float32(2.0**-24))

    actions, log_probs = Sampler(CategoricalHead([3], action_shape=()), CPU).draw(logits, noise, None)

    assert actions.item() == 1
    assert torch.isfinite(log_probs).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_parameters_that_are_not_finite_get_the_head_s_error(bad):
    logits = torch.tensor([[0.0, 0.0], [0.0, bad]])

    with pytest.raises(NonFiniteParametersError):
        Sampler(CategoricalHead([2], action_shape=()), CPU).draw(logits, np.zeros((2, 1), np.float32), None)


def test_masked_actions_are_never_drawn():
    mask = torch.tensor([[False, True]]).expand(64, 2)
    noise = np.linspace(0, 0.99, 64, dtype=np.float32)[:, None]

    actions, _ = Sampler(CategoricalHead([2], action_shape=()), CPU).draw(torch.zeros(64, 2), noise, mask)

    assert actions.eq(1).all()


def test_many_rows_are_drawn_by_the_head(monkeypatch):
    monkeypatch.setattr(sampling, "MAX_NATIVE_LOGITS", 3)
    head = CategoricalHead([2], action_shape=())
    logits, noise = torch.randn(2, 2), np.full((2, 1), 0.5, np.float32)

    actions, _ = Sampler(head, CPU).draw(logits, noise, None)

    assert torch.equal(actions, head.sample(logits, torch.from_numpy(noise)))
