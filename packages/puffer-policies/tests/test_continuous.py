import math

import numpy as np
import pytest
import torch
from torch import distributions

from puffer_policies import BetaHead, NonFiniteParametersError, NormalHead, TanhNormalHead
from puffer_policies.continuous import standard_normal

INFINITE = ([-math.inf] * 3, [math.inf] * 3)
BOUNDS = ([-2.0, 0.0, -0.1], [2.0, 10.0, 0.1])


def affine(dist, low, high):
    """Stretch a distribution over [-1, 1] to the bounds, with torch's own transforms."""
    low, high = torch.tensor(low), torch.tensor(high)
    return distributions.TransformedDistribution(
        dist, distributions.AffineTransform((high + low) / 2, (high - low) / 2, event_dim=0)
    )


def test_normal_equals_torch_with_three_deviations():
    head = NormalHead(*INFINITE)
    mean = torch.randn(5, 3, requires_grad=True)
    log_std = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    parameters = torch.cat([mean, log_std.expand(5, 3)], 1)
    actions = head.sample(parameters, torch.rand(5, 3))
    dist = distributions.Normal(mean, log_std.exp())
    weights = torch.randn(2, 5)

    got = head.log_prob_and_entropy(parameters, actions)
    expected = dist.log_prob(actions).sum(1), dist.entropy().sum(1)

    for left, right in zip(got, expected, strict=True):
        assert left.shape == (5,)
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    left, right = (torch.autograd.grad([*pair], [mean, log_std], [*weights]) for pair in (got, expected))
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head.log_prob(parameters, actions), got[0])
    torch.testing.assert_close(head.entropy(parameters), got[1])


def test_normal_scaled_to_bounds_equals_torch():
    head = NormalHead(*BOUNDS)
    mean, log_std = torch.randn(6, 3), 0.3 * torch.randn(6, 3)
    actions = head.sample(torch.cat([mean, log_std], 1), torch.rand(6, 3))
    dist = affine(distributions.Normal(mean, log_std.exp()), *BOUNDS)

    got = head.log_prob(torch.cat([mean, log_std], 1), actions)

    torch.testing.assert_close(got, dist.log_prob(actions).sum(1), atol=1e-4, rtol=1e-4)
    assert head.mode(torch.zeros(1, 6)).tolist() == [[0.0, 5.0, 0.0]]
    torch.testing.assert_close(
        head.sample(torch.zeros(1, 6), standard_noise_of([1.0, 1.0, 1.0])), torch.tensor([[2.0, 10.0, 0.1]])
    )


def standard_noise_of(values):
    return (0.5 * (1 + torch.erf(torch.tensor([values], dtype=torch.float64) / math.sqrt(2)))).float()


def test_normal_without_rescale_is_in_units_of_the_env():
    head = NormalHead(*BOUNDS, rescale=False)

    assert head.mode(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]])).tolist() == [[1.0, 2.0, 3.0]]


def test_env_actions_are_clipped_and_samples_are_not():
    head = NormalHead([-1.0, -math.inf], [1.0, math.inf], rescale=False)
    actions = torch.tensor([[3.0, 30.0], [-3.0, -30.0], [0.5, 0.5]])

    assert head.env_actions(actions).tolist() == [[1.0, 30.0], [-1.0, -30.0], [0.5, 0.5]]
    unbounded = NormalHead(*INFINITE)
    assert unbounded.env_actions(actions) is actions


def test_standard_normal_is_finite_and_symmetric_for_every_extreme():
    noise = torch.tensor([0.0, 1.0 - 2.0**-24, 0.5, 0.5 - 2.0**-24])

    values = standard_normal(noise)

    assert torch.isfinite(values).all()
    assert values[0] == -values[1]
    assert abs(float(values[2])) < 1e-6


def test_tanh_normal_equals_torch():
    head = TanhNormalHead(*BOUNDS)
    mean = torch.randn(7, 3, requires_grad=True)
    log_std = (0.3 * torch.randn(7, 3)).requires_grad_()
    parameters = torch.cat([mean, log_std], 1)
    actions = head.sample(parameters, 0.05 + 0.9 * torch.rand(7, 3))
    squashed = distributions.TransformedDistribution(
        distributions.Normal(mean, log_std.exp()), distributions.TanhTransform()
    )
    expected = affine(squashed, *BOUNDS).log_prob(actions).sum(1)

    got = head.log_prob(parameters, actions)

    torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)
    left, right = (torch.autograd.grad(value.sum(), [mean, log_std]) for value in (got, expected))
    torch.testing.assert_close(left, right, atol=1e-3, rtol=1e-3)
    assert (actions > torch.tensor(BOUNDS[0])).all()
    assert (actions < torch.tensor(BOUNDS[1])).all()


@pytest.mark.parametrize("bounds", [([-1.0], [1.0]), ([0.0], [10.0])])
@pytest.mark.parametrize(("mean", "log_std"), [(8.0, -3.0), (-8.0, -1.0), (6.0, 0.0), (0.0, 2.0)])
def test_score_of_a_saturated_tanh_normal_has_mean_zero(mean, log_std, bounds):
    head = TanhNormalHead(*bounds)
    parameters = torch.tensor([[mean, log_std]]).expand(40_000, 2).clone().requires_grad_()
    actions = head.sample(parameters, (torch.arange(40_000).unsqueeze(1) + 0.5) / 40_000)

    (score,) = torch.autograd.grad(head.log_prob(parameters, actions).sum(), parameters)

    assert torch.isfinite(score).all()
    assert (score.mean(0).abs() < 0.02 * torch.tensor([math.exp(-log_std), 1.0])).all()


@pytest.mark.parametrize("kind", [TanhNormalHead, BetaHead])
@pytest.mark.parametrize("value", [-100.0, -30.0, 0.0, 30.0, 1000.0])
def test_extreme_parameters_give_finite_results_inside_the_bounds(kind, value):
    head = kind([0.0], [4.0])
    parameters = torch.tensor([[value, value / 20], [value, -value / 20]], requires_grad=True)

    actions = head.sample(parameters, torch.rand(2, head.num_noise))
    log_prob, entropy = head.log_prob_and_entropy(parameters, actions)

    assert ((actions > 0) & (actions < 4)).all()
    assert ((head.mode(parameters) >= 0) & (head.mode(parameters) <= 4)).all()
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(torch.autograd.grad((log_prob + entropy).sum(), parameters)[0]).all()


def test_mode_of_a_uniform_beta_is_the_middle():
    head = BetaHead([0.0], [4.0])

    assert head.mode(torch.tensor([[-50.0, -50.0], [0.0, 0.0]])).tolist() == [[2.0], [2.0]]


def test_tanh_normal_entropy_equals_the_mean_of_minus_log_prob():
    head = TanhNormalHead([-2.0], [2.0])
    parameters = torch.tensor([[0.3, -0.5], [1.0, 0.5]])
    noise = (torch.arange(20_000) + 0.5) / 20_000

    for row in parameters:
        many = row.expand(20_000, -1)
        actions = head.sample(many, noise.unsqueeze(1))
        assert float(head.entropy(row.unsqueeze(0))) == pytest.approx(
            -float(head.log_prob(many, actions).mean()), abs=2e-2
        )


def test_beta_equals_torch():
    head = BetaHead(*BOUNDS)
    parameters = torch.randn(8, 6, requires_grad=True)
    actions = head.sample(parameters, torch.rand(8, head.num_noise))
    alpha, beta = (1 + torch.nn.functional.softplus(half) for half in parameters.split(3, 1))
    low, high = torch.tensor(BOUNDS[0]), torch.tensor(BOUNDS[1])
    dist = distributions.Beta(alpha, beta)
    share = ((actions - low) / (high - low)).clamp(1e-6, 1 - 1e-6)
    expected = (
        (dist.log_prob(share) - torch.log(high - low)).sum(1),
        (dist.entropy() + torch.log(high - low)).sum(1),
    )
    weights = torch.randn(2, 8)

    got = head.log_prob_and_entropy(parameters, actions)

    for left, right in zip(got, expected, strict=True):
        torch.testing.assert_close(left, right, atol=1e-3, rtol=1e-3)
    left, right = (torch.autograd.grad([*pair], parameters, [*weights])[0] for pair in (got, expected))
    torch.testing.assert_close(left, right, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("raw", [(0.0, 0.0), (3.0, -2.0), (-5.0, -5.0), (20.0, 5.0)])
def test_beta_samples_have_its_mean_and_variance(raw):
    head = BetaHead([0.0], [1.0])
    alpha, beta = (1 + torch.nn.functional.softplus(torch.tensor(value)) for value in raw)
    dist = distributions.Beta(alpha, beta)

    actions = head.sample(torch.tensor([raw]).expand(40_000, 2), torch.rand(40_000, head.num_noise))

    assert float(actions.mean()) == pytest.approx(float(dist.mean), abs=5e-3)
    assert float(actions.var()) == pytest.approx(float(dist.variance), rel=0.05)


@pytest.mark.parametrize("head", [NormalHead(*BOUNDS), TanhNormalHead(*BOUNDS)])
def test_samples_invert_the_distribution(head):
    parameters = torch.tensor([[0.2, -0.3, 0.1, -0.5, 0.0, 0.2]])
    noise = torch.tensor([[0.1, 0.5, 0.9]])

    action = head.sample(parameters, noise)

    grid = torch.linspace(0, 1, 40_001)[1:-1]
    low, high = torch.tensor(BOUNDS[0]), torch.tensor(BOUNDS[1])
    for element in range(3):
        lowest = float(low[element]) - (50.0 if isinstance(head, NormalHead) else 0.0)
        points = lowest + (float(action[0, element]) - lowest) * grid
        others = action.expand(len(points), -1).clone()
        others[:, element] = points
        base = action.clone()
        density = (head.log_prob(parameters.expand(len(points), -1), others) - head.log_prob(parameters, base)).exp()
        single = type(head)([float(low[element])], [float(high[element])])
        at_action = single.log_prob(parameters[:, [element, element + 3]], action[:, [element]]).exp()
        mass = (density * at_action).sum() * float(points[1] - points[0])
        assert float(mass) == pytest.approx(float(noise[0, element]), abs=5e-3)


@pytest.mark.parametrize("kind", [NormalHead, TanhNormalHead, BetaHead])
def test_log_prob_and_gradient_are_finite_at_the_bounds(kind):
    head = kind([-1.0], [1.0])
    parameters = torch.tensor([[5.0, -3.0], [-5.0, 3.0]], requires_grad=True)

    for bound in (-1.0, 1.0):
        log_prob, entropy = head.log_prob_and_entropy(parameters, torch.full((2, 1), bound))
        assert torch.isfinite(log_prob).all()
        assert torch.isfinite(torch.autograd.grad((log_prob + entropy).sum(), parameters)[0]).all()


@pytest.mark.parametrize("kind", [TanhNormalHead, BetaHead])
def test_bounded_heads_need_bounds(kind):
    with pytest.raises(ValueError, match="needs a Box with low < high, at most 1,000,000 apart"):
        kind(*INFINITE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_actions_have_the_dtype_and_shape_of_the_space(dtype):
    head = NormalHead(np.full((2, 2), -1.0), np.full((2, 2), 1.0), (2, 2), dtype)

    actions = head.sample(torch.zeros(3, 8), torch.rand(3, 4))

    assert actions.shape == (3, 2, 2)
    assert actions.dtype == dtype
    assert head.env_actions(actions).dtype == dtype
    assert head.log_prob(torch.zeros(3, 8), actions).dtype == torch.float32


@pytest.mark.parametrize(
    ("std_shape", "expected"), [((4, 2), (4, 4)), ((1, 2), (4, 4)), ((2,), (4, 4)), ((1,), (4, 4)), ((1, 1), (4, 4))]
)
def test_mean_and_deviation_become_parameters(std_shape, expected):
    head = NormalHead([-1.0] * 2, [1.0] * 2, rescale=False)

    parameters = head.to_parameters((torch.ones(4, 2), torch.full(std_shape, 2.0)))

    assert parameters.shape == expected
    torch.testing.assert_close(parameters[:, 2:], torch.full((4, 2), math.log(2)))


def test_distribution_object_becomes_parameters():
    head = NormalHead([-1.0] * 2, [1.0] * 2, rescale=False)
    dist = distributions.Normal(torch.ones(4, 2), torch.full((4, 2), 0.5))

    for candidate in (dist, distributions.Independent(dist, 1)):
        torch.testing.assert_close(
            head.log_prob(head.to_parameters(candidate), torch.zeros(4, 2)), dist.log_prob(torch.zeros(4, 2)).sum(1)
        )


@pytest.mark.parametrize(
    "output", [torch.zeros(4, 3), (torch.zeros(4, 3), torch.ones(4, 3)), (torch.zeros(4, 2), torch.ones(3, 2))]
)
def test_output_that_does_not_fit_is_explained(output):
    with pytest.raises(ValueError, match=r"mean and standard deviation, each \(rows, 2\)"):
        NormalHead([-1.0] * 2, [1.0] * 2).to_parameters(output)


def test_non_finite_means_name_the_rows():
    parameters = torch.zeros(4, 2)
    parameters[3, 0] = math.nan

    with pytest.raises(NonFiniteParametersError, match="rows: 3"):
        NormalHead([-1.0], [1.0]).sample(parameters, torch.rand(4, 1))
