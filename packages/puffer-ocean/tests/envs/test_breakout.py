"""Breakout's rules: a slow reference that tests every brick repeats whole games, bit for bit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_ocean import OceanEnv

WIDTH, HEIGHT, WALL_TOP, PADDLE_TOP, FLOOR = 576, 330, 50, 312, 320
PADDLE_SPEED = 620
STAY, LEFT, RIGHT = 0, 1, 2
f32 = np.float32


@dataclass
class Rules:
    puffer3: bool = False
    continuous: bool = False
    frame_skip: int = 4
    lives: int = 0
    ball_size: float = 0
    launch_jitter: float = -1
    paddle_width: float = 62
    brick_rows: int = 6
    brick_cols: int = 18
    brick_height: int = 12
    sticky: float = 0
    idle_frames: int = 3000
    max_steps: int = field(init=False)

    def __post_init__(self):
        self.max_steps = math.ceil(30000 / self.frame_skip)
        self.num_lives = self.lives or (6 if self.puffer3 else 5)
        self.size = float(f32(self.ball_size)) or (32.0 if self.puffer3 else 16.0)
        self.jitter = self.launch_jitter if self.launch_jitter >= 0 else (0 if self.puffer3 else 0.1)
        self.points = [(7, 4, 1)[row * 3 // self.brick_rows] for row in range(self.brick_rows)]
        self.max_score = 2 * self.brick_cols * sum(self.points)
        self.brick_width = WIDTH / self.brick_cols


class Game:
    """One world, episode after episode. Positions are pixels, velocities pixels per frame."""

    def __init__(self, rules, seed, world, episode_stream, sincos):
        self.rules, self.seed, self.world = rules, seed, world
        self.episode_stream, self.sincos = episode_stream, sincos
        self.episode = -1
        self.begin_episode()

    def begin_episode(self):
        self.episode += 1
        self.stream = self.episode_stream(self.seed, self.world, self.episode)
        self.lives, self.score, self.steps, self.idle, self.last_action = self.rules.num_lives, 0, 0, 0, 0.0
        self.walls_cleared = self.paddle_hits = self.num_broken = 0
        self.build_wall()
        self.begin_round()

    def build_wall(self):
        self.wall = {(row, col) for row in range(self.rules.brick_rows) for col in range(self.rules.brick_cols)}

    def begin_round(self):
        rules = self.rules
        self.is_fired, self.is_narrow, self.round_hits, self.speed = False, False, 0, 256
        self.paddle_x = (WIDTH - rules.paddle_width) / 2
        self.x, self.y, self.vx, self.vy = (WIDTH - rules.size) / 2, self.start_y, 0.0, 0.0

    @property
    def start_y(self):
        return max(HEIGHT // 2 - 30, WALL_TOP + self.rules.brick_rows * self.rules.brick_height + 8)

    @property
    def paddle_width(self):
        return self.rules.paddle_width * (0.5 if self.is_narrow else 1)

    def send_ball(self, angle, direction):
        sine, cosine = self.sincos(float(angle))
        self.vx, self.vy = sine * (self.speed / 60), cosine * (self.speed / 60) * direction

    def launch(self):
        side = f32(1 if self.stream.below(2) else -1)
        jitter = f32(self.stream.uniform(-self.rules.jitter, self.rules.jitter))
        self.is_fired = True
        self.send_ball(side * (f32(math.pi) / f32(3.25) + jitter), 1)

    def time_in_brick(self, row, col):
        """When the ball, flying straight on, enters and leaves a brick along x and along y."""
        rules, intervals = self.rules, []
        for position, velocity, start, size, index in (
            (self.x, self.vx, 0, rules.brick_width, col),
            (self.y, self.vy, WALL_TOP, rules.brick_height, row),
        ):
            low, high = start + index * size, start + (index + 1) * size
            if velocity == 0:
                is_inside = position < high and position + rules.size > low
                intervals.append((-math.inf, math.inf) if is_inside else (math.inf, -math.inf))
            else:
                to_low, to_high = (low - (position + rules.size)) / velocity, (high - position) / velocity
                intervals.append((to_low, to_high) if velocity > 0 else (to_high, to_low))
        return intervals

    def shared_length(self, kind, row, col, time):
        """How much of its side the brick shares with the ball when they touch."""
        if kind == "face":
            low, size, start, index = self.x + self.vx * time, self.rules.brick_width, 0, col
        else:
            low, size, start, index = self.y + self.vy * time, self.rules.brick_height, WALL_TOP, row
        return min(low + self.rules.size, start + (index + 1) * size) - max(low, start + index * size)

    def brick_events(self, limit):
        if self.y > WALL_TOP + self.rules.brick_rows * self.rules.brick_height + 20:
            return
        for row, col in sorted(self.wall):
            (enter_x, leave_x), (enter_y, leave_y) = self.time_in_brick(row, col)
            time = max(enter_x, enter_y)
            if time < min(leave_x, leave_y) and -1e-9 < time < limit:
                kind = "face" if enter_y > enter_x else "side"
                yield (time, kind != "face", -self.shared_length(kind, row, col, time)), kind, (row, col)

    def next_event(self, limit):
        """The earliest event; of several at once bricks come first, faces before sides, the longest contact first."""
        size = self.rules.size
        first_brick = min(self.brick_events(limit), key=lambda event: event[0], default=None)
        events = [(first_brick[0][0], *first_brick[1:])] if first_brick else []
        if self.vx:
            events.append((((0 if self.vx < 0 else WIDTH - size) - self.x) / self.vx, "side wall", None))
        if self.vy < 0:
            events.append((-self.y / self.vy, "back wall", None))
        else:
            to_paddle = (PADDLE_TOP - size - self.y) / self.vy
            x = self.x + self.vx * to_paddle
            if to_paddle >= 0 and x + size > self.paddle_x and x < self.paddle_x + self.paddle_width:
                events.append((to_paddle, "paddle", None))
            events.append(((FLOOR - self.y) / self.vy, "floor", None))
        events = [event for event in events if event[0] < limit]
        return min(events, key=lambda event: event[0], default=(limit, "nothing", None))

    def move_ball(self):
        left = 1.0
        while self.walls_cleared < 2:
            time, kind, brick = self.next_event(left)
            left -= time
            self.x += self.vx * time
            self.y += self.vy * time
            if kind == "nothing":
                return
            if kind == "floor":
                self.lives -= 1
                self.begin_round()
                return
            if kind in ("face", "side"):
                self.bounce_off_brick(kind, *brick)
            elif kind == "side wall":
                self.x, self.vx = (0 if self.vx < 0 else WIDTH - self.rules.size), -self.vx
            elif kind == "back wall":
                self.y, self.vy, self.is_narrow = 0, -self.vy, True
            else:
                self.hit_paddle()

    def bounce_off_brick(self, kind, row, col):
        rules = self.rules
        if kind == "face":
            edge = WALL_TOP + (row + (self.vy < 0)) * rules.brick_height
            self.y, self.vy = (edge if self.vy < 0 else edge - rules.size), -self.vy
        else:
            edge = rules.brick_width * (col + (self.vx < 0))
            self.x, self.vx = (edge if self.vx < 0 else edge - rules.size), -self.vx
        self.wall.remove((row, col))
        self.score += rules.points[row]
        self.num_broken += 1
        self.walls_cleared += not self.wall
        self.idle = 0
        if row < rules.brick_rows / 2:
            self.speed = 448

    def hit_paddle(self):
        place = (self.x + self.rules.size / 2 - self.paddle_x) / self.paddle_width - 0.5
        limit = f32(math.pi) / f32(2.25 if self.rules.puffer3 else 4)
        self.y = PADDLE_TOP - self.rules.size
        self.send_ball(np.clip(f32(place) * (f32(math.pi) / f32(2)), -limit, limit), -1)
        self.paddle_hits += 1
        self.round_hits += 1
        if self.round_hits % 4 == 0 and self.speed < 448:
            self.speed += 64
        if not self.wall:
            self.build_wall()

    def step(self, action):
        """Returns reward, terminal, truncation, the observation before an automatic reset."""
        rules, score = self.rules, self.score
        wish = float(f32(action)) if rules.continuous else {STAY: 0.0, LEFT: -1.0, RIGHT: 1.0}[int(action)]
        self.steps += 1
        is_over = is_idle = False
        for _ in range(rules.frame_skip):
            if not (rules.sticky and self.stream.chance(rules.sticky)):
                self.last_action = wish
            x = self.paddle_x + self.last_action * PADDLE_SPEED / 60
            self.paddle_x = min(max(x, 0), WIDTH - self.paddle_width)
            if not self.is_fired:
                self.launch()
            self.idle += 1
            self.move_ball()
            is_over = self.lives == 0 or self.walls_cleared == 2
            is_idle = self.idle >= rules.idle_frames
            if is_over or is_idle:
                break
        points = f32(self.score - score)
        reward = min(f32(1), points if rules.puffer3 else points / f32(7))
        return reward, is_over, is_idle or self.steps >= rules.max_steps, self.observation()

    def observation(self):
        rules = self.rules
        spare = int(rules.puffer3)
        velocity_scale = f32(1 / 512 if rules.puffer3 else 1 / 8)
        bricks = [(row, col) not in self.wall for row in range(rules.brick_rows) for col in range(rules.brick_cols)]
        return np.array(
            [
                self.paddle_x / WIDTH,
                f32(PADDLE_TOP) / f32(HEIGHT),
                self.x / WIDTH,
                self.y / HEIGHT,
                f32(self.vx) * velocity_scale,
                f32(self.vy) * velocity_scale,
                f32(0.2 if rules.puffer3 else 1) * f32(self.is_fired),
                f32(self.score) / f32(rules.max_score),
                f32(self.lives - spare) / f32(max(rules.num_lives - spare, 1)),
                0.5 if self.is_narrow else 1,
                *bricks,
            ],
            dtype=f32,
        )


def compare_with_reference(rules, parameters, seed, num_steps, episode_stream, sincos, ball_follower):
    num_envs = 3
    env = OceanEnv("breakout", num_envs=num_envs, seed=seed, **parameters)
    observations, _ = env.reset(seed=seed)
    games = [Game(rules, seed, world, episode_stream, sincos) for world in range(num_envs)]
    rng = np.random.default_rng(seed)
    follow = ball_follower(
        num_envs,
        ball_size=rules.size,
        paddle_width=rules.paddle_width,
        is_continuous=rules.continuous,
    )
    num_ends = 0
    for step in range(num_steps):
        for world, game in enumerate(games):
            np.testing.assert_array_equal(observations[world], game.observation(), err_msg=f"step {step} world {world}")
        actions = follow(observations)
        is_random = rng.random(num_envs) < 0.1
        noise = rng.uniform(-1, 1, actions.shape) if rules.continuous else rng.integers(0, 3, actions.shape)
        actions = np.where(is_random.reshape(actions.shape), noise, actions).astype(actions.dtype)
        observations, rewards, terminals, truncations, _ = env.step(actions)
        records = {int(record["world"]): record for record in env.episodes()}
        for world, game in enumerate(games):
            action = actions[world, 0] if rules.continuous else actions[world]
            reward, is_over, is_truncated, last = game.step(action)
            got = (rewards[world], bool(terminals[world]), bool(truncations[world]))
            assert got == (reward, is_over, is_truncated), f"step {step} world {world}"
            if is_over or is_truncated:
                num_ends += 1
                np.testing.assert_array_equal(env.final_observations[world], last)
                check_record(records[world], game)
                game.begin_episode()
    env.close()
    return num_ends


def check_record(record, game):
    assert record["score"] == game.score
    assert record["perf"] == game.score / game.rules.max_score
    assert record["episode_length"] == game.steps
    assert (record["bricks"], record["paddle_hits"], record["walls_cleared"]) == (
        game.num_broken,
        game.paddle_hits,
        game.walls_cleared,
    )


@pytest.mark.parametrize("parameters", [{}, {"puffer3": True}], ids=["own", "puffer3"])
def test_whole_games_equal_the_reference(parameters, episode_stream, sincos, ball_follower):
    num_ends = compare_with_reference(Rules(**parameters), parameters, 3, 3200, episode_stream, sincos, ball_follower)

    assert num_ends > 0


@settings(max_examples=20, deadline=None)
@given(
    parameters=st.fixed_dictionaries(
        {},
        optional={
            "puffer3": st.booleans(),
            "continuous": st.booleans(),
            "frame_skip": st.integers(1, 16),
            "lives": st.integers(1, 8),
            "ball_size": st.sampled_from([3, 12, 24, 32, 48]),
            "launch_jitter": st.sampled_from([0, 0.25, 0.5]),
            "paddle_width": st.sampled_from([16, 100, 288]),
            "brick_rows": st.integers(1, 8),
            "brick_cols": st.sampled_from([1, 4, 7, 18, 32]),
            "brick_height": st.integers(4, 12),
            "sticky": st.sampled_from([0.1, 0.25]),
            "idle_frames": st.sampled_from([60, 500]),
        },
    ),
    seed=st.integers(0, 1000),
)
def test_games_with_other_parameters_equal_the_reference(parameters, seed, episode_stream, sincos, ball_follower):
    compare_with_reference(Rules(**parameters), parameters, seed, 60, episode_stream, sincos, ball_follower)
