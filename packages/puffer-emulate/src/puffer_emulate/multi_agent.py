"""Step foreign multi-agent environments, whose agents may die, come and go, behind one set of buffers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from gymnasium import spaces

from puffer_emulate.action_masks import ActionMasks
from puffer_emulate.infos import episode_metrics
from puffer_emulate.worlds import PROBE_STEPS, ForeignEnv, World, shown
from puffer_spaces import Array, Buffers, StepResult, as_flag, as_info, as_reward


class MultiAgentWorlds(ForeignEnv):
    """Hold worlds of several agents each, whose envs speak PettingZoo's parallel API.

    Each possible agent has a row of its own, in the order of `possible_agents`, whatever the order of the dicts.

    - A row's mask is True where its agent will act. An action only reaches an agent whose mask was True.
    - The step on which an agent ends has its reward, its flag and its final observation. Then its row is zero and its
      mask False, until the world starts anew or the agent returns, which starts a new episode for it. An agent that
      leaves without a flag is truncated.
    - When no agent is left the world is reset in the same step, and no row is flagged a second time.

    Args:
        name: What errors call the env.
        worlds: At least one, all with the same agents and spaces.
        agents: The possible agents of a world.
        observation_space: Of every agent; any space that `Layout` takes. The `action_mask` of a Dict becomes the env's
            `action_mask` and leaves the observation.
        action_space: Of every agent; any space that `ActionLayout` takes.
        is_turn_based: Whether only the agent `agent_selection` acts. The others keep their rows and masks and may only
            choose 0, which is ignored.
        buf: Buffers, or None to allocate them.
        seed: Seed for a first reset that is given none; None leaves the choice to the envs.
        episode_extras: Names of numbers in an agent's last info that its record keeps.
    """

    def __init__(
        self,
        name: str,
        worlds: Sequence[World],
        agents: Sequence[Any],
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        is_turn_based: bool = False,
        buf: Buffers | Mapping[str, Any] | None = None,
        seed: int | None = None,
        episode_extras: Sequence[str] = (),
    ) -> None:
        self.possible_agents = list(agents)
        self._masks_of = ActionMasks(observation_space, action_space, is_turn_based)
        self.action_mask_size = self._masks_of.size
        self._live = [False] * (len(worlds) * len(agents))
        seen = self._masks_of.observation_space
        super().__init__(name, worlds, len(agents), seen, action_space, buf, seed, episode_extras)

    def _bind_rows(self) -> None:
        super()._bind_rows()
        if self._is_started:
            self.masks[:] = self._live

    def step(self, actions: Array) -> StepResult:
        """Step every world once.

        Args:
            actions: Like the `actions` array, one row an agent. Rows whose mask was False are not read by the env.

        Returns:
            (observations, rewards, terminals, truncations, infos): the bound arrays, overwritten by the next step, and
            the infos that are not empty, each with its `agent_index`. On the step that ends a world the last infos come
            before those of the reset.

        Raises:
            RuntimeError: The env was not reset, or was closed.
            ValueError: An action, observation or reward does not fit.
        """
        self._check_started()
        values = self._read_actions(actions)
        self._num_steps += 1
        self.rewards.fill(0)
        self.terminals.fill(False)
        self.truncations.fill(False)
        infos: list[dict[str, Any]] = []
        for index, world in enumerate(self._worlds):
            if self._step_world(index, world.env, values, infos):
                self._reset_world(index, None, None, infos)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _step_world(self, index: int, env: Any, values: Sequence[Any], infos: list[dict[str, Any]]) -> bool:
        """Step one world and return whether no agent is left in it."""
        first, live = index * self.agents_per_world, self._live
        chosen = {agent: values[row] for row, agent in enumerate(self.possible_agents, first) if live[row]}
        try:
            result = env.step(chosen)
        except Exception as error:
            error.add_note(f"raised by step of world {index} of {self.env_name}")
            raise
        try:
            observations, rewards, terminations, truncations, agent_infos = result
            remaining = frozenset(env.agents)
        except (AttributeError, TypeError, ValueError) as error:
            self._refuse_result(index, result, error)
        if not all(type(part) is dict or isinstance(part, Mapping) for part in result):
            self._refuse_result(index, result)
        self._add_agent_infos(first, agent_infos, infos)
        is_over = True
        for row, agent in enumerate(self.possible_agents, first):
            is_terminated = self._flag("termination", row, terminations.get(agent, False))
            is_truncated = self._flag("truncation", row, truncations.get(agent, False))
            stays = agent in remaining and not (is_terminated or is_truncated)
            is_over = is_over and not stays
            is_here = stays and agent in observations
            if live[row]:
                reward = rewards.get(agent, 0.0)
                if type(reward) is not float:
                    reward = as_reward(reward, f"reward of {self.env_name}, {self._where(row)},")
                self.rewards[row] = reward
                self._returns[row] += reward
                if not is_here:
                    self.terminals[row] = is_terminated
                    self.truncations[row] = is_truncated or not is_terminated
                    self._end_agent(row, agent, observations, agent_infos)
            elif is_here:
                self._start_agent(row)
            if is_here:
                self._show(row, env, agent, observations[agent])
        return is_over

    def _flag(self, kind: str, row: int, value: Any) -> bool:
        # The name for an error is only made where the value is not plain.
        return value if type(value) is bool else as_flag(value, f"{kind} of {self.env_name}, {self._where(row)},")

    def _start_agent(self, row: int) -> None:
        self._live[row] = True
        self.masks[row] = True
        self._returns[row] = 0.0
        self._starts[row] = self._num_steps

    def _end_agent(self, row: int, agent: Any, observations: Mapping[Any, Any], agent_infos: Mapping[Any, Any]) -> None:
        if agent in observations:
            self._write(self._final_writers[row], row, observations[agent])
        else:
            # It left without a word: the last that it saw is what stands in its row.
            self.final_observations[row] = self.observations[row]
        info = as_info(agent_infos.get(agent), f"info of {self.env_name}, {self._where(row)},")
        score, perf, extras = episode_metrics(info, self.episode_extras)
        world, slot = divmod(row, self.agents_per_world)
        length = self._num_steps - self._starts[row]
        self._episodes.append(self._num_steps, world, slot, self._returns[row], length, score, perf, *extras)
        self._clear(row)

    def _clear(self, row: int) -> None:
        self._live[row] = False
        self.masks[row] = False
        self.observations[row] = 0
        if self.action_mask is not None:
            self.action_mask[row] = True

    def _show(self, row: int, env: Any, agent: Any, value: Any) -> None:
        self._write(self._writers[row], row, value)
        if self.action_mask is not None:
            try:
                self._masks_of.write(self.action_mask[row], env, agent, value)
            except (KeyError, TypeError, ValueError) as error:
                self._refuse_observation(row, error)

    def _write(self, write: Callable[[Any], None], row: int, value: Any) -> None:
        try:
            write(self._masks_of.observation_of(value))
        except (KeyError, TypeError, ValueError) as error:
            self._refuse_observation(row, error)

    def _reset_world(
        self, index: int, seed: int | None, options: dict[str, Any] | None, infos: list[dict[str, Any]]
    ) -> None:
        observations, agent_infos = self._reset_env(index, seed, options)
        env, first = self._worlds[index].env, index * self.agents_per_world
        remaining = frozenset(getattr(env, "agents", None) or ())
        if not isinstance(observations, Mapping):
            raise TypeError(
                f"reset of {self.env_name} must return a dict of observations by agent and one of infos; "
                f"got {shown(observations)} in world {index}. Return both dicts."
            )
        num_here = 0
        for row, agent in enumerate(self.possible_agents, first):
            if agent in remaining and agent in observations:
                num_here += 1
                self._start_agent(row)
                self._show(row, env, agent, observations[agent])
            else:
                self._clear(row)
        if not num_here:
            raise ValueError(
                f"reset of {self.env_name} must leave an agent in the world; got none of {self.possible_agents} "
                f"in world {index}. Put the agents of the new episode into env.agents and the observations."
            )
        self._add_agent_infos(first, agent_infos, infos)

    def _add_agent_infos(self, first: int, agent_infos: Mapping[Any, Any], infos: list[dict[str, Any]]) -> None:
        if not any(agent_infos.values()):
            return
        for row, agent in enumerate(self.possible_agents, first):
            if info := agent_infos.get(agent):
                self._add_info(row, info, infos)
        others = {str(key): info for key, info in agent_infos.items() if info and key not in self.possible_agents}
        if others:
            self._add_info(first, others, infos)

    def _where(self, row: int) -> str:
        world, slot = divmod(row, self.agents_per_world)
        return f"world {world}, agent {self.possible_agents[slot]!r}"

    def _refuse_result(self, index: int, result: Any, error: Exception | None = None) -> NoReturn:
        raise TypeError(
            f"step of {self.env_name} must return five dicts (observations, rewards, terminations, truncations, infos) "
            f"and keep env.agents; got {shown(result)} in world {index}. Return all five, keyed by agent."
        ) from error

    def _probe_rollout(self, env: Any) -> object:
        space = pickle.loads(pickle.dumps(self.original_action_space))
        space.seed(0)
        results = []
        for _ in range(PROBE_STEPS):
            result = env.step({agent: space.sample() for agent in env.agents})
            results.append((pickle.dumps(result[:4]), list(env.agents)))
            if not env.agents:
                results.append((pickle.dumps(env.reset()[0]), list(env.agents)))
        return results

    def _state_names(self) -> tuple[str, ...]:
        return (*super()._state_names(), "_live")
