"""What rule tests share: the random numbers of native environments in plain Python, and scripted play."""

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


def records_of_first_episodes(env, policy):
    """The record of the first episode of each world, in no order: not biased towards short episodes."""
    observations, _ = env.reset(seed=7)
    records, missing = [], set(range(env.num_envs))
    while missing:
        env.step(policy(observations))
        for record in env.episodes():
            if record["world"] in missing:
                missing.remove(int(record["world"]))
                records.append(record)
    return np.array(records)


@pytest.fixture(scope="session")
def first_episodes():
    return records_of_first_episodes


class BallFollower:
    """Plays breakout: brings the paddle under the ball, to meet it with a place that is drawn for each bounce."""

    def __init__(self, num_envs, *, ball_size=16, paddle_width=62, is_continuous=False, seed=0):
        self.rng, self.aims = np.random.default_rng(seed), np.zeros(num_envs)
        self.ball_size, self.paddle_width, self.is_continuous = ball_size, paddle_width, is_continuous

    def __call__(self, observations):
        is_up = observations[:, 5] < 0
        self.aims[is_up] = self.rng.uniform(-0.2, 0.2, int(is_up.sum()))
        width = self.paddle_width * observations[:, 9]
        paddle = observations[:, 0] * 576 + width / 2 + self.aims * width
        gap = observations[:, 2] * 576 + self.ball_size / 2 - paddle
        if self.is_continuous:
            return np.clip(gap / 40, -1, 1).astype(np.float32)[:, None]
        return np.where(gap > 20, 2, np.where(gap < -20, 1, 0)).astype(np.int32)


@pytest.fixture(scope="session")
def ball_follower():
    return BallFollower
