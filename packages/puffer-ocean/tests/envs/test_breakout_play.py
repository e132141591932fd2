"""Breakout's rules at the places where a player would notice: ends, rewards, sizes, pictures, scores."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_ocean import OceanEnv

WIDTH, HEIGHT, WALL_TOP, PADDLE_TOP = 576, 330, 50, 312
STAY, LEFT = 0, 1
FIRST_BRICK = 10
f32 = np.float32


def drive(actions, *, num_steps, **parameters):
    """Step one world with a constant action and return all that was seen, as arrays."""
    env = OceanEnv("breakout", seed=0, **parameters)
    env.reset(seed=0)
    seen = []
    for _ in range(num_steps):
        observations, rewards, terminals, truncations, _ = env.step(np.full_like(env.actions, actions))
        seen.append((observations[0].copy(), float(rewards[0]), bool(terminals[0]), bool(truncations[0])))
    records = env.episodes()
    env.close()
    return (*(np.array(column) for column in zip(*seen, strict=True)), records)


def test_clearing_two_walls_terminates_with_the_full_score(ball_follower):
    parameters = {"brick_rows": 1, "brick_cols": 1, "paddle_width": 288, "ball_size": 16}
    env = OceanEnv("breakout", seed=5, **parameters)
    follow = ball_follower(1, paddle_width=288)
    observations, _ = env.reset(seed=5)
    flags = []
    while not any(flags):
        walls_before = observations[0, FIRST_BRICK]
        observations, rewards, *flags, _ = env.step(follow(observations))

    (record,) = env.episodes()
    assert (bool(env.terminals[0]), bool(env.truncations[0])) == (True, False)
    assert (record["score"], record["perf"], record["walls_cleared"], record["bricks"]) == (14, 1, 2, 2)
    assert (walls_before, rewards[0]) == (0, 1)
    assert (env.final_observations[0, 7], env.final_observations[0, FIRST_BRICK]) == (1, 1)
    env.close()


def test_a_paddle_in_the_middle_loses_all_balls():
    observations, rewards, terminals, truncations, records = drive(STAY, num_steps=120)

    assert terminals.sum() == 1
    assert not truncations.any()
    assert not rewards.any()
    (record,) = records
    assert (record["score"], record["bricks"], record["paddle_hits"]) == (0, 0, 0)
    lives = observations[: int(record["episode_length"]) - 1, 8]
    np.testing.assert_array_equal(np.unique(lives), np.arange(1, 6, dtype=f32) / f32(5))


def test_a_game_without_brick_hits_is_truncated():
    _, _, terminals, truncations, records = drive(STAY, num_steps=25, idle_frames=100)

    assert np.flatnonzero(truncations).tolist() == [24]
    assert not terminals.any()
    assert records[0]["episode_length"] == 25


def test_a_game_is_truncated_after_30000_frames(first_episodes, ball_follower):
    large = {"brick_rows": 8, "brick_cols": 32, "paddle_width": 288, "lives": 100, "idle_frames": 1_000_000}
    env = OceanEnv("breakout", frame_skip=16, **large)

    (record,) = first_episodes(env, ball_follower(1, paddle_width=288))

    assert record["episode_length"] == 30000 // 16
    assert (bool(env.terminals[0]), bool(env.truncations[0])) == (False, True)
    env.close()


def test_puffer3_sets_ball_lives_launch_scaling_and_reward():
    own, puffer3 = OceanEnv("breakout", seed=0), OceanEnv("breakout", seed=0, puffer3=True)
    for env in (own, puffer3):
        env.reset(seed=0)
        env.step(np.zeros_like(env.actions))
    speed = 256 / 60

    np.testing.assert_allclose(np.hypot(*own.observations[0, 4:6]), speed / 8, rtol=1e-6)
    np.testing.assert_allclose(np.hypot(*puffer3.observations[0, 4:6]), speed / 512, rtol=1e-6)
    angle = np.arctan2(abs(puffer3.observations[0, 4]), puffer3.observations[0, 5])
    np.testing.assert_allclose(angle, np.pi / 3.25, rtol=1e-6)
    np.testing.assert_allclose(own.observations[0, [6, 8]], [1, 1])
    np.testing.assert_allclose(puffer3.observations[0, [6, 8]], [0.2, 1])
    x = [
        float(env.observations[0, 2] - 4 * env.observations[0, 4] * scale / WIDTH) * WIDTH
        for env, scale in ((own, 8), (puffer3, 512))
    ]
    np.testing.assert_allclose(x, [(WIDTH - 16) / 2, (WIDTH - 32) / 2], rtol=1e-5)
    for env in (own, puffer3):
        env.close()


def test_a_step_of_four_frames_equals_four_steps_of_one_frame(ball_follower):
    fast = OceanEnv("breakout", num_envs=8, seed=2)
    slow = OceanEnv("breakout", num_envs=8, seed=2, frame_skip=1)
    fast.reset(seed=2)
    slow.reset(seed=2)
    follow = ball_follower(8, seed=2)
    for _ in range(300):
        actions = follow(fast.observations)
        fast.step(actions)
        rewards = sum(slow.step(actions)[1].astype(float) for _ in range(4))
        np.testing.assert_array_equal(fast.observations, slow.observations)
        np.testing.assert_allclose(fast.rewards, np.minimum(rewards, 1), atol=1e-6)
    fast.close()
    slow.close()


def test_drawing_shows_bricks_ball_paddle_and_text():
    env = OceanEnv("breakout", seed=0, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()

    assert picture.shape == (HEIGHT, WIDTH, 3)
    rows = [tuple(picture[WALL_TOP + 12 * row + 5, 16]) for row in range(6)]
    assert len(set(rows)) == 6
    background, paddle, ball = (tuple(picture[y, x]) for y, x in ((250, 20), (PADDLE_TOP + 4, 288), (143, 288)))
    assert len({background, paddle, ball, *rows}) == 9
    assert any(tuple(pixel) != background for pixel in picture[8:24, 8:140].reshape(-1, 3))
    env.close()


SCRIPTS = {  # mean scores, as the README has them
    "random": {False: 0.43, True: 0.89},
    "parked": {False: 2.3, True: 5.4},
    "follow": {False: 510, True: 806},
}


@pytest.mark.parametrize("puffer3", [False, True], ids=["own", "puffer3"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripted_agents_score_as_documented(script, puffer3, first_episodes, ball_follower):
    num_envs = 100 if script == "follow" else 1000
    env = OceanEnv("breakout", num_envs=num_envs, puffer3=puffer3)
    rng = np.random.default_rng(0)
    policies = {
        "random": lambda observations: rng.integers(0, 3, num_envs),
        "parked": lambda observations: np.full(num_envs, LEFT),
        "follow": ball_follower(num_envs, ball_size=32 if puffer3 else 16),
    }
    records = first_episodes(env, policies[script])
    env.close()

    expected = SCRIPTS[script][puffer3]
    assert abs(records["score"].mean() - expected) < 0.25 * expected
