"""The random numbers of native environments in plain Python, for references that repeat whole episodes."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_spaces import hash3, mix

MASK_32 = 0xFFFFFFFF
MASK_64 = 0xFFFFFFFFFFFFFFFF


class EpisodeStream:
    """The generator of one episode of one world: PCG32 with the functions of core/rng.h.

    Floats are float32 values held in Python floats.
    """

    def __init__(self, seed: int, world: int, episode: int) -> None:
        self.state = hash3(seed, world, episode)
        self.increment = mix(self.state ^ 0x9E3779B97F4A7C15) | 1
        self.bits()

    def bits(self) -> int:
        old = self.state
        self.state = (old * 6364136223846793005 + self.increment) & MASK_64
        word = (((old >> 18) ^ old) >> 27) & MASK_32
        rotation = old >> 59
        return ((word >> rotation) | (word << (-rotation & 31))) & MASK_32

    def below(self, n: int) -> int:
        product = self.bits() * n
        while product & MASK_32 < (1 << 32) % n:
            product = self.bits() * n
        return product >> 32

    def integer(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def unit(self) -> float:
        return (self.bits() >> 8) * 2.0**-24

    def uniform(self, low: float, high: float) -> float:
        low_32, width_32 = np.float32(low), np.float32(high) - np.float32(low)
        return float(low_32 + width_32 * np.float32(self.unit()))

    def chance(self, probability: float) -> bool:
        return self.unit() < float(np.float32(probability))


def sine_and_cosine(angle: float) -> tuple[float, float]:
    """oc_sincos of core/numeric.h: Taylor polynomials in float32, one rounding an operation."""
    f = np.float32
    quarters = angle * 0.63661977236758134308
    quadrant = int(quarters + (-0.5 if quarters < 0 else 0.5))
    x = f(angle - quadrant * 1.57079632679489661923)
    y = x * x
    s = x + x * y * (f(-1) / f(6) + y * (f(1) / f(120) + y * (f(-1) / f(5040) + y * (f(1) / f(362880)))))
    tail = f(-1) / f(720) + y * (f(1) / f(40320) + y * (f(-1) / f(3628800)))
    c = f(1) - y * f(0.5) + y * y * (f(1) / f(24) + y * tail)
    sine, cosine = [(s, c), (c, -s), (-s, -c), (-c, s)][quadrant % 4]
    return float(sine), float(cosine)


@pytest.fixture(scope="session")
def episode_stream() -> type[EpisodeStream]:
    return EpisodeStream


@pytest.fixture(scope="session")
def sincos():
    return sine_and_cosine
