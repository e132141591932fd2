"""Environments that several files of tests use."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from puffer_spaces import check_env


class Counter(gymnasium.Env):
    """Counts its steps and ends after `length` of them; reuses one observation array and one info dict."""

    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length=3, truncates=False):
        self.length = length
        self.truncates = truncates
        self.observation = np.zeros(2, np.float32)
        self.info = {}
        self.calls = []
        self.num_closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.calls.append((seed, options))
        self.observation[:] = 0
        self.info.clear()
        return self.observation, self.info

    def step(self, action):
        self.observation += 1
        is_over = bool(self.observation[0] == self.length)
        if is_over:
            self.info["score"] = 7.0
            self.info["parts"] = [np.array([self.observation[0]])]
        return self.observation, 1.0, is_over and not self.truncates, is_over and self.truncates, self.info

    def close(self):
        self.num_closed += 1


@pytest.fixture(scope="session")
def counter():
    """A Gymnasium class whose episodes have three steps."""
    return Counter


class Scripted:
    """A parallel env whose agents are present as a script says; observations are (agent's number, step)."""

    metadata = {"name": "scripted"}  # noqa: RUF012
    render_mode = None

    def __init__(self, agents="abc", script=None, length=100, ends=None, shuffle=False, low=0):
        self.possible_agents = list(agents)
        self.script = script
        self.length = length
        self.ends = ends or {}
        self.shuffle = np.random.default_rng(0) if shuffle else None
        self.low = low
        self.received = []
        self.resets = []
        self.buffers = {agent: np.zeros(2, np.float32) for agent in self.possible_agents}
        self.agents = []

    def observation_space(self, agent):
        return spaces.Box(-1, 1000, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(20, start=self.low)

    def reset(self, seed=None, options=None):
        self.resets.append((seed, options))
        self.step_count = 0
        self.dead = set()
        self.agents = self.present()
        return self.ordered(self.agents, self.observe), {agent: {"id": agent, "seed": seed} for agent in self.agents}

    def observe(self, agent):
        self.buffers[agent][:] = (self.possible_agents.index(agent), self.step_count)
        return self.buffers[agent]

    def present(self):
        agents = self.possible_agents if self.script is None else self.script(self.step_count)
        return [agent for agent in agents if agent not in self.dead]

    def ordered(self, agents, value_of):
        agents = list(agents)
        if self.shuffle is not None:
            self.shuffle.shuffle(agents)
        return {agent: value_of(agent) for agent in agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.received.append(dict(actions))
        self.step_count += 1
        ended = {agent for agent in self.agents if self.ends.get(agent) == self.step_count}
        cut = set(self.agents) if self.step_count == self.length else set()
        self.dead |= ended
        present = self.present()
        seen = [*present, *ended]
        result = (
            self.ordered(seen, self.observe),
            self.ordered(seen, lambda agent: 1.0),
            self.ordered(seen, lambda agent: agent in ended),
            self.ordered(seen, lambda agent: agent in cut),
            self.ordered(seen, lambda agent: {"score": 5.0} if agent in ended else {}),
        )
        self.agents = [] if cut else present
        return result

    def close(self): ...


@pytest.fixture(scope="session")
def scripted():
    """A parallel class whose agents come and go by a script."""
    return Scripted


@pytest.fixture(scope="session")
def zeros():
    """Makes the actions zero of all agents of an env."""

    def make(env):
        return np.zeros_like(env.actions)

    return make


@pytest.fixture(scope="session")
def errors():
    """Lists what in an env breaks the contract, but for the checks that are left out by name."""

    def listed(env, skip=()):
        return [finding for finding in check_env(env, skip=skip) if finding.severity == "error"]

    return listed
