"""PettingZoo environments, parallel and by turns, as PufferEnvs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium import spaces

from puffer_emulate.adapter import KindAdapter
from puffer_emulate.copies import env_name, make_envs, refuse_recipe
from puffer_emulate.multi_agent import MultiAgentWorlds
from puffer_emulate.snapshots import layers_of
from puffer_emulate.turns import TurnBasedEnv
from puffer_emulate.worlds import World
from puffer_spaces import Buffers, as_gymnasium_space


class PettingZooPufferEnv(MultiAgentWorlds):
    """One or more worlds of a PettingZoo environment, parallel or AEC.

    Every possible agent has a row; see `MultiAgentWorlds`. In an AEC env a step is one agent's turn: the others keep
    their rows and may only choose 0, which is ignored, so that rewards and values that belong to waiting are learned.

    Args:
        env: An env, or a class or function that makes one. An object can only be one world.
        env_creator: A class or function that makes one, in place of `env`.
        env_args: Its positional arguments.
        env_kwargs: Its keyword arguments.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed for a first reset that is given none. None: each env seeds itself.
        num_envs: Worlds in this object.
        episode_extras: Names of numbers in an agent's last info that its record keeps beside score and perf.

    Raises:
        TypeError: What is given or made is no PettingZoo environment, or its agents differ in their spaces.
        ValueError: The same object was made twice, worlds differ, or an object cannot be made again.
    """

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        buf: Buffers | Mapping[str, Any] | None = None,
        seed: int | None = None,
        *,
        num_envs: int = 1,
        episode_extras: Sequence[str] = (),
    ) -> None:
        envs = make_envs(env, env_creator, env_args, env_kwargs or {}, num_envs, refuse_recipe)
        for made in envs:
            if not is_pettingzoo(made):
                raise TypeError(
                    f"env must be a PettingZoo environment; got {type(made).__module__}.{type(made).__qualname__}. "
                    "It has possible_agents, and spaces as functions of the agent."
                )
        self.envs = envs
        self.env = envs[0]
        name = env_name(self.env)
        kinds = [_common_spaces(name, made) for made in envs]
        for index, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise ValueError(
                    f"all worlds of {name} must have the same agents and spaces; got {kinds[0]} in world 0 and {kind} "
                    f"in world {index}. Let the creator make equal envs."
                )
        agents, observation_space, action_space = kinds[0]
        self.render_mode = getattr(self.env, "render_mode", None)
        self.metadata = {**getattr(self.env, "metadata", {})}
        is_turn_based = _is_turn_based(self.env)
        super().__init__(
            name,
            [_world_of(made, is_turn_based) for made in envs],
            agents,
            observation_space,
            action_space,
            is_turn_based,
            buf,
            seed,
            episode_extras,
        )


def is_pettingzoo(env: Any) -> bool:
    """Return whether an object looks like a PettingZoo env: the package need not be installed for that."""
    return (
        not isinstance(env, type)
        and callable(getattr(env, "observation_space", None))
        and callable(getattr(env, "action_space", None))
        and callable(getattr(env, "step", None))
        and hasattr(env, "possible_agents")
    )


def _is_turn_based(env: Any) -> bool:
    return callable(getattr(env, "agent_iter", None)) and callable(getattr(env, "observe", None))


def _world_of(env: Any, is_turn_based: bool) -> World:
    stepped = TurnBasedEnv(env) if is_turn_based else env
    return World(stepped, getattr(env, "close", lambda: None), None, layers_of(stepped))


def _common_spaces(name: str, env: Any) -> tuple[list[Any], spaces.Space[Any], spaces.Space[Any]]:
    """Return the possible agents and the spaces that they share."""
    agents = list(env.possible_agents or ())
    if not agents or len(set(agents)) != len(agents):
        raise TypeError(
            f"possible_agents of {name} must name every agent that may come, once; got {agents}. List them all."
        )
    shared = []
    for kind in ("observation_space", "action_space"):
        by_agent = [as_gymnasium_space(getattr(env, kind)(agent)) for agent in agents]
        for agent, space in zip(agents, by_agent, strict=True):
            if space != by_agent[0]:
                raise TypeError(
                    f"all agents of {name} must have one {kind}; got {by_agent[0]} for {agents[0]!r} and {space} for "
                    f"{agent!r}. Pad them to a common space with a wrapper first."
                )
        shared.append(by_agent[0])
    return agents, shared[0], shared[1]


adapter = KindAdapter(is_pettingzoo, PettingZooPufferEnv)
"""The entry point of the group `puffer.adapters`."""
