"""What a game of turns must look like once it is a PufferEnv."""

import numpy as np
from gymnasium import spaces

from puffer_emulate import emulate


class Nim:
    """An AEC game: take 1 or 2 of 5; who takes the last wins. One buffer for all observations."""

    metadata = {"name": "nim"}  # noqa: RUF012
    render_mode = None
    possible_agents = ["first", "second"]  # noqa: RUF012

    def __init__(self):
        self.buffer = np.zeros(2, np.int8)
        self.moves = []

    def observation_space(self, agent):
        return spaces.Dict(observation=spaces.Box(0, 5, (2,), np.int8), action_mask=spaces.Box(0, 1, (2,), np.int8))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.left = 5
        self.agents = list(self.possible_agents)
        self.agent_selection = "first"
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent):
        self.buffer[:] = (self.left, self.possible_agents.index(agent))
        return {"observation": self.buffer, "action_mask": np.array([1, self.left > 1], np.int8)}

    def agent_iter(self): ...

    def last(self): ...

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            assert action is None
            self.agents.remove(agent)
            for values in (self.terminations, self.truncations, self.rewards, self._cumulative_rewards, self.infos):
                del values[agent]
            self.agent_selection = self.agents[0] if self.agents else None
            return
        self.moves.append((agent, int(action)))
        self._cumulative_rewards[agent] = 0
        other = next(name for name in self.agents if name != agent)
        self.left -= int(action) + 1
        self.rewards = dict.fromkeys(self.agents, 0)
        if self.left == 0:
            self.rewards = {agent: 1, other: -1}
            self.terminations = dict.fromkeys(self.agents, True)
        for name, reward in self.rewards.items():
            self._cumulative_rewards[name] += reward
        self.agent_selection = other

    def close(self): ...


def test_turns_are_taken_one_a_step_and_both_players_learn_the_end():
    env = emulate(Nim)
    observations, _ = env.reset(seed=0)
    assert env.single_observation_space == spaces.Box(0, 5, (2,), np.int8)
    assert observations.tolist() == [[5, 0], [5, 1]]
    assert env.action_mask.tolist() == [[True, True], [True, False]]

    env.step(np.array([1, 0]))
    assert env.observations.tolist() == [[3, 0], [3, 1]]
    assert env.action_mask.tolist() == [[True, False], [True, True]]
    assert env.masks.all()

    env.step(np.array([0, 1]))
    assert env.action_mask.tolist() == [[True, False], [True, False]]
    _, rewards, terminals, _, _ = env.step(np.array([0, 0]))

    assert env.env.moves == [("first", 1), ("second", 1), ("first", 0)]
    assert rewards.tolist() == [1, -1]
    assert terminals.all()
    assert env.final_observations.tolist() == [[0, 0], [0, 1]]
    assert env.observations.tolist() == [[5, 0], [5, 1]]
    assert env.masks.all()
    assert env.episodes()["episode_return"].tolist() == [1, -1]


def test_the_contract_holds_for_turns(errors):
    assert errors(emulate(Nim, 2)) == []
