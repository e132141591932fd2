"""Wrappers of foreign envs, for what rows cannot do: taking a step several times, and ending an episode early.

A time limit for a Gymnasium env is Gymnasium's own `TimeLimit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Takes each action several times and adds the rewards up; an episode that ends cuts the repetition short.

    Args:
        env: A Gymnasium env.
        num_repeats: Steps for an action, at least 1.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], num_repeats: int) -> None:
        _check_count("num_repeats", num_repeats)
        gymnasium.utils.RecordConstructorArgs.__init__(self, num_repeats=num_repeats)
        gymnasium.Wrapper.__init__(self, env)
        self.num_repeats = num_repeats

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the action; return the last observation and info."""
        total = 0.0
        for _ in range(self.num_repeats):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class _ParallelWrapper:
    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name == "env" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Reset the env."""
        return self.env.reset(**arguments)  # type: ignore[no-any-return]


class ParallelActionRepeat(_ParallelWrapper):
    """Takes the actions of all agents several times, until an agent ends, leaves or comes.

    Args:
        env: A parallel PettingZoo env.
        num_repeats: Steps for an action, at least 1.
    """

    def __init__(self, env: Any, num_repeats: int) -> None:
        _check_count("num_repeats", num_repeats)
        super().__init__(env)
        self.num_repeats = num_repeats

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, ...]:
        """Take the actions; return the last observations and infos, and the rewards added up."""
        agents = list(self.env.agents)
        totals = dict.fromkeys(agents, 0.0)
        for _ in range(self.num_repeats):
            observations, rewards, terminations, truncations, infos = self.env.step(actions)
            for agent, reward in rewards.items():
                totals[agent] = totals.get(agent, 0.0) + float(reward)
            if list(self.env.agents) != agents or any(terminations.values()) or any(truncations.values()):
                break
        return observations, totals, terminations, truncations, infos


class ParallelTimeLimit(_ParallelWrapper):
    """Truncates all agents after a number of steps.

    Args:
        env: A parallel PettingZoo env.
        max_episode_steps: Steps until then, at least 1.
    """

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        _check_count("max_episode_steps", max_episode_steps)
        super().__init__(env)
        self.max_episode_steps = max_episode_steps
        self._num_steps = 0

    @property
    def agents(self) -> list[Any]:
        """Agents in the world; none once the limit is reached."""
        return [] if self._num_steps >= self.max_episode_steps else list(self.env.agents)

    def reset(self, **arguments: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Reset the env and the count."""
        self._num_steps = 0
        return super().reset(**arguments)

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, ...]:
        """Step the env."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._num_steps += 1
        if self._num_steps >= self.max_episode_steps:
            truncations = dict.fromkeys(observations, True)
        return observations, rewards, terminations, truncations, infos


def _check_count(name: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1; got {count!r}.")
