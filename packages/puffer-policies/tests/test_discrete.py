import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions

from puffer_policies import BernoulliHead, CategoricalHead, NonFiniteParametersError

NVECS = [[4], [2, 2, 2], [3, 5, 5, 2], [1, 7]]


def reference(head, logits, actions):
    """Sum torch's own Categoricals."""
    parts = logits.split(list(head.nvec), 1)
    columns = actions.reshape(len(actions), -1).long().unbind(1)
    dists = [distributions.Categorical(logits=part) for part in parts]
    log_prob = sum(dist.log_prob(column) for dist, column in zip(dists, columns, strict=True))
    return log_prob, sum(dist.entropy() for dist in dists)


@pytest.mark.parametrize("nvec", NVECS)
def test_log_prob_entropy_and_gradients_equal_torch(nvec):
    head = CategoricalHead(nvec)
    logits = (3 * torch.randn(50, sum(nvec))).requires_grad_()
    actions = head.sample(logits, torch.rand(50, head.num_noise))
    weights = torch.randn(2, 50)

    got, expected = head.log_prob_and_entropy(logits, actions), reference(head, logits, actions)

    for left, right in zip(got, expected, strict=True):
        assert left.shape == (50,)
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    left, right = (torch.autograd.grad([*pair], logits, [*weights])[0] for pair in (got, expected))
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head.log_prob(logits, actions), got[0])
    torch.testing.assert_close(head.entropy(logits), got[1])


def test_bernoulli_equals_torch():
    head = BernoulliHead(3)
    logits = torch.randn(40, 3, requires_grad=True)
    actions = head.sample(logits, torch.rand(40, 3))
    dist = distributions.Bernoulli(logits=logits)
    expected = dist.log_prob(actions.float()).sum(1), dist.entropy().sum(1)
    weights = torch.randn(2, 40)

    got = head.log_prob_and_entropy(logits, actions)

    for left, right in zip(got, expected, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    left, right = (torch.autograd.grad([*pair], logits, [*weights])[0] for pair in (got, expected))
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", [CategoricalHead([4], action_shape=()), CategoricalHead([3, 2]), BernoulliHead(2)])
def test_samples_follow_the_probabilities(head):
    rows = 40_000
    logits = torch.randn(1, head.num_parameters)
    noise = (torch.arange(rows) + 0.5) / rows
    noise = torch.stack([noise[torch.randperm(rows)] for _ in range(head.num_noise)], 1)

    actions = head.sample(logits.expand(rows, -1), noise).reshape(rows, -1)

    for index, values in enumerate(actions.unbind(1)):
        for value in range(head.nvec[index]):
            one = actions[:1].clone()
            one[0, index] = value
            others = [list(range(n)) for n in head.nvec]
            others[index] = [value]
            combinations = torch.cartesian_prod(*[torch.tensor(choices) for choices in others]).reshape(
                -1, len(head.nvec)
            )
            expected = head.log_prob(logits.expand(len(combinations), -1), combinations).exp().sum()
            assert abs(float((values == value).float().mean()) - float(expected)) < 1e-3


def test_action_is_a_step_function_of_the_noise():
    head = CategoricalHead([3], action_shape=())
    logits = torch.log(torch.tensor([[0.25, 0.5, 0.25]])).expand(5, -1)
    noise = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 1.0 - 2.0**-24])

    actions = head.sample(logits, noise)

    assert actions.tolist() == [0, 0, 1, 1, 2]
    assert actions.dtype == torch.int32
    assert actions.shape == (5,)


def test_double_noise_that_rounds_to_one_stays_inside():
    head = CategoricalHead([3], action_shape=())

    actions = head.sample(torch.zeros(1, 3), torch.tensor([[1.0 - 1e-12]], dtype=torch.float64))

    assert actions.tolist() == [2]


@given(st.integers(1, 40), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_actions_do_not_depend_on_the_split_of_the_batch(cut, seed):
    generator = torch.Generator().manual_seed(seed)
    head = CategoricalHead([4, 4, 3])
    logits = torch.randn(41, 11, generator=generator)
    noise = torch.rand(41, 3, generator=generator)

    whole = head.sample(logits, noise)

    parts = [head.sample(logits[:cut], noise[:cut]), head.sample(logits[cut:], noise[cut:])]
    assert torch.equal(whole, torch.cat(parts))


def test_starts_shift_the_actions():
    head = CategoricalHead([3, 2], starts=[5, -1])
    logits = torch.randn(20, 5)

    actions = head.sample(logits, torch.rand(20, 2))

    assert set(actions[:, 0].tolist()) <= {5, 6, 7}
    assert set(actions[:, 1].tolist()) <= {-1, 0}
    plain = CategoricalHead([3, 2])
    torch.testing.assert_close(
        head.log_prob(logits, actions), plain.log_prob(logits, actions - torch.tensor([5, -1], dtype=torch.int32))
    )
    assert torch.equal(head.mode(logits), plain.mode(logits) + torch.tensor([5, -1], dtype=torch.int32))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_masked_choices_have_probability_and_gradient_exactly_zero(data):
    nvec = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    head = CategoricalHead(nvec)
    seed = data.draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    rows = 64
    mask = torch.rand(rows, sum(nvec), generator=generator) < 0.6
    for part in mask.split(nvec, 1):
        part[:, 0] |= ~part.any(1)
    logits = (20 * torch.randn(rows, sum(nvec), generator=generator)).requires_grad_()
    noise = torch.rand(rows, len(nvec), generator=generator)
    noise[:2] = torch.tensor([[0.0], [1.0 - 2.0**-24]])

    actions = head.sample(logits, noise, mask)
    log_prob, entropy = head.log_prob_and_entropy(logits, actions, mask)
    grad = torch.autograd.grad((log_prob + 3 * entropy).sum(), logits)[0]

    offsets = torch.tensor([0, *nvec[:-1]]).cumsum(0)
    assert mask.gather(1, actions.long() + offsets).all()
    assert mask.gather(1, head.mode(logits, mask).long() + offsets).all()
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(entropy).all()
    assert torch.isfinite(grad).all()
    assert not grad[~mask].any()
    expected = reference(head, torch.where(mask, logits, torch.tensor(-1e30)).detach().double(), actions)
    torch.testing.assert_close(log_prob.double(), expected[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(entropy.double(), expected[1], atol=1e-4, rtol=1e-4)


def test_probability_of_a_masked_action_is_exactly_zero():
    head = CategoricalHead([3], action_shape=())
    mask = torch.tensor([[True, False, True]])

    log_prob = head.log_prob(torch.zeros(1, 3), torch.tensor([1]), mask)

    assert log_prob.exp().item() == 0.0
    assert math.isfinite(log_prob.item())


def test_row_without_an_allowed_choice_is_uniform_with_gradient_zero():
    head = CategoricalHead([4], action_shape=())
    logits = torch.randn(1, 4, requires_grad=True)
    mask = torch.zeros(1, 4, dtype=torch.bool)

    log_prob, entropy = head.log_prob_and_entropy(logits, torch.tensor([2]), mask)

    assert log_prob.item() == pytest.approx(-math.log(4))
    assert entropy.item() == pytest.approx(math.log(4))
    assert not torch.autograd.grad(log_prob + entropy, logits)[0].any()
    assert [head.sample(logits, torch.tensor([[u]]), mask).item() for u in (0.1, 0.4, 0.6, 0.9)] == [0, 1, 2, 3]


def test_mask_of_a_bernoulli_forces_bits():
    head = BernoulliHead(2)
    mask = torch.tensor([[True, False, False, True]])

    assert head.sample(torch.tensor([[50.0, -50.0]]), torch.tensor([[0.99, 0.01]]), mask).tolist() == [[0, 1]]


def test_infinite_negative_logits_are_masks():
    head = CategoricalHead([3], action_shape=())
    logits = torch.tensor([[0.0, -math.inf, 0.0]], requires_grad=True)

    actions = head.sample(logits.expand(3, -1), torch.tensor([[0.1], [0.5], [0.9]]))
    log_prob, entropy = head.log_prob_and_entropy(logits, torch.tensor([0]))

    assert actions.tolist() == [0, 2, 2]
    assert entropy.item() == pytest.approx(math.log(2))
    assert torch.isfinite(torch.autograd.grad(log_prob + entropy, logits)[0]).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_parameters_name_the_rows(bad):
    head = CategoricalHead([3], action_shape=())
    logits = torch.zeros(10, 3)
    logits[[2, 7], [0, 1]] = bad

    with pytest.raises(NonFiniteParametersError, match="in 2 of 10 rows: 2, 7") as caught:
        head.sample(logits, torch.rand(10))

    assert caught.value.rows == [2, 7]


def test_a_row_of_infinite_negative_logits_is_an_error():
    head = CategoricalHead([2, 2])
    logits = torch.zeros(3, 4)
    logits[1, 2:] = -math.inf

    with pytest.raises(NonFiniteParametersError, match="rows: 1"):
        head.sample(logits, torch.rand(3, 2))


def test_huge_finite_logits_are_no_error():
    head = CategoricalHead([2], action_shape=())

    assert head.sample(torch.full((4, 2), 3e38), torch.tensor([0.1, 0.2, 0.8, 0.9])).tolist() == [0, 0, 1, 1]


def test_sample_with_log_prob_agrees_with_both():
    head = CategoricalHead([3, 4])
    logits, noise = torch.randn(9, 7), torch.rand(9, 2)

    actions, log_prob = head.sample_with_log_prob(logits, noise)

    assert torch.equal(actions, head.sample(logits, noise))
    torch.testing.assert_close(log_prob, head.log_prob(logits, actions))


@pytest.mark.parametrize(
    "output",
    [
        torch.arange(10.0).reshape(2, 5),
        (torch.arange(10.0).reshape(2, 5)[:, :3], torch.arange(10.0).reshape(2, 5)[:, 3:]),
        [torch.arange(10.0).reshape(2, 5)[:, :3], torch.arange(10.0).reshape(2, 5)[:, 3:]],
    ],
)
def test_plain_forms_of_logits_become_parameters(output):
    assert torch.equal(CategoricalHead([3, 2]).to_parameters(output), torch.arange(10.0).reshape(2, 5))


def test_distribution_object_becomes_parameters():
    logits = torch.randn(4, 3)

    got = CategoricalHead([3]).to_parameters(distributions.Categorical(logits=logits))

    torch.testing.assert_close(got.softmax(1), logits.softmax(1))


def test_wrong_number_of_logits_is_explained():
    with pytest.raises(ValueError, match=r"must return logits \(rows, 3\); got a tensor \(4, 2\)"):
        CategoricalHead([3]).to_parameters(torch.zeros(4, 2))


def test_half_precision_parameters_give_float_results():
    head = CategoricalHead([3], action_shape=())
    logits = torch.randn(5, 3).bfloat16()

    assert head.log_prob(logits, torch.zeros(5)).dtype == torch.float32
    assert head.sample(logits, torch.rand(5)).dtype == torch.int32


@pytest.mark.parametrize("with_mask", [False, True])
def test_head_compiles(with_mask):
    head = CategoricalHead([3, 2])
    compiled = torch.compile(head.log_prob_and_entropy, backend="eager")
    logits = torch.randn(6, 5, requires_grad=True)
    mask = torch.tensor([[True, False, True, False, True]]).expand(6, -1) if with_mask else None
    actions = head.sample(logits, torch.rand(6, 2), mask)

    got, expected = compiled(logits, actions, mask), head.log_prob_and_entropy(logits, actions, mask)

    for left, right in zip(got, expected, strict=True):
        torch.testing.assert_close(left, right)
    left, right = (torch.autograd.grad(sum(pair).sum(), logits)[0] for pair in (got, expected))
    torch.testing.assert_close(left, right)
