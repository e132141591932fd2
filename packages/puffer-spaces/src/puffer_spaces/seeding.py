"""Seeds of worlds: a hash of (seed, world), so that runs with neighbouring seeds share no world.

The C core of puffer-ocean has the same functions; both are tested against `tests/seed_vectors.json`. All arithmetic is
modulo 2**64. The finaliser and its constants are those of SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable
Pseudorandom Number Generators").
"""

from __future__ import annotations

import operator
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB


def mix(z: int) -> int:
    """Scramble a 64-bit word: SplitMix64's finaliser, a bijection of [0, 2**64)."""
    z &= _MASK
    z = ((z ^ (z >> 30)) * _MULTIPLIER_1) & _MASK
    z = ((z ^ (z >> 27)) * _MULTIPLIER_2) & _MASK
    return z ^ (z >> 31)


def hash2(a: SupportsIndex, b: SupportsIndex) -> int:
    """Hash a pair of integers to 64 bits: mix(mix(a + G) + (b + 1) G), G the golden gamma of SplitMix64."""
    a, b = operator.index(a), operator.index(b)
    return mix(mix(a + _GOLDEN_GAMMA) + (b + 1) * _GOLDEN_GAMMA)


def hash3(a: SupportsIndex, b: SupportsIndex, c: SupportsIndex) -> int:
    """Hash three integers to 64 bits: hash2(hash2(a, b), c). A native world's stream is hash3(seed, world, episode)."""
    return hash2(hash2(a, b), c)


def world_seed(seed: SupportsIndex, world: SupportsIndex) -> int:
    """Return the seed of one world of a run.

    Args:
        seed: Seed of the whole run, an integer >= 0 (Python's or NumPy's). Only its low 64 bits count.
        world: Number of the world in the whole vector environment, from 0. Worlds are counted, not agents.

    Returns:
        An int in [0, 2**31), which every seeding interface accepts.

    Raises:
        TypeError: An argument is no integer.
        ValueError: An argument is negative.
    """
    seed, world = _index("seed", seed), _index("world", world)
    return hash2(seed, world) >> 33


def world_seeds(seed: SupportsIndex, first_world: SupportsIndex, num_worlds: int) -> npt.NDArray[np.int64]:
    """Return `world_seed(seed, world)` for worlds first_world, first_world + 1, ...: int64 (num_worlds,)."""
    seed, first_world = _index("seed", seed), _index("first_world", first_world)
    return np.array([hash2(seed, first_world + i) >> 33 for i in range(num_worlds)], np.int64)


def _index(name: str, value: SupportsIndex) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {value!r}. Pass an int >= 0.") from None
    if number < 0:
        raise ValueError(f"{name} must be >= 0; got {number}. Pass an int >= 0.")
    return number
