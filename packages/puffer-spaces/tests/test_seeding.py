import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import puffer_spaces
from puffer_spaces import hash2, hash3, mix, world_seed, world_seeds

VECTORS = json.loads((Path(__file__).parent / "seed_vectors.json").read_text())
WORDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_hashes_match_the_shared_vectors(name):
    function = getattr(puffer_spaces, name)

    for *arguments, expected in VECTORS[name]:
        assert function(*arguments) == expected


def test_mix_is_splitmix64_whose_first_outputs_from_state_0_are_published():
    golden = 0x9E3779B97F4A7C15
    assert [mix(golden), mix(2 * golden)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@given(WORDS, WORDS, WORDS)
def test_hash3_is_two_hashes_and_all_are_64_bit_words(a, b, c):
    assert hash3(a, b, c) == hash2(hash2(a, b), c)
    assert 0 <= hash2(a, b) < 2**64
    assert world_seed(a, b) == hash2(a, b) >> 33 < 2**31


@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_numpy_integers_hash_like_python_ones(seed, world):
    assert world_seed(np.int64(seed), np.uint32(world)) == world_seed(seed, world)


def test_neighbouring_seeds_share_no_world():
    seeds = np.concatenate([world_seeds(seed, 0, 500) for seed in range(20)])

    assert len(np.unique(seeds)) == len(seeds)


def test_world_seeds_are_those_of_consecutive_worlds():
    assert world_seeds(7, 3, 4).tolist() == [world_seed(7, world) for world in (3, 4, 5, 6)]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((-1, 0), ValueError, "seed must be >= 0; got -1"),
        ((0, -2), ValueError, "world must be >= 0; got -2"),
        ((0.5, 0), TypeError, "seed must be an integer; got 0.5"),
        (("7", 0), TypeError, "seed must be an integer; got '7'"),
    ],
)
def test_what_is_no_seed_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        world_seed(*arguments)
