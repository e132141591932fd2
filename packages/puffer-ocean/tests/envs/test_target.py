"""Target's rules: a reference in plain Python repeats whole episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_ocean import OceanEnv

WIDTH, HEIGHT = 1080, 720
STRAIGHT, KEEP_SPEED = 4, 2
f32 = np.float32


@dataclass
class Agent:
    x: float
    y: float
    cosine: float
    sine: float
    speed: int = 0
    goals: int = 0

    @property
    def place(self):
        return f32(self.x / WIDTH), f32(self.y / HEIGHT)


class Plane:
    """One world in one episode. Positions are pixels; places are fractions of the field's width and height."""

    def __init__(self, stream, sincos, *, num_agents=8, num_goals=4, radius=32):
        self.stream, self.radius = stream, radius
        self.goals = [(stream.unit(), stream.unit()) for _ in range(num_goals)]
        self.agents = []
        for _ in range(num_agents):
            x, y = stream.unit() * WIDTH, stream.unit() * HEIGHT
            sine, cosine = sincos(stream.uniform(-math.pi, math.pi))
            self.agents.append(Agent(x, y, cosine, sine))
        self.rewards = [0] * num_agents

    def step(self, actions):
        for agent, (turn, push) in zip(self.agents, actions, strict=True):
            angle = (turn - STRAIGHT) / 12
            c, s = math.cos(angle), math.sin(angle)
            agent.cosine, agent.sine = agent.cosine * c - agent.sine * s, agent.sine * c + agent.cosine * s
            agent.speed = min(max(agent.speed + push - KEEP_SPEED, -20), 20)
            agent.x = min(max(agent.x + agent.speed * agent.cosine, 0), WIDTH)
            agent.y = min(max(agent.y + agent.speed * agent.sine, 0), HEIGHT)
        self.rewards = [0] * len(self.agents)
        for index, goal in enumerate(self.goals):
            touching = [i for i, agent in enumerate(self.agents) if self.touches(agent, goal) and not self.rewards[i]]
            if touching:
                winner = touching[0]
                for rank, candidate in enumerate(touching[1:], start=2):
                    winner = candidate if self.stream.below(rank) == 0 else winner
                self.rewards[winner] = 1
                self.agents[winner].goals += 1
                self.goals[index] = (self.stream.unit(), self.stream.unit())

    def touches(self, agent, goal):
        return (goal[0] * WIDTH - agent.x) ** 2 + (goal[1] * HEIGHT - agent.y) ** 2 <= self.radius**2

    def observation(self, index):
        own = self.agents[index]
        others = [agent.place for agent in self.agents[:index] + self.agents[index + 1 :]]
        ways = [(f32(x) - own.place[0], f32(y) - own.place[1]) for x, y in [*self.goals, *others]]
        numbers = [own.cosine, own.sine, f32(own.speed) * f32(1 / 20), self.rewards[index], *own.place]
        return np.clip(np.array([*np.ravel(ways), *numbers], dtype=f32), -1, 1)


def steer(observations, *, num_goals=4):
    """Turn to the nearest goal, and brake while it is not ahead."""
    ways = observations[:, : 2 * num_goals].reshape(len(observations), num_goals, 2) * (WIDTH, HEIGHT)
    distances = np.hypot(ways[..., 0], ways[..., 1])
    way = np.take_along_axis(ways, distances.argmin(1)[:, None, None], 1)[:, 0]
    cosine, sine, speed = observations[:, -6], observations[:, -5], observations[:, -4] * 20
    error = np.arctan2(cosine * way[:, 1] - sine * way[:, 0], cosine * way[:, 0] + sine * way[:, 1])
    turn = np.clip(np.rint(error * 12), -4, 4) + STRAIGHT
    wish = np.where(abs(error) < 1.5, 20, 2)
    push = np.clip(np.rint(wish - speed), -2, 2) + KEEP_SPEED
    return np.stack([turn, push], axis=1).astype(np.int32)


@settings(max_examples=10, deadline=None)
@given(
    parameters=st.fixed_dictionaries(
        {},
        optional={
            "num_agents": st.sampled_from([1, 2, 5, 64]),
            "num_goals": st.sampled_from([1, 3, 64]),
            "radius": st.sampled_from([8, 200]),
        },
    ),
    seed=st.integers(0, 1000),
)
def test_episodes_equal_the_reference(parameters, seed, episode_stream, sincos):
    num_envs, num_goals = 2, parameters.get("num_goals", 4)
    env = OceanEnv("target", num_envs=num_envs, seed=seed, **parameters)
    planes = [Plane(episode_stream(seed, world, 0), sincos, **parameters) for world in range(num_envs)]
    num_agents = len(planes[0].agents)
    rng = np.random.default_rng(seed)
    observations, _ = env.reset(seed=seed)
    rewards = np.zeros(len(observations))
    for step in range(60):
        expected = [plane.observation(i) for plane in planes for i in range(num_agents)]
        np.testing.assert_array_equal(observations, expected, err_msg=f"step {step}")
        np.testing.assert_array_equal(rewards, [reward for plane in planes for reward in plane.rewards])
        actions = steer(observations, num_goals=num_goals)
        is_random = rng.random(len(actions)) < 0.2
        actions[is_random] = rng.integers(0, (9, 5), (int(is_random.sum()), 2))
        observations, rewards, *_ = env.step(actions)
        for world, plane in enumerate(planes):
            plane.step(actions[world * num_agents : (world + 1) * num_agents].tolist())
    env.close()


def test_all_agents_are_truncated_together_after_512_steps():
    env = OceanEnv("target", num_envs=3, seed=4)
    observations, _ = env.reset(seed=4)
    for step in range(1, 513):
        observations, _, terminals, truncations, _ = env.step(steer(observations))
        assert not terminals.any()
        assert truncations.tolist() == [step == 512] * 24

    records = env.episodes()
    assert len(records) == 24
    assert (records["episode_length"] == 512).all()
    np.testing.assert_array_equal(records["score"], records["episode_return"])
    np.testing.assert_allclose(records["steps_per_goal"], 512 / np.maximum(records["score"], 1))
    assert records["world"].tolist() == np.repeat([0, 1, 2], 8).tolist()
    assert records["agent"].tolist() == list(range(8)) * 3
    assert not (env.observations[:, 24:26] != 0).any()
    env.close()


def test_a_touched_goal_jumps_and_rewards_one_agent():
    env = OceanEnv("target", seed=0, num_agents=4, num_goals=1, radius=200)
    observations, _ = env.reset(seed=0)
    num_touches = 0
    for _ in range(200):
        before = observations[:, :2] + observations[:, -2:]
        observations, rewards, *_ = env.step(steer(observations, num_goals=1))
        after = observations[:, :2] + observations[:, -2:]
        num_touches += int(rewards.sum())

        assert rewards.sum() in (0, 1)
        assert (abs(after - before).max() > 1e-3) == bool(rewards.any())
        np.testing.assert_array_equal(observations[:, -3], rewards)
    assert num_touches > 0
    env.close()


def test_a_goal_that_jumps_to_another_agent_does_not_pay_it_in_the_same_step():
    env = OceanEnv("target", num_envs=64, num_agents=2, num_goals=1, radius=200)
    env.reset(seed=1)
    field = np.array([WIDTH, HEIGHT])
    paid = {0: 0, 1: 0}
    for _ in range(100):
        goals = ((env.observations[:, :2] + env.observations[:, -2:]) * field).reshape(64, 2, 2)[:, 0]
        env.step(steer(env.observations, num_goals=1))
        agents = (env.observations[:, -2:] * field).reshape(64, 2, 2)
        new_goals = (env.observations[:, :2] * field).reshape(64, 2, 2) + agents
        is_touching = np.hypot(*np.moveaxis(agents - goals[:, None], 2, 0)) < env.parameters["radius"]
        is_near_now = np.hypot(*np.moveaxis(agents - new_goals, 2, 0)) < env.parameters["radius"]
        for first in (0, 1):
            cases = is_touching[:, first] & ~is_touching[:, 1 - first] & is_near_now[:, 1 - first]
            rewards = env.rewards.reshape(64, 2)[cases]
            assert (rewards[:, first] == 1).all()
            assert (rewards[:, 1 - first] == 0).all()
            paid[first] += len(rewards)

    assert min(paid.values()) > 10


def test_illegal_actions_keep_heading_and_speed():
    env = OceanEnv("target", seed=0)
    observations, _ = env.reset(seed=0)
    before = observations.copy()
    env.step(np.tile(np.array([[-1, 99]], np.int32), (8, 1)))

    np.testing.assert_array_equal(env.observations[:, -6:-3], before[:, -6:-3])
    env.close()


def test_drawing_shows_agents_and_goals():
    env = OceanEnv("target", seed=0, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()

    assert picture.shape == (HEIGHT // 2, WIDTH // 2, 3)
    assert len({tuple(pixel) for pixel in picture.reshape(-1, 3)}) >= 5
    x, y = env.observations[0, -2:] * (WIDTH / 2, HEIGHT / 2)
    assert tuple(picture[int(y), int(x)]) != tuple(picture[0, -1])
    env.close()


@pytest.mark.parametrize(("script", "score"), [("random", 0.7), ("steer", 8)])
def test_scripted_agents_score_as_documented(script, score):
    env = OceanEnv("target", num_envs=100)
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=7)
    for _ in range(512):
        actions = steer(observations) if script == "steer" else rng.integers(0, (9, 5), (800, 2))
        env.step(actions.astype(np.int32))
    records = env.episodes()
    env.close()

    assert abs(records["score"].mean() - score) < 0.15 * score
