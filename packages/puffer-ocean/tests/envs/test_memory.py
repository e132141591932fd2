"""Memory's rules: what is seen when, what counts, and that chance is chance."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_ocean import OceanEnv


def play(env, answers):
    """One episode of one world: the observations, the rewards, and what `answers(digits, step)` answered."""
    length, delay = env.parameters["length"], env.parameters["delay"]
    seen, rewards, digits = [env.observations[0].tolist()], [], []
    for step in range(2 * length + delay):
        if step < length:
            digits.append(int(env.observations[0, 0]))
        env.step([answers(digits, step - length - delay)])
        rewards.append(float(env.rewards[0]))
        seen.append((env.final_observations if env.terminals[0] else env.observations)[0].tolist())
    return seen, rewards, digits


@pytest.mark.parametrize(("length", "delay"), [(1, 0), (2, 2), (5, 0), (3, 7), (32, 256)])
def test_digits_are_shown_then_nothing_then_asked_for(length, delay):
    env = OceanEnv("memory", 1, length=length, delay=delay)
    env.reset(5)
    for _ in range(3):
        seen, rewards, digits = play(env, lambda digits, asked: digits[asked] if asked >= 0 else 0)

        assert env.terminals[0]
        assert [tuple(row) for row in seen] == [
            *[(digit, 0) for digit in digits],
            *[(-1, 0)] * delay,
            *[(-1, 1)] * length,
            (-1, 0),
        ]
        assert rewards[: length + delay] == [0] * (length + delay)
        assert rewards[length + delay :] == pytest.approx([1 / length] * length)
    records = env.episodes()
    assert records["perf"].tolist() == records["score"].tolist() == records["first_digit_acc"].tolist() == [1, 1, 1]
    assert (records["episode_length"] == 2 * length + delay).all()


def test_one_wrong_answer_costs_its_share():
    env = OceanEnv("memory", 1, length=4)
    env.reset(1)
    _, rewards, _ = play(env, lambda digits, asked: (digits[asked] ^ (asked == 2)) if asked >= 0 else 1)

    assert rewards[-4:] == [0.25, 0.25, 0, 0.25]
    assert env.episodes()[["score", "perf", "first_digit_acc"]].tolist() == [(0.75, 0, 1)]


def test_an_illegal_answer_is_wrong():
    env = OceanEnv("memory", 1)
    env.reset(1)
    play(env, lambda digits, asked: 2)

    assert env.episodes()["score"].tolist() == [0]


def test_answers_without_memory_are_right_by_chance(actions_of):
    env = OceanEnv("memory", 512)
    env.reset(0)
    for step in range(300):
        env.step(actions_of(env, step))
    records = env.episodes()

    assert records["score"].mean() == pytest.approx(0.5, abs=0.01)
    assert records["perf"].mean() == pytest.approx(0.25, abs=0.01)
    assert np.unique(records["episode_length"]).tolist() == [6]
