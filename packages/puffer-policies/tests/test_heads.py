"""What every action head answers to wrong shapes, empty batches and other dtypes."""

import pytest
import torch
from gymnasium import spaces
from torch import distributions

from puffer_policies import BernoulliHead, CategoricalHead, NormalHead, make_action_head

BOX = spaces.Box(-1, 1, (2,))
HEADS = {
    "discrete": lambda: make_action_head(spaces.Discrete(3, start=4)),
    "multidiscrete": lambda: make_action_head(spaces.MultiDiscrete([3, 2, 2])),
    "autoregressive": lambda: make_action_head(spaces.MultiDiscrete([3, 2]), autoregressive=True),
    "multibinary": lambda: make_action_head(spaces.MultiBinary(2)),
    "normal": lambda: make_action_head(BOX),
    "tanh_normal": lambda: make_action_head(BOX, distribution="tanh_normal"),
    "beta": lambda: make_action_head(BOX, distribution="beta"),
    "mixed": lambda: make_action_head(spaces.Dict(pick=spaces.Discrete(3), bits=spaces.MultiBinary(2), move=BOX)),
}


@pytest.fixture(params=HEADS)
def head(request):
    return HEADS[request.param]()


def test_parameters_of_another_shape_are_explained(head):
    actions = head.sample(torch.zeros(4, head.num_parameters), torch.rand(4, head.num_noise))
    calls = [
        lambda parameters: head.sample(parameters, torch.rand(4, head.num_noise)),
        lambda parameters: head.log_prob(parameters, actions),
        lambda parameters: head.log_prob_and_entropy(parameters, actions),
        head.entropy,
        head.mode,
    ]

    for shape in ((4, head.num_parameters + 1), (head.num_parameters,), (2, 2, head.num_parameters)):
        for call in calls:
            with pytest.raises(ValueError, match=rf"parameters must be \(rows, {head.num_parameters}\); got"):
                call(torch.zeros(shape))


def test_noise_of_another_shape_is_explained(head):
    for shape in ((3, head.num_noise), (4, head.num_noise + 1)):
        with pytest.raises(ValueError, match=rf"noise must be \(4, {head.num_noise}\) for 4 rows"):
            head.sample(torch.zeros(4, head.num_parameters), torch.rand(shape))


def test_actions_of_another_shape_are_explained(head):
    parameters = torch.zeros(4, head.num_parameters)
    actions = head.sample(parameters, torch.rand(4, head.num_noise))

    for wrong in (actions[:3], torch.cat([actions.reshape(4, -1)] * 2, 1)):
        with pytest.raises(ValueError, match=r"actions must be \(4,.* for 4 rows"):
            head.log_prob(parameters, wrong)


def test_mask_of_another_shape_is_explained(head):
    parameters = torch.zeros(4, head.num_parameters)
    expected = rf"bool \(4, {head.num_choices}\) for 4 rows" if head.num_choices else "None for a Box"

    for shape in ((4, head.num_choices + 1), (3, max(head.num_choices, 1)), (max(head.num_choices, 1),)):
        with pytest.raises(ValueError, match=f"action_mask must be {expected}"):
            head.entropy(parameters, torch.ones(shape, dtype=torch.bool))


def test_no_rows_give_empty_results(head):
    parameters, mask = torch.zeros(0, head.num_parameters), torch.ones(0, head.num_choices, dtype=torch.bool)

    actions = head.sample(parameters, torch.rand(0, head.num_noise), mask)

    assert actions.shape == head.mode(parameters).shape == head.env_actions(actions).shape == (0, *head.action_shape)
    assert [part.shape for part in head.log_prob_and_entropy(parameters, actions, mask)] == [(0,), (0,)]
    assert head.entropy(parameters).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_results_are_float32_for_parameters_of_any_dtype(head, dtype):
    head = head.to(dtype)
    parameters = torch.randn(4, head.num_parameters).to(dtype)

    actions = head.sample(parameters, torch.rand(4, head.num_noise))

    assert actions.dtype == head.action_dtype
    assert {part.dtype for part in head.log_prob_and_entropy(parameters, actions)} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float32])
def test_masks_of_zeros_and_ones_count_as_bool(dtype):
    head = CategoricalHead([3, 2])
    parameters, mask = torch.randn(5, 5), torch.tensor([[1, 0, 1, 0, 1]]).expand(5, -1)

    assert torch.equal(head.entropy(parameters, mask.to(dtype)), head.entropy(parameters, mask.bool()))


@pytest.mark.parametrize(
    ("head", "output"),
    [
        (CategoricalHead([3, 2]), torch.zeros(4, 5).split([2, 3], 1)),
        (CategoricalHead([3]), distributions.Bernoulli(logits=torch.zeros(4, 3))),
        (BernoulliHead(3), distributions.Categorical(logits=torch.zeros(4, 3))),
        (NormalHead([-1.0] * 2, [1.0] * 2), distributions.Beta(torch.ones(4, 2), torch.ones(4, 2))),
        (NormalHead([-1.0] * 2, [1.0] * 2), distributions.Laplace(torch.ones(4, 2), torch.ones(4, 2))),
    ],
)
def test_output_of_another_distribution_is_refused(head, output):
    with pytest.raises(ValueError, match=r"the policy must return (logits|mean)"):
        head.to_parameters(output)


def test_categoricals_of_each_element_become_parameters():
    logits = torch.randn(4, 5).split([3, 2], 1)

    got = CategoricalHead([3, 2]).to_parameters(tuple(distributions.Categorical(logits=part) for part in logits))

    for left, right in zip(got.split([3, 2], 1), logits, strict=True):
        torch.testing.assert_close(left.softmax(1), right.softmax(1))
