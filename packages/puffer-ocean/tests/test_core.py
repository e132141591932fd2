"""The inline functions of the C core, against Python's and NumPy's."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_spaces import hash2, hash3, mix

VECTORS = json.loads((Path(__file__).parent / "seed_vectors.json").read_text())
WORDS = st.integers(0, 2**64 - 1)


@pytest.fixture(scope="module")
def core(probe):
    word, number = ctypes.c_uint64, ctypes.c_uint32
    probe.probe_mix.argtypes, probe.probe_mix.restype = [word], word
    probe.probe_hash2.argtypes, probe.probe_hash2.restype = [word] * 2, word
    probe.probe_hash3.argtypes, probe.probe_hash3.restype = [word] * 3, word
    probe.probe_bits.argtypes = [word, ctypes.c_void_p, ctypes.c_int]
    probe.probe_below.argtypes = [word, number, ctypes.c_void_p, ctypes.c_int]
    probe.probe_shuffle.argtypes = [word, ctypes.c_void_p, ctypes.c_int]
    probe.probe_int.argtypes, probe.probe_int.restype = [word, ctypes.c_int, ctypes.c_int], ctypes.c_int
    probe.probe_uniform.argtypes = [word, ctypes.c_float, ctypes.c_float]
    probe.probe_uniform.restype = ctypes.c_float
    probe.probe_sincos.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int]
    return probe


def test_hashes_are_those_of_the_shared_vectors(core):
    assert [core.probe_mix(z) for z, _ in VECTORS["mix"]] == [out for _, out in VECTORS["mix"]]
    assert [core.probe_hash2(a, b) for a, b, _ in VECTORS["hash2"]] == [out for *_, out in VECTORS["hash2"]]
    assert [core.probe_hash3(a, b, c) for a, b, c, _ in VECTORS["hash3"]] == [out for *_, out in VECTORS["hash3"]]
    seeds = [(core.probe_hash2(a, b) >> 33, out) for a, b, out in VECTORS["world_seed"] if a < 2**64]
    assert all(got == wanted for got, wanted in seeds)


@settings(deadline=None)
@given(a=WORDS, b=WORDS, c=WORDS)
def test_hashes_are_those_of_puffer_spaces(core, a, b, c):
    assert core.probe_mix(a) == mix(a)
    assert core.probe_hash2(a, b) == hash2(a, b)
    assert core.probe_hash3(a, b, c) == hash3(a, b, c)


def test_bits_are_pcg32(core):
    stream, count = 0x1234_5678_9ABC_DEF0, 2000
    got = np.empty(count, np.uint32)
    core.probe_bits(stream, got.ctypes.data, count)

    increment = mix(stream ^ 0x9E3779B97F4A7C15) | 1
    state, words = stream, []
    for _ in range(count + 1):
        old, state = state, (state * 6364136223846793005 + increment) % 2**64
        word = ((old >> 18 ^ old) >> 27) % 2**32
        rotation = old >> 59
        words.append((word >> rotation | word << (32 - rotation)) % 2**32)
    assert got.tolist() == words[1:]


@pytest.mark.parametrize("n", [1, 2, 3, 120, 2**31 + 1, 2**32 - 1])
def test_below_is_uniform_and_in_range(core, n):
    got = np.empty(20_000, np.uint32)
    core.probe_below(7, n, got.ctypes.data, len(got))

    assert got.max() < n
    assert abs(got.mean() / max(n - 1, 1) - (0.5 if n > 1 else 0)) < 0.02
    if n <= 120:
        assert set(got.tolist()) == set(range(n))


def test_below_zero_is_zero(core):
    got = np.full(3, 9, np.uint32)
    core.probe_below(7, 0, got.ctypes.data, 3)

    assert got.tolist() == [0, 0, 0]


def test_shuffle_is_a_uniform_permutation(core):
    counts = np.zeros((4, 4), int)
    for stream in range(4000):
        items = np.arange(4, dtype=np.int32)
        core.probe_shuffle(stream, items.ctypes.data, 4)
        assert sorted(items.tolist()) == [0, 1, 2, 3]
        counts[np.arange(4), items] += 1

    assert abs(counts - 1000).max() < 150


@settings(deadline=None)
@given(stream=WORDS, low=st.integers(-(2**31), 2**31 - 1), span=st.integers(0, 2**32 - 1))
def test_int_is_within_its_ends(core, stream, low, span):
    high = min(low + span, 2**31 - 1)

    assert low <= core.probe_int(stream, low, high) <= high


@settings(deadline=None)
@given(stream=WORDS)
def test_uniform_is_within_its_ends(core, stream):
    assert -3 <= core.probe_uniform(stream, -3, 5) < 5


def test_sine_and_cosine_are_accurate(core):
    angles = np.concatenate([np.linspace(-20, 20, 40_001), np.linspace(-1e6, 1e6, 20_001)]).astype(np.float32)
    sines, cosines = np.empty_like(angles), np.empty_like(angles)
    core.probe_sincos(angles.ctypes.data, sines.ctypes.data, cosines.ctypes.data, len(angles))

    exact = angles.astype(np.float64)
    assert abs(sines - np.sin(exact)).max() < 1.5e-7
    assert abs(cosines - np.cos(exact)).max() < 1.5e-7
