"""An env whose agents take turns, seen as one that steps all agents at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puffer_emulate.infos import own_value


class TurnBasedEnv:
    """A PettingZoo AEC env with the parallel API: a step is one turn, and all agents see what came of it.

    The reward of a turn is what it added to an agent's cumulative reward. Agents that have ended are taken through
    their empty turns at once.

    Args:
        env: The AEC env.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def agents(self) -> list[Any]:
        """Agents in the world."""
        return list(self.env.agents)

    @property
    def agent_selection(self) -> Any:
        """The agent whose turn it is."""
        return self.env.agent_selection

    def reset(self, **arguments: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Start an episode; return the observations and infos of all agents."""
        self.env.reset(**arguments)
        self._take_empty_turns()
        return self._observed(), dict(self.env.infos)

    def step(
        self, actions: Mapping[Any, Any]
    ) -> tuple[dict[Any, Any], dict[Any, float], dict[Any, bool], dict[Any, bool], dict[Any, Any]]:
        """Make the move of the agent whose turn it is; the other actions are ignored."""
        env = self.env
        mover = env.agent_selection
        before = dict(env._cumulative_rewards)
        # The mover's sum starts anew with its move.
        before[mover] = 0
        env.step(actions[mover])
        rewards = {agent: total - before.get(agent, 0) for agent, total in env._cumulative_rewards.items()}
        terminations, truncations = dict(env.terminations), dict(env.truncations)
        infos = {agent: own_value(info) for agent, info in env.infos.items()}
        ended = [agent for agent in env.agents if terminations.get(agent) or truncations.get(agent)]
        observations = self._observed(ended)
        self._take_empty_turns()
        return observations | self._observed(), rewards, terminations, truncations, infos

    def render(self) -> Any:
        """Draw the env as its `render_mode` says."""
        return self.env.render()

    def _observed(self, agents: list[Any] | None = None) -> dict[Any, Any]:
        # One env may fill the same array for each agent in turn.
        return {agent: own_value(self.env.observe(agent)) for agent in (self.env.agents if agents is None else agents)}

    def _take_empty_turns(self) -> None:
        env = self.env
        while env.agents and (env.terminations.get(env.agent_selection) or env.truncations.get(env.agent_selection)):
            env.step(None)
