import itertools

import pytest
import torch
from gymnasium import spaces

from puffer_policies import AutoregressiveHead, NonFiniteParametersError, make_action_head

NVEC = [3, 2, 4]


@pytest.fixture
def head():
    head = AutoregressiveHead(NVEC, width=8)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head


def all_actions():
    return torch.tensor(list(itertools.product(*[range(n) for n in NVEC])), dtype=torch.int32)


def test_probabilities_of_all_actions_sum_to_one(head):
    actions = all_actions()
    features = torch.randn(1, 8).expand(len(actions), -1)

    total = head.log_prob(features, actions).exp().sum()

    torch.testing.assert_close(total, torch.tensor(1.0))


def test_samples_follow_the_probabilities(head):
    features = torch.randn(1, 8)
    rows = 60_000
    samples = head.sample(features.expand(rows, -1), torch.rand(rows, 3))
    actions = all_actions()
    expected = head.log_prob(features.expand(len(actions), -1), actions).exp()

    counts = (samples[:, None] == actions[None]).all(-1).float().mean(0)

    torch.testing.assert_close(counts, expected, atol=6e-3, rtol=0)


def test_entropy_estimate_is_unbiased(head):
    features = torch.randn(1, 8)
    actions = all_actions()
    log_prob, entropy = head.log_prob_and_entropy(features.expand(len(actions), -1), actions)

    exact = -(log_prob.exp() * log_prob).sum()

    torch.testing.assert_close((log_prob.exp() * entropy).sum(), exact)


def test_elements_depend_on_those_before_them(head):
    actions = all_actions()
    table = head.log_prob(torch.randn(1, 8).expand(len(actions), -1), actions).exp().view(NVEC)

    last = table / table.sum(2, keepdim=True)

    assert not torch.allclose(last[0, 0], last[1, 0])
    assert not torch.allclose(last[0, 0], last[0, 1])


def test_masked_choices_are_never_taken(head):
    mask = torch.rand(500, sum(NVEC)) < 0.5
    for part in mask.split(NVEC, 1):
        part[:, 0] |= ~part.any(1)
    features = torch.randn(500, 8, requires_grad=True)

    actions = head.sample(features, torch.rand(500, 3), mask)
    log_prob, entropy = head.log_prob_and_entropy(features, actions, mask)

    assert mask.gather(1, actions.long() + torch.tensor([0, 3, 5])).all()
    assert mask.gather(1, head.mode(features, mask).long() + torch.tensor([0, 3, 5])).all()
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(torch.autograd.grad((log_prob + entropy).sum(), features)[0]).all()
    most_likely = head.mode(features, mask)
    torch.testing.assert_close(head.entropy(features, mask), head.log_prob_and_entropy(features, most_likely, mask)[1])


def test_space_with_starts_gets_valid_actions():
    space = spaces.MultiDiscrete([3, 2], start=[5, -1])
    head = make_action_head(space, autoregressive=True)

    actions = head.sample(torch.randn(50, head.num_parameters), torch.rand(50, 2))

    assert all(space.contains(row.astype(space.dtype)) for row in actions.numpy())


def test_space_of_one_element_is_refused():
    with pytest.raises(ValueError, match="needs a MultiDiscrete of two or more elements"):
        make_action_head(spaces.Discrete(3), autoregressive=True)


def test_non_finite_features_name_the_rows(head):
    features = torch.zeros(3, 8)
    features[1, 4] = float("nan")

    with pytest.raises(NonFiniteParametersError, match="rows: 1"):
        head.sample(features, torch.rand(3, 3))


def test_logits_are_no_features(head):
    with pytest.raises(ValueError, match=r"must return features \(rows, 8\)"):
        head.to_parameters(torch.zeros(3, 9))
