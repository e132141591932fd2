"""Pong's rules: a reference that moves frame by frame repeats whole games."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_ocean import OceanEnv

WIDTH, HEIGHT, BALL, PADDLE = 500, 640, 32, 70
HIGHEST_X, HIGHEST_Y, HIGHEST_PADDLE = WIDTH - BALL, HEIGHT - BALL, HEIGHT - PADDLE
STILL, UP, DOWN = 0, 1, 2


def clip(value, low, high):
    return min(max(value, low), high)


class Game:
    """One world, episode after episode. Positions are pixels, velocities pixels per frame."""

    def __init__(self, stream_of_episode, *, continuous=False, frame_skip=8, opponent_speed=8, reward_hit=0.1):
        self.stream_of_episode = stream_of_episode
        self.continuous, self.frame_skip = continuous, frame_skip
        self.opponent_speed, self.reward_hit = opponent_speed, np.float32(reward_hit)
        self.max_steps = -(-20000 // frame_skip)
        self.episode = -1
        self.begin_episode()

    def begin_episode(self):
        self.episode += 1
        self.stream = self.stream_of_episode(self.episode)
        self.won = self.lost = self.steps = self.frames = self.hits = 0
        self.begin_rally()

    def begin_rally(self):
        self.x, self.y, self.vx, self.vy = WIDTH // 5, HIGHEST_Y // 2, 10, self.stream.integer(-1, 1)
        self.paddle = self.opponent = HIGHEST_PADDLE // 2

    def step_frame(self, direction):
        self.frames += 1
        gap = (self.y + BALL / 2) - (self.opponent + PADDLE / 2)
        self.paddle = clip(self.paddle + 8 * direction, 0, HIGHEST_PADDLE)
        self.opponent = clip(self.opponent + clip(gap, -self.opponent_speed, self.opponent_speed), 0, HIGHEST_PADDLE)
        self.x += self.vx
        self.y += self.vy
        if not 0 <= self.y <= HIGHEST_Y:
            self.y, self.vy = (-self.y if self.y < 0 else 2 * HIGHEST_Y - self.y), -self.vy
        if self.x > HIGHEST_X:
            return self.reach_our_end(direction)
        return self.reach_opponent() if self.x < 0 else 0

    def reach_our_end(self, direction):
        if not self.paddle - BALL < self.y < self.paddle + PADDLE:
            self.lost += 1
            self.begin_rally()
            return -1
        self.hits += 1
        self.x, self.vx = 2 * HIGHEST_X - self.x, -10
        self.vy = clip(self.vy + 3 * direction, -13, 13)
        if abs(self.vy) < 0.01:
            self.vy = 3
        return self.reward_hit

    def reach_opponent(self):
        if not self.opponent - BALL < self.y < self.opponent + PADDLE:
            self.won += 1
            self.begin_rally()
            return 1
        self.x, self.vx = -self.x, 10
        return 0

    def step(self, action):
        """Returns reward, terminal, truncation."""
        direction = float(action) if self.continuous else {STILL: 0, UP: -1, DOWN: 1}[int(action)]
        reward = np.float32(0)
        self.steps += 1
        for _ in range(self.frame_skip):
            reward += np.float32(self.step_frame(direction))
            if 21 in (self.won, self.lost):
                return reward, True, self.steps >= self.max_steps
        return reward, False, self.steps >= self.max_steps

    def observation(self):
        return np.array(
            [
                self.opponent / HIGHEST_PADDLE,
                self.paddle / HIGHEST_PADDLE,
                self.x / HIGHEST_X,
                self.y / HIGHEST_Y,
                (self.vx + 10) / 20,
                (self.vy + 13) / 26,
                self.won / 21,
                self.lost / 21,
            ]
        )


def follow(observations):
    """Go where the ball will arrive, and meet it in motion so that it gets faster than the opponent."""
    x, y, paddle = observations[:, 2] * HIGHEST_X, observations[:, 3] * HIGHEST_Y, observations[:, 1] * HIGHEST_PADDLE
    vx, vy = observations[:, 4] * 20 - 10, observations[:, 5] * 26 - 13
    frames = np.ceil(np.where(vx > 0, HIGHEST_X - x, x + HIGHEST_X) / 10)
    arrival = HIGHEST_Y - abs((y + vy * frames) % (2 * HIGHEST_Y) - HIGHEST_Y)
    gap = arrival + BALL / 2 - (paddle + PADDLE / 2)
    push = np.where(vy >= 0, 1, -1)
    hits_in_motion = (frames <= 8) & (abs(gap - 8 * push * frames) < 45)
    direction = np.where(hits_in_motion, push, np.where(abs(gap) > 32, np.sign(gap), 0))
    return np.array([STILL, DOWN, UP])[direction.astype(int)]


@settings(max_examples=10, deadline=None)
@given(
    parameters=st.fixed_dictionaries(
        {},
        optional={
            "continuous": st.booleans(),
            "frame_skip": st.integers(1, 16),
            "opponent_speed": st.integers(1, 13),
            "reward_hit": st.sampled_from([0, 0.05]),
        },
    ),
    seed=st.integers(0, 1000),
    noise=st.sampled_from([0.02, 0.3, 1]),
)
def test_games_equal_the_reference(parameters, seed, noise, episode_stream):
    num_envs = 4
    env = OceanEnv("pong", num_envs=num_envs, seed=seed, **parameters)
    games = [
        Game(lambda episode, world=world: episode_stream(seed, world, episode), **parameters)
        for world in range(num_envs)
    ]
    rng = np.random.default_rng(seed)
    observations, _ = env.reset(seed=seed)
    for step in range(250):
        for world, game in enumerate(games):
            np.testing.assert_allclose(observations[world], game.observation(), atol=2e-5, err_msg=f"step {step}")
        actions = np.where(rng.random(num_envs) < noise, rng.integers(0, 3, num_envs), follow(observations))
        if parameters.get("continuous"):
            actions = np.array([0, -1, 1], np.float32)[actions][:, None] * np.float32(0.75)
        observations, rewards, terminals, truncations, _ = env.step(actions)
        for world, game in enumerate(games):
            expected = game.step(actions[world].item())
            got = (rewards[world], bool(terminals[world]), bool(truncations[world]))
            assert got == pytest.approx(expected, abs=1e-6), f"step {step} world {world}"
            if terminals[world] or truncations[world]:
                np.testing.assert_allclose(env.final_observations[world], game.observation(), atol=2e-5)
                game.begin_episode()
    env.close()


def test_a_game_ends_at_21_points_and_is_recorded(first_episodes):
    env = OceanEnv("pong", seed=1)
    records = first_episodes(env, lambda observations: np.full(1, UP))

    (record,) = records
    assert (bool(env.terminals[0]), bool(env.truncations[0])) == (True, False)
    assert (record["score"], record["perf"], record["hits"]) == (-21, 0, 0)
    assert record["episode_return"] == -21
    assert record["rally_frames"] == 37
    assert env.final_observations[0, 7] == 1
    env.close()


def test_the_return_counts_hits_as_well_as_points(first_episodes):
    env = OceanEnv("pong", num_envs=8)
    records = first_episodes(env, follow)
    env.close()

    np.testing.assert_allclose(records["episode_return"], records["score"] + 0.1 * records["hits"], atol=1e-4)
    assert (records["perf"] <= 1).all()


def test_an_endless_rally_is_truncated_after_20000_frames(first_episodes):
    env = OceanEnv("pong", seed=0, opponent_speed=13)
    (record,) = first_episodes(env, follow)

    assert record["episode_length"] == 20000 // 8
    assert (bool(env.terminals[0]), bool(env.truncations[0])) == (False, True)
    env.close()


def test_after_a_point_the_observation_is_that_of_the_new_rally():
    env = OceanEnv("pong", seed=3, frame_skip=1)
    observations, _ = env.reset(seed=3)
    rewards = np.zeros(1)
    while rewards[0] >= 0:
        observations, rewards, *_ = env.step(np.full(1, UP))

    np.testing.assert_allclose(observations[0, [0, 1, 2, 3, 4, 6]], [0.5, 0.5, 100 / 468, 0.5, 1, 0], atol=1e-6)
    np.testing.assert_allclose(observations[0, 7], 1 / 21, atol=1e-6)
    env.close()


def test_a_step_of_eight_frames_equals_eight_steps_of_one_frame():
    fast, slow = OceanEnv("pong", num_envs=16, seed=2), OceanEnv("pong", num_envs=16, seed=2, frame_skip=1)
    fast.reset(seed=2)
    slow.reset(seed=2)
    rng = np.random.default_rng(2)
    for _ in range(400):
        actions = np.where(rng.random(16) < 0.2, rng.integers(0, 3, 16), follow(fast.observations))
        fast.step(actions)
        rewards = np.zeros(16)
        for _ in range(8):
            rewards += slow.step(actions)[1]
            if slow.terminals.any():
                break
        if fast.terminals.any():
            break
        np.testing.assert_array_equal(fast.observations, slow.observations)
        np.testing.assert_allclose(fast.rewards, rewards, atol=1e-6)
    fast.close()
    slow.close()


def test_drawing_shows_paddles_ball_and_score():
    env = OceanEnv("pong", seed=0, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()

    assert picture.shape == (HEIGHT, WIDTH + 40, 3)
    left, right, ball = (tuple(picture[y, x]) for y, x in ((320, 10), (320, 530), (320, 130)))
    assert len({left, right, ball, tuple(picture[600, 300])}) == 4
    assert len({tuple(pixel) for pixel in picture[10:60, 150:400].reshape(-1, 3)}) >= 3
    env.close()


SCORES = {"random": -21, "still": -21, "follow": 21}


@pytest.mark.parametrize("script", SCORES)
def test_scripted_agents_score_as_documented(script, first_episodes):
    num_envs = 200
    env = OceanEnv("pong", num_envs=num_envs)
    rng = np.random.default_rng(0)
    policies = {
        "random": lambda observations: rng.integers(0, 3, num_envs),
        "still": lambda observations: np.zeros(num_envs, np.int32),
        "follow": follow,
    }
    records = first_episodes(env, policies[script])
    env.close()

    assert abs(records["score"].mean() - SCORES[script]) < 0.5
