"""Statistics of observations against NumPy, and what they leave untouched."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_spaces import Layout
from puffer_train.normalization import FloatLeaf, ObservationNormalizer, float_leaves


def test_before_the_first_update_nothing_changes():
    observations = torch.randn(3, 4) * 1e6

    assert ObservationNormalizer([FloatLeaf(0, 4)])(observations) is observations


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), num_batches=st.integers(1, 4), offset=st.sampled_from([0.0, 1e4]))
def test_statistics_are_those_of_all_valid_rows(seed, num_batches, offset):
    rng = np.random.default_rng(seed)
    normalizer = ObservationNormalizer([FloatLeaf(0, 3)])
    seen = []
    for _ in range(num_batches):
        batch = rng.normal(offset, [1, 5, 0.1], size=(7, 5, 3)).astype(np.float32)
        valid = rng.random((7, 5)) < 0.7
        seen.append(batch[valid])
        batch[~valid] = np.nan
        normalizer.update(torch.from_numpy(batch), torch.from_numpy(valid))
    rows = np.concatenate(seen).astype(np.float64)

    np.testing.assert_allclose(normalizer.mean, rows.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(normalizer.variance, rows.var(0), rtol=1e-3, atol=1e-6)
    assert normalizer.count.item() == len(rows)


def test_output_is_standard_and_bounded_and_the_input_stays():
    observations = torch.tensor([[[0.0], [2.0]], [[4.0], [6.0]]])
    normalizer = ObservationNormalizer([FloatLeaf(0, 1)], clip=1.0)
    normalizer.update(observations, torch.ones(2, 2, dtype=torch.bool))
    before = observations.clone()

    got = normalizer(observations)

    assert torch.equal(observations, before)
    assert got.flatten().tolist() == pytest.approx([-1.0, -1 / 5**0.5, 1 / 5**0.5, 1.0])


def test_a_constant_column_becomes_zero():
    observations = torch.full((2, 3, 1), 7.0)
    normalizer = ObservationNormalizer([FloatLeaf(0, 1)])
    normalizer.update(observations, torch.ones(2, 3, dtype=torch.bool))

    assert (normalizer(observations) == 0).all()


def test_only_float_vectors_of_a_mixed_row_are_touched():
    space = spaces.Dict(
        image=spaces.Box(0, 255, (3, 3), np.uint8),
        position=spaces.Box(-9, 9, (2,), np.float32),
        level=spaces.Discrete(5),
        speed=spaces.Box(-1, 1, (), np.float64),
        picture=spaces.Box(0, 1, (2, 2), np.float32),
    )
    layout = Layout(space)
    rows = np.stack([layout.flatten(sample) for sample in (space.sample() for _ in range(8))])
    normalizer = ObservationNormalizer(float_leaves(layout))
    normalizer.update(torch.from_numpy(rows).view(4, 2, -1), torch.ones(4, 2, dtype=torch.bool))

    got = normalizer(torch.from_numpy(rows))

    before, after = layout.unflatten_batch(rows), layout.unflatten_batch(got.numpy())
    for name in ("image", "level", "picture"):
        np.testing.assert_array_equal(after[name], before[name])
    expected = (before["position"] - before["position"].mean(0)) / before["position"].std(0)
    np.testing.assert_allclose(after["position"], expected, atol=1e-4)
    assert abs(after["speed"].mean()) < 1e-5


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 255, (8, 8), np.uint8), spaces.Box(0, 1, (3, 4), np.float32), spaces.Discrete(3)]
)
def test_images_and_choices_have_no_float_leaf(space: gymnasium.Space):
    assert float_leaves(Layout(space)) == []


def test_a_plain_vector_is_one_leaf():
    assert float_leaves(Layout(spaces.Box(-1, 1, (5,), np.float32))) == [FloatLeaf(0, 5)]


def test_state_round_trip_makes_an_equal_normaliser():
    layout = Layout(spaces.Box(-1, 1, (2,), np.float32))
    normalizer = ObservationNormalizer(float_leaves(layout), clip=3.0)
    observations = torch.randn(5, 4, 2)
    normalizer.update(observations, torch.ones(5, 4, dtype=torch.bool))

    again = ObservationNormalizer.from_state_dict(normalizer.state_dict(), layout)
    off = ObservationNormalizer.from_state_dict(ObservationNormalizer([]).state_dict(), layout)

    assert torch.equal(again(100 * observations), normalizer(100 * observations))
    assert off(observations) is observations
