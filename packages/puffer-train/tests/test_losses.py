"""The loss against the textbook, and what masks leave of it."""

import pytest
import torch

from puffer_train.advantages import masked_moments
from puffer_train.losses import STATISTIC_NAMES, explained_variance, ppo_loss
from puffer_train.native import kernels

CURRENT = ("log_probs", "entropies", "values")
SETTINGS = {"clip_coef": 0.2, "vf_coef": 0.5, "vf_clip_coef": None, "ent_coef": 0.01}


@pytest.fixture(autouse=True, params=["one loop", "plain operations"])
def form(request, monkeypatch):
    if request.param == "plain operations":
        monkeypatch.setattr("puffer_train.losses.kernels", lambda: None)
    elif kernels() is None:
        pytest.skip("needs the compiled loops")


def sample(num_steps=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    names = ("log_probs", "entropies", "values", "old_log_probs", "old_values", "advantages", "targets")
    tensors = {name: torch.randn(num_steps, generator=generator) for name in names}
    for name in CURRENT:
        tensors[name].requires_grad_(True)
    return tensors


def loss_of(tensors, weights, **settings):
    given = dict(tensors)
    current = [given.pop(name) for name in CURRENT]
    return ppo_loss(*current, **given, weights=weights, **{**SETTINGS, **settings})


def statistic(loss, name):
    return loss.statistics[STATISTIC_NAMES.index(name)].item()


@pytest.mark.parametrize("vf_clip_coef", [None, 0.3])
def test_equals_the_textbook(vf_clip_coef):
    tensors = sample()
    loss = loss_of(tensors, torch.full((40,), 1 / 40), vf_clip_coef=vf_clip_coef)

    log_ratio = tensors["log_probs"] - tensors["old_log_probs"]
    ratio = log_ratio.exp()
    surrogate = torch.min(ratio * tensors["advantages"], ratio.clamp(0.8, 1.2) * tensors["advantages"])
    error = (tensors["values"] - tensors["targets"]) ** 2
    if vf_clip_coef is not None:
        moved = torch.clamp(tensors["values"] - tensors["old_values"], -vf_clip_coef, vf_clip_coef)
        error = torch.max(error, (tensors["old_values"] + moved - tensors["targets"]) ** 2)
    expected = -surrogate.mean() + 0.5 * 0.5 * error.mean() - 0.01 * tensors["entropies"].mean()
    torch.testing.assert_close(loss.total, expected)
    current = [tensors[name] for name in CURRENT]
    gradients = [torch.autograd.grad(3.0 * total, current) for total in (loss.total, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(loss.ratios, ratio.detach())
    assert statistic(loss, "entropy") == pytest.approx(tensors["entropies"].mean().item(), rel=1e-5)
    assert statistic(loss, "policy_loss") == pytest.approx(-surrogate.mean().item(), rel=1e-5)
    assert statistic(loss, "value_loss") == pytest.approx(0.5 * error.mean().item(), rel=1e-5)
    assert statistic(loss, "old_approx_kl") == pytest.approx(-log_ratio.mean().item(), rel=1e-4)
    assert statistic(loss, "approx_kl") == pytest.approx((ratio - 1 - log_ratio).mean().item(), rel=1e-4)
    assert statistic(loss, "clipfrac") == pytest.approx(((ratio - 1).abs() > 0.2).float().mean().item())
    assert statistic(loss, "importance") == pytest.approx(ratio.mean().item(), rel=1e-5)


def loss_in_double(tensors, weights, *, clip_coef, vf_coef, vf_clip_coef, ent_coef):
    """Return the total, the statistics by name and the gradients, all in float64."""
    given = {name: value.detach().double() for name, value in tensors.items()}
    current = [given[name].requires_grad_(True) for name in CURRENT]
    log_ratios = given["log_probs"] - given["old_log_probs"]
    ratios = log_ratios.exp()
    gains = given["advantages"] * ratios, given["advantages"] * ratios.clamp(1 - clip_coef, 1 + clip_coef)
    squares = (given["values"] - given["targets"]) ** 2
    if vf_clip_coef is not None:
        near = given["old_values"] + (given["values"] - given["old_values"]).clamp(-vf_clip_coef, vf_clip_coef)
        squares = torch.maximum(squares, (near - given["targets"]) ** 2)
    terms = {
        "policy_loss": -torch.minimum(*gains),
        "value_loss": 0.5 * squares,
        "entropy": given["entropies"],
        "old_approx_kl": -log_ratios,
        "approx_kl": ratios - 1 - log_ratios,
        "clipfrac": ((ratios - 1).abs() > clip_coef).double(),
        "importance": ratios,
    }
    sums = {name: (weights.double() * term).sum() for name, term in terms.items()}
    total = sums["policy_loss"] + vf_coef * sums["value_loss"] - ent_coef * sums["entropy"]
    return total, sums, torch.autograd.grad(total, current)


@pytest.mark.parametrize("seed", range(150))
def test_drawn_cases_equal_the_loss_in_double(seed):
    generator = torch.Generator().manual_seed(seed)

    def draw(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    tensors = sample(draw(1, 2, 5, 33), seed)
    settings = {"clip_coef": draw(0.1, 0.2, 0.5), "vf_clip_coef": draw(None, 0.3, 100.0), "vf_coef": draw(0.0, 2.0)}
    settings["ent_coef"] = draw(0.0, 0.01)
    scale = draw(1e-3, 1.0, 8.0)
    ratios = 1.0 + scale * torch.randn(len(tensors["values"]), generator=generator)
    ratios[(ratios < 0.01) | (((ratios - 1.0).abs() - settings["clip_coef"]).abs() < 1e-4)] = 1.0
    tensors["old_log_probs"] = tensors["log_probs"].detach() - ratios.log()
    tensors["advantages"] *= draw(0.0, 1.0, 1e3)
    tensors["targets"] = tensors["targets"] * draw(1.0, 1e3)
    weights = torch.rand(len(ratios), generator=generator) * (torch.rand(len(ratios), generator=generator) < 0.7)
    column = torch.stack([weights, weights], 1)[:, 0]  # strided

    loss = loss_of(tensors, column, **settings)
    gradients = torch.autograd.grad(loss.total, [tensors[name] for name in CURRENT])
    total, sums, expected_gradients = loss_in_double(tensors, weights, **settings)

    torch.testing.assert_close(loss.total.double(), total, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.statistics.double(), torch.stack([*sums.values()]), rtol=1e-4, atol=1e-5)
    for found, expected in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_no_steps_have_no_loss():
    loss = loss_of(sample(0), torch.zeros(0))
    loss.total.backward()

    assert loss.total.item() == 0.0
    assert (loss.statistics == 0.0).all()


@pytest.mark.parametrize("name", ["log_probs", "values", "old_log_probs", "advantages", "targets", "entropies"])
def test_a_number_that_is_none_spoils_loss_and_gradient(name):
    tensors = sample(5)
    with torch.no_grad():
        tensors[name][2] = float("nan")

    loss = loss_of(tensors, torch.full((5,), 0.2))
    by_log_prob, _, by_value = torch.autograd.grad(loss.total, [tensors[name] for name in CURRENT])

    assert torch.isnan(loss.total)
    if name in ("log_probs", "old_log_probs", "advantages"):
        assert torch.isnan(by_log_prob).tolist() == [False, False, True, False, False]
    elif name != "entropies":
        assert torch.isnan(by_value).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("name", ["entropies", "values", "old_values", "advantages", "targets", "old_log_probs"])
def test_a_tensor_of_another_length_is_refused(name):
    tensors = sample(5)
    tensors[name] = tensors[name][:4]

    with pytest.raises(ValueError, match=rf"{name} must be \(num_steps,\)"):
        loss_of(tensors, torch.full((5,), 0.2))


def test_b2_b6_padding_changes_neither_loss_nor_gradients():
    tensors = sample(20)
    loss_of(tensors, torch.full((20,), 1 / 20)).total.backward()
    padded = {
        name: torch.cat([value.detach(), 1e3 * torch.ones(13)]).requires_grad_(value.requires_grad)
        for name, value in tensors.items()
    }
    weights = torch.cat([torch.full((20,), 1 / 20), torch.zeros(13)])
    # Padding has a ratio of 1, as two evaluations of the same row give.
    loss = loss_of(padded, weights)
    loss.total.backward()

    torch.testing.assert_close(loss.total, loss_of(tensors, torch.full((20,), 1 / 20)).total)
    for name in CURRENT:
        torch.testing.assert_close(padded[name].grad[:20], tensors[name].grad)
        assert (padded[name].grad[20:] == 0).all()


def test_b13_parts_of_a_minibatch_add_up_to_it():
    tensors = sample(30)
    weights = torch.full((30,), 1 / 30)
    whole = loss_of(tensors, weights)
    parts = [
        loss_of({name: value[part] for name, value in tensors.items()}, weights[part])
        for part in (slice(0, 7), slice(7, 20), slice(20, 30))
    ]

    torch.testing.assert_close(sum(part.total for part in parts), whole.total)
    torch.testing.assert_close(sum(part.statistics for part in parts), whole.statistics)


def test_policy_gradient_at_ratio_one_is_the_advantage_times_the_score():
    """A softmax of two actions: d/dlogit of -mean(A log π) = -mean(A (onehot - π))."""
    logits = torch.zeros(4, 2, requires_grad=True)
    actions = torch.tensor([0, 1, 0, 1])
    advantages = torch.tensor([1.0, -2.0, 3.0, 0.5])
    log_probs = logits.log_softmax(1).gather(1, actions[:, None])[:, 0]
    zeros = torch.zeros(4)

    loss = ppo_loss(
        log_probs,
        zeros,
        zeros,
        old_log_probs=log_probs.detach(),
        old_values=zeros,
        advantages=advantages,
        targets=zeros,
        weights=torch.full((4,), 0.25),
        **SETTINGS,
    )
    loss.total.backward()

    one_hot = torch.nn.functional.one_hot(actions, 2).float()
    torch.testing.assert_close(logits.grad, -0.25 * advantages[:, None] * (one_hot - 0.5))


@pytest.mark.parametrize(
    ("ratio", "advantage", "has_gradient"), [(1.5, 1, False), (1.5, -1, True), (0.5, 1, True), (0.5, -1, False)]
)
def test_clipping_stops_the_gradient_only_where_the_policy_has_gone_too_far(ratio, advantage, has_gradient):
    log_probs = torch.tensor([ratio]).log().requires_grad_(True)
    zero = torch.zeros(1)
    loss = ppo_loss(
        log_probs,
        zero,
        zero,
        old_log_probs=zero,
        old_values=zero,
        advantages=torch.tensor([float(advantage)]),
        targets=zero,
        weights=torch.ones(1),
        **SETTINGS,
    )
    loss.total.backward()

    assert (log_probs.grad.abs().item() > 0) is has_gradient


def test_b17_explained_variance_by_hand():
    valid = torch.tensor([[True, True, True, False]])

    def explained(targets, values):
        targets, values = torch.tensor([targets]), torch.tensor([values])
        return explained_variance(masked_moments(targets, valid), masked_moments(targets - values, valid)).item()

    assert explained([1.0, 2.0, 3.0, 99.0], [1.0, 2.0, 3.0, 0.0]) == 1.0
    assert explained([1.0, 2.0, 3.0, 99.0], [0.0, 0.0, 0.0, 0.0]) == pytest.approx(0.0)
    assert explained([1.0, 2.0, 3.0, 99.0], [1.0, 2.0, 2.0, 0.0]) == pytest.approx(1 - 1 / 3)
    assert explained([1.0, 1.0, 1.0, 99.0], [0.0, 0.0, 0.0, 0.0]) == 0.0
    assert explained_variance(torch.zeros(1, 3), torch.zeros(1, 3)).item() == 0.0
