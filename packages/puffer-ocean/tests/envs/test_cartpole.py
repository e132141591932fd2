"""Cartpole's physics against a reference in double precision, its ends, and its parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from puffer_ocean import OceanEnv

MAX_X, MAX_THETA = 2.4, 12 * math.pi / 180


def reference_step(state, force, half_length=0.5, cart_mass=1.0, pole_mass=0.1):
    """One Euler step of the equations of Barto, Sutton and Anderson, as Gymnasium has them, in doubles."""
    x, x_dot, theta, theta_dot = state
    total = cart_mass + pole_mass
    temp = (force + pole_mass * half_length * theta_dot**2 * math.sin(theta)) / total
    theta_acc = (9.8 * math.sin(theta) - math.cos(theta) * temp) / (
        half_length * (4 / 3 - pole_mass * math.cos(theta) ** 2 / total)
    )
    x_acc = temp - pole_mass * half_length * theta_acc * math.cos(theta) / total
    return x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc


@pytest.mark.parametrize("num_envs", [1, 3, 64])
@pytest.mark.parametrize(("force", "half_length"), [(10, 0.5), (1, 2), (50, 0.1)])
def test_steps_follow_the_equations(num_envs, force, half_length, actions_of):
    env = OceanEnv("cartpole", num_envs, force=force, half_length=half_length)
    env.reset(0)
    for step in range(100):
        before = env.observations.astype(np.float64)
        actions = actions_of(env, step)
        env.step(actions)
        ended = env.terminals | env.truncations
        after = np.where(ended[:, None], env.final_observations, env.observations)
        for row, action in enumerate(actions):
            expected = reference_step(before[row], force if action else -force, half_length)
            np.testing.assert_allclose(after[row], expected, rtol=3e-6, atol=3e-6)


def test_continuous_forces_follow_the_equations(actions_of):
    env = OceanEnv("cartpole", 4, continuous=True)
    env.reset(0)
    for step in range(15):
        before = env.observations.astype(np.float64)
        actions = actions_of(env, step)
        env.step(actions)
        for row in np.flatnonzero(~env.terminals):
            expected = reference_step(before[row], 10 * float(actions[row, 0]))
            np.testing.assert_allclose(env.observations[row], expected, rtol=3e-6, atol=3e-6)


def test_an_illegal_action_does_not_push():
    env = OceanEnv("cartpole", 1)
    env.reset(0)
    before = env.observations[0].astype(np.float64)
    env.step([2])

    np.testing.assert_allclose(env.observations[0], reference_step(before, 0), atol=3e-6)


def test_it_starts_within_five_hundredths():
    env = OceanEnv("cartpole", 4096)
    env.reset(0)

    assert abs(env.observations).max() < 0.05
    np.testing.assert_allclose(env.observations.mean(axis=0), 0, atol=0.003)
    np.testing.assert_allclose(env.observations.std(axis=0), 0.1 / math.sqrt(12), atol=0.001)


def test_flags_are_set_exactly_where_the_limits_are_passed(actions_of):
    env = OceanEnv("cartpole", 256)
    env.reset(0)
    for step in range(200):
        env.step(actions_of(env, step))
        final = env.final_observations[env.terminals]
        assert ((abs(final[:, 0]) > MAX_X) | (abs(final[:, 2]) > MAX_THETA - 1e-6)).all()
        running = env.observations
        assert (abs(running[:, 0]) <= MAX_X + 1e-6).all()
        assert (abs(running[:, 2]) <= MAX_THETA + 1e-6).all()
        assert (env.rewards == 1).all()


def balance(env):
    """Push toward where the pole falls, and the cart back to the middle."""
    x, x_dot, theta, theta_dot = env.observations.T
    return (theta + 0.5 * theta_dot + 0.03 * x + 0.06 * x_dot > 0).astype(np.int32)


def test_a_balanced_pole_is_truncated_after_500_steps():
    env = OceanEnv("cartpole", 32)
    env.reset(0)
    for _ in range(500):
        assert not (env.terminals | env.truncations).any()
        env.step(balance(env))

    assert env.truncations.all()
    records = env.episodes()
    assert (records["score"] == 500).all()
    assert (records["perf"] == 1).all()
    assert records[["x_end", "angle_end", "time_end"]].tolist() == [(0, 0, 1)] * 32


def test_pushing_one_way_ends_by_the_angle_and_a_long_pole_by_the_track():
    env = OceanEnv("cartpole", 64)
    env.reset(0)
    for _ in range(12):
        env.step(np.ones(64, np.int32))
    assert (env.episodes()["angle_end"] == 1).all()

    env = OceanEnv("cartpole", 8, half_length=2, force=10, max_steps=-1)
    env.reset(0)
    while not len(records := env.episodes()):
        _, _, theta, theta_dot = env.observations.T
        env.step((theta + 0.5 * theta_dot > 0.05).astype(np.int32))
    assert records["x_end"].tolist() == [1] * len(records)


def test_randomized_bodies_move_differently_and_stay_the_same_within_an_episode():
    plain, varied = OceanEnv("cartpole", 64), OceanEnv("cartpole", 64, randomize=0.3)
    plain.reset(0)
    varied.reset(0)
    np.testing.assert_array_equal(plain.observations, varied.observations)
    for _ in range(3):
        plain.step(np.ones(64, np.int32))
        varied.step(np.ones(64, np.int32))
    moved = varied.observations[:, 1] - plain.observations[:, 1]

    assert len(np.unique(moved)) > 50
    assert abs(moved).max() < 0.6


def test_a_random_policy_has_the_known_length(actions_of):
    env = OceanEnv("cartpole", 512)
    env.reset(0)
    for step in range(400):
        env.step(actions_of(env, step))

    assert env.episodes()["episode_length"].mean() == pytest.approx(22, abs=0.7)
