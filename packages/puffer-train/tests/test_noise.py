"""Noise by key: the same for any split, uniform, and equal with and without the compiled module."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_spaces.seeding import hash2, mix
from puffer_train import native
from puffer_train.noise import ACTION_STREAM, fill_uniform, permutation, uniforms


def noise(seed, steps, rows, num_columns=2):
    out = np.empty((len(rows), num_columns), np.float32)
    fill_uniform(out, seed, *(np.ascontiguousarray(x, np.int64) for x in (steps, rows)))
    return out


def test_values_are_hashes_of_seed_step_row_and_column():
    key = hash2(hash2(hash2(7, ACTION_STREAM), 3), 5)
    expected = [(hash2(key, column) >> 40) / 2**24 for column in (0, 1)]

    assert noise(7, [3], [5])[0].tolist() == expected
    assert mix(0) == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), cut=st.integers(1, 9), step=st.integers(0, 2**40))
def test_a_row_has_the_same_noise_in_any_batch(seed, cut, step):
    steps, rows = np.full(10, step), np.arange(10)
    whole = noise(seed, steps, rows)

    parts = np.concatenate([noise(seed, steps[:cut], rows[:cut]), noise(seed, steps[cut:], rows[cut:])])

    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole[::-1], noise(seed, steps, rows[::-1]))


def test_rows_may_be_at_different_steps():
    mixed = noise(1, [4, 5, 4], [0, 1, 2])

    np.testing.assert_array_equal(mixed[[0, 2]], noise(1, [4, 4], [0, 2]))
    np.testing.assert_array_equal(mixed[[1]], noise(1, [5], [1]))


def test_is_uniform_and_uncorrelated():
    values = np.concatenate([noise(1, np.full(1000, step), np.arange(1000)) for step in range(20)])

    counts = np.histogram(values, bins=50, range=(0, 1))[0]
    expected = values.size / 50
    assert ((counts - expected) ** 2 / expected).sum() < 90  # chi square, 49 degrees of freedom, p = 0.0003
    assert abs(np.corrcoef(values[:, 0], values[:, 1])[0, 1]) < 0.03
    assert abs(np.corrcoef(values[:-1, 0], values[1:, 0])[0, 1]) < 0.03
    assert values.min() >= 0
    assert values.max() < 1


def test_plain_and_compiled_agree_bit_for_bit(monkeypatch):
    steps, rows = np.arange(50) % 3, np.arange(50) * 7
    compiled = noise(2**63 + 5, steps, rows, 3)
    monkeypatch.setitem(sys.modules, "puffer_train._kernels", None)
    native.kernels.cache_clear()

    try:
        with pytest.warns(RuntimeWarning, match="compiled loops"):
            plain = noise(2**63 + 5, steps, rows, 3)
    finally:
        native.kernels.cache_clear()

    np.testing.assert_array_equal(compiled, plain)


def test_permutations_are_permutations_and_differ_by_key():
    orders = [
        permutation(*key, 64).tolist() for key in ((1, 0, 0, 0), (2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1))
    ]

    assert all(sorted(order) == list(range(64)) for order in orders)
    assert len({tuple(order) for order in orders}) == len(orders)
    assert permutation(1, 0, 0, 0, 64).tolist() == orders[0]


def test_each_position_is_as_likely():
    firsts = [int(permutation(1, epoch, 0, 0, 8)[0]) for epoch in range(800)]

    counts = np.bincount(firsts, minlength=8)
    assert ((counts - 100) ** 2 / 100).sum() < 26  # chi square, 7 degrees of freedom, p = 0.0005


def test_uniforms_have_their_own_stream():
    assert uniforms(1, 2, 3, 4).tolist() == uniforms(1, 2, 3, 4).tolist()
    assert uniforms(1, 2, 3, 4).tolist() != uniforms(1, 2, 4, 4).tolist()
