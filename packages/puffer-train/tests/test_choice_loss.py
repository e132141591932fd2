"""The loss from the logits of one choice on, by compiled loops, is that of the head's terms."""

import pytest
import torch

from puffer_policies.discrete import CategoricalHead
from puffer_train.losses import choice_loss, ppo_loss
from puffer_train.native import kernels
from puffer_train.sampling import loops_for

pytestmark = pytest.mark.skipif(kernels() is None, reason="needs the compiled loops")
SETTINGS = {"clip_coef": 0.2, "vf_coef": 0.5, "vf_clip_coef": 0.3, "ent_coef": 0.05}


def draw(num_steps, num_choices, scale=1.0, seed=0):
    """Return logits, choices, values and the other arguments."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(num_steps, num_choices, generator=generator)
    choices = torch.randint(num_choices, (num_steps,), generator=generator, dtype=torch.int32)
    names = ("values", "old_log_probs", "old_values", "advantages", "targets")
    given = {name: torch.randn(num_steps, generator=generator) for name in names}
    given["weights"] = torch.rand(num_steps, generator=generator)
    return logits.requires_grad_(True), choices, given.pop("values").requires_grad_(True), given


def both(logits, choices, values, given, **settings):
    """Return losses and gradients of logits and values, by compiled loops and by the head in float64."""
    settings = {**SETTINGS, **settings}
    loss = choice_loss(logits, choices, values, **given, **settings, native=kernels())
    head = CategoricalHead([logits.shape[1]], action_shape=())
    terms = head._log_prob_and_entropy(logits.double(), choices, None)
    doubles = {name: tensor.double() for name, tensor in given.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("puffer_train.losses.kernels", lambda: None)
        exact = ppo_loss(*terms, values.double(), **doubles, **settings)
    return [(one, *torch.autograd.grad(2.0 * one.total, (logits, values))) for one in (loss, exact)]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_cases_equal_the_head_and_the_loss_in_double(seed):
    generator = torch.Generator().manual_seed(1000 + seed)

    def pick(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    size = pick(1, 2, 33), pick(1, 2, 3, 18)
    logits, choices, values, given = draw(*size, scale=pick(0.01, 1.0, 30.0), seed=seed)
    given["old_log_probs"] = logits.detach().log_softmax(1).gather(1, choices.long()[:, None])[:, 0] + pick(0.0, 0.1)
    (loss, *gradients), (exact, *exact_gradients) = both(logits, choices, values, given, ent_coef=pick(0.0, 0.05))

    torch.testing.assert_close(loss.total.double(), exact.total, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(loss.statistics.double(), exact.statistics, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(loss.ratios.double(), exact.ratios, atol=2e-5, rtol=2e-5)
    for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
        torch.testing.assert_close(gradient, exact_gradient, atol=2e-5, rtol=2e-5)


def test_a_choice_of_probability_0_has_no_gradient():
    logits, choices, values, given = draw(16, 3)
    with torch.no_grad():
        logits[:, 2] = float("-inf")
        choices %= 2
    ((loss, by_logit, _), (exact, exact_by_logit, _)) = both(logits, choices, values, given)

    assert by_logit[:, 2].eq(0.0).all()
    torch.testing.assert_close(by_logit, exact_by_logit, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(loss.total.double(), exact.total, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("column", [0, 1])
def test_nan_reaches_the_loss(column):
    logits, choices, values, given = draw(4, 2)
    with torch.no_grad():
        logits[3, column] = float("nan")

    assert choice_loss(logits, choices, values, **given, **SETTINGS, native=kernels()).total.isnan()


@pytest.mark.parametrize("choice", [-1, 3])
def test_a_choice_that_does_not_exist_is_refused(choice):
    logits, choices, values, given = draw(4, 3)
    choices[2] = choice

    with pytest.raises(ValueError, match="choices must be of 0 to 2"):
        choice_loss(logits, choices, values, **given, **SETTINGS, native=kernels())


def test_shapes_that_do_not_agree_are_refused():
    logits, choices, values, given = draw(4, 3)

    with pytest.raises(ValueError, match=r"weights must be \(num_steps,\)"):
        choice_loss(logits, choices, values, **{**given, "weights": torch.ones(3)}, **SETTINGS, native=kernels())
    with pytest.raises(ValueError, match=r"choices must be \(num_steps,\)"):
        choice_loss(logits, choices[:, None], values, **given, **SETTINGS, native=kernels())
    with pytest.raises(ValueError, match=r"values must be \(num_steps,\), as choices"):
        choice_loss(logits, choices, values[:, None], **given, **SETTINGS, native=kernels())
    with pytest.raises(ValueError, match=r"logits must be \(num_steps, num_choices\)"):
        choice_loss(logits[:3], choices, values, **given, **SETTINGS, native=kernels())


HEADS = {
    "one choice": (CategoricalHead([3], action_shape=()), True),
    "two choices": (CategoricalHead([3, 2]), False),
    "a first choice of 1": (CategoricalHead([3], starts=[1], action_shape=()), False),
    "an action of shape (1,)": (CategoricalHead([3]), False),
    "actions of int64": (CategoricalHead([3], action_shape=(), action_dtype=torch.int64), False),
}


@pytest.mark.parametrize("name", HEADS)
def test_loops_suit_heads_of_one_plain_choice(name):
    head, suits = HEADS[name]

    assert (loops_for(head, torch.zeros(4, head.num_parameters)) is not None) == suits


def test_loops_suit_few_logits_of_the_head_s_width():
    head = CategoricalHead([2], action_shape=())

    assert loops_for(head, torch.zeros(4096, 2)) is not None
    assert loops_for(head, torch.zeros(4097, 2)) is None
    assert loops_for(head, torch.zeros(4, 3)) is None
