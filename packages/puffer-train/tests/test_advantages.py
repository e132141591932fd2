"""Advantages against closed forms: chains and small decision processes whose values are known."""

import itertools
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_train import native
from puffer_train.advantages import estimate_advantages, masked_moments, normalize_advantages


def segment(rewards, values, final_values=None, terminals=(), truncations=(), invalid=()):
    """Return the tensors of one segment; the last three are lists of steps."""
    rewards = torch.tensor([rewards], dtype=torch.float32)
    horizon = rewards.shape[1]

    def flags(steps, inside=True):
        result = torch.full((1, horizon), not inside)
        result[0, list(steps)] = inside
        return result

    final_values = [0.0] * horizon if final_values is None else final_values
    return (
        rewards,
        torch.tensor([values], dtype=torch.float32),
        torch.tensor([final_values], dtype=torch.float32),
        flags(terminals),
        flags(truncations),
        flags(invalid, inside=False),
    )


def advantages_of(*args, gamma=1.0, gae_lambda=1.0, **kwargs):
    advantages, _ = estimate_advantages(*segment(*args, **kwargs), gamma=gamma, gae_lambda=gae_lambda)
    return advantages[0].tolist()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_segments=st.integers(1, 4),
    horizon=st.integers(1, 9),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    lam=st.sampled_from([0.0, 0.95, 1.0]),
    clips=st.sampled_from([(1.0, 1.0), (2.0, 0.5), (1e9, 1e9)]),
    on_policy=st.booleans(),
)
def test_agree_with_the_definition_written_as_sums(
    advantages_by_sums, seed, num_segments, horizon, gamma, lam, clips, on_policy
):
    rng = np.random.default_rng(seed)
    shape = (num_segments, horizon)
    rewards, final_values = rng.normal(size=shape), rng.normal(size=shape)
    values = rng.normal(size=(num_segments, horizon + 1))
    flags = [rng.random(shape) < p for p in (0.2, 0.2, 0.8)]
    ratios = rng.random(shape) * 3
    if on_policy:
        ratios[:], clips = 1.0, (1.0, 1.0)
    expected = advantages_by_sums(rewards, values, final_values, *flags, ratios, gamma, lam, *clips)

    tensors = [torch.tensor(x, dtype=torch.float32) for x in (rewards, values, final_values)]
    got = estimate_advantages(
        *tensors,
        *map(torch.from_numpy, flags),
        gamma=gamma,
        gae_lambda=lam,
        ratios=None if on_policy else torch.tensor(ratios, dtype=torch.float32),
        rho_clip=clips[0],
        trace_clip=clips[1],
    )

    np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-4, atol=2e-5)


def test_the_last_row_of_a_segment_takes_part():
    assert advantages_of([1, 1, 1, 1], [0, 0, 0, 0, 10]) == [14, 13, 12, 11]


@pytest.mark.parametrize(("horizon", "length"), [*itertools.product(range(1, 9), range(1, 9))])
def test_b1_no_terminal_reward_is_lost_at_any_alignment(horizon, length):
    """A reward of 1 at the end of each episode reaches every step of it that is in the segment."""
    num_steps = 3 * horizon * length
    ends = [(step + 1) % length == 0 for step in range(num_steps)]
    for first in range(0, num_steps, horizon):
        steps = range(first, first + horizon)
        terminals = [step - first for step in steps if ends[step]]
        # The critic knows that 1 is still to come in an episode that the segment cuts.
        values = [0.0] * horizon + [1.0]
        got = advantages_of([float(ends[step]) for step in steps], values, terminals=terminals)

        assert got == [1.0] * horizon


@pytest.mark.parametrize("gae_lambda", [0.0, 0.9, 1.0])
@pytest.mark.parametrize(("horizon", "length"), [*itertools.product((1, 2, 3, 5, 8), (1, 2, 3, 4, 5, 8, 11))])
def test_b3_a_perfect_critic_has_no_advantage_around_time_limits(horizon, length, gae_lambda):
    """Reward 1 for ever, cut every `length` steps, values 10 at discount 0.9: every advantage is 0."""
    truncations = [t for t in range(horizon) if (t + 1) % length == 0]
    got = advantages_of(
        [1.0] * horizon,
        [10.0] * (horizon + 1),
        final_values=[10.0 if t in truncations else 0.0 for t in range(horizon)],
        truncations=truncations,
        gamma=0.9,
        gae_lambda=gae_lambda,
    )

    assert got == pytest.approx([0.0] * horizon, abs=1e-5)


def test_b3_a_poor_first_state_does_not_leak_over_a_time_limit():
    values = [10, 10, 10, 2, 10, 10]  # the state that follows the cut is worth a fifth
    got = advantages_of(
        [1, 1, 1, 1, 1], values, final_values=[0, 0, 10, 0, 0], truncations=[2], gamma=0.9, gae_lambda=0.95
    )

    assert got[:3] == pytest.approx([0, 0, 0], abs=1e-5)
    assert got[3] == pytest.approx(1 + 0.9 * 10 - 2)


def test_rewards_after_a_truncation_do_not_reach_back():
    before = advantages_of([1, 1, 1, 0, 0], [0] * 6, truncations=[2])
    after = advantages_of([1, 1, 1, 100, 0], [0] * 6, truncations=[2])

    assert before[:3] == after[:3]


def test_termination_wins_over_a_truncation_on_the_same_step():
    got = advantages_of([1, 1], [0, 0, 0], final_values=[0, 50], terminals=[1], truncations=[1])

    assert got == [2, 1]


def test_b4_an_invalid_row_has_no_advantage_and_cuts_the_trace():
    got = advantages_of([1, 1, 99, 1], [0] * 4 + [0], invalid=[2])

    assert got == [2, 1, 0, 1]


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_two_state_process_advantages_are_those_of_the_bellman_equation(probability):
    """States 0 and 1; action `switch` with the given probability, reward 1 for leaving state 0."""
    gamma = 0.9
    stay_switch = np.array([1 - probability, probability])
    transition = np.array([[stay_switch[0], stay_switch[1]], [stay_switch[1], stay_switch[0]]])
    reward = np.array([[0.0, 1.0], [0.0, 0.0]])  # state, action
    values = np.linalg.solve(np.eye(2) - gamma * transition, (reward * stay_switch).sum(1))
    rng = np.random.default_rng(0)
    states, actions = [0], []
    for _ in range(50):
        actions.append(int(rng.random() < probability))
        states.append(states[-1] ^ actions[-1])
    rewards = [reward[s, a] for s, a in zip(states, actions, strict=False)]
    expected = [reward[s, a] + gamma * values[s ^ a] - values[s] for s, a in zip(states, actions, strict=False)]

    got = advantages_of(rewards, [values[s] for s in states], gamma=gamma, gae_lambda=0.0)

    assert got == pytest.approx(expected, abs=1e-5)
    # Averaged over actions by their probabilities, an advantage is 0.
    for s in (0, 1):
        mean = sum(stay_switch[a] * (reward[s, a] + gamma * values[s ^ a] - values[s]) for a in (0, 1))
        assert mean == pytest.approx(0.0, abs=1e-9)


def test_ratios_are_clipped_and_ratio_one_is_plain_gae():
    tensors = segment([1, 2, 3], [0.5, 0.25, 0.125, 1.0])
    plain, plain_targets = estimate_advantages(*tensors, gamma=0.9, gae_lambda=0.8)
    ones = torch.ones(1, 3)

    clipped, _ = estimate_advantages(*tensors, gamma=0.9, gae_lambda=0.8, ratios=2 * ones)
    wide, wide_targets = estimate_advantages(
        *tensors, gamma=0.9, gae_lambda=0.8, ratios=ones, rho_clip=1e9, trace_clip=1e9
    )
    doubled, _ = estimate_advantages(*tensors, gamma=0.9, gae_lambda=0.8, ratios=2 * ones, rho_clip=1e9, trace_clip=1e9)

    assert torch.equal(clipped, plain)
    assert torch.equal(wide, plain)
    assert torch.equal(wide_targets, plain_targets)
    delta = [1 + 0.9 * 0.25 - 0.5, 2 + 0.9 * 0.125 - 0.25, 3 + 0.9 * 1.0 - 0.125]
    last = 2 * delta[2]
    middle = 2 * delta[1] + 2 * 0.72 * last
    assert doubled[0].tolist() == pytest.approx([delta[0] + 0.72 * middle, delta[1] + 0.72 * last, delta[2]])


def test_b12_the_ratio_of_a_step_weighs_its_target_once_and_its_policy_advantage_never():
    tensors = segment([1.0], [0.0, 0.0])
    ratios = torch.tensor([[0.5]])

    advantages, targets = estimate_advantages(*tensors, gamma=1.0, gae_lambda=1.0, ratios=ratios)

    assert advantages.item() == 1.0
    assert targets.item() == 0.5


def test_without_the_compiled_module_one_notice_and_the_same_results(monkeypatch):
    rng = np.random.default_rng(0)
    tensors = [torch.tensor(rng.normal(size=(8, size)), dtype=torch.float32) for size in (16, 17, 16)]
    flags = [torch.from_numpy(rng.random((8, 16)) < p) for p in (0.1, 0.1, 0.9)]
    ratios = torch.tensor(rng.random((8, 16)) * 2, dtype=torch.float32)
    numbers = {"gamma": 0.9, "gae_lambda": 0.8, "rho_clip": 1.2, "trace_clip": 0.7}
    compiled = [estimate_advantages(*tensors, *flags, **numbers, ratios=r) for r in (None, ratios)]
    monkeypatch.setitem(sys.modules, "puffer_train._kernels", None)
    native.kernels.cache_clear()

    try:
        with pytest.warns(RuntimeWarning, match="compiled loops") as notices:
            plain = [estimate_advantages(*tensors, *flags, **numbers, ratios=r) for r in (None, ratios)]
    finally:
        native.kernels.cache_clear()

    assert len(notices) == 1
    for one, other in zip(compiled, plain, strict=True):
        torch.testing.assert_close(one[0], other[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(one[1], other[1], atol=1e-5, rtol=0)


NAMES = ("rewards", "values", "final_values", "terminals", "truncations", "valid", "ratios", "advantages", "targets")


@pytest.mark.parametrize("name", NAMES[1:])
def test_wrong_shapes_are_named(name):
    tensors = dict(zip(NAMES, segment([1, 2], [0, 0, 0]), strict=False))
    tensors |= {name: torch.zeros(1, 2) for name in NAMES[6:]}
    tensors[name] = tensors[name][:, :-1]

    with pytest.raises(ValueError, match=f"{name} must have .*got"):
        estimate_advantages(**tensors, gamma=1.0, gae_lambda=1.0)


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0], [1e6] * 5])
def test_one_sample_or_equal_samples_normalise_to_zero(values):
    advantages = torch.tensor([values])
    valid = torch.ones_like(advantages, dtype=torch.bool)

    got = normalize_advantages(advantages, masked_moments(advantages, valid))

    assert got.tolist() == [[0.0] * len(values)]


def test_normalisation_is_masked_and_by_group():
    advantages = torch.tensor([[1.0, 2.0, 3.0, 1000.0], [4.0, 6.0, -7.0, -7.0]])
    valid = torch.tensor([[True, True, True, False], [True, True, False, False]])

    got = normalize_advantages(advantages, masked_moments(advantages, valid))

    assert got[0, :3].tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=1e-6)
    assert got[1, :2].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-6)


def test_nothing_valid_stays_finite():
    advantages = torch.tensor([[1.0, 2.0]])

    got = normalize_advantages(advantages, masked_moments(advantages, torch.zeros(1, 2, dtype=torch.bool)))

    assert torch.isfinite(got).all()
