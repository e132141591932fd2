"""What a worker reports about its env objects, so that the caller needs none of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from puffer_spaces import PufferEnv


@dataclass(frozen=True)
class EnvReport:
    """The face of an env object without the object: it can be sent to another process.

    It stands for the env as `vec.driver_env` where the envs live elsewhere. It cannot be stepped.

    Attributes:
        name: Name of the env's class.
        num_worlds: Worlds in the object.
    """

    name: str
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    original_observation_space: spaces.Space[Any]
    original_action_space: spaces.Space[Any]
    observation_layout: Any
    action_layout: Any
    num_agents: int
    num_worlds: int
    action_mask_size: int
    has_final_observations: bool
    rebinds_buffers: bool
    has_state: bool
    has_capsule: bool
    emulated: bool
    episode_extras: tuple[str, ...]
    render_mode: str | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, env: PufferEnv, num_worlds: int | None = None) -> EnvReport:
        """Describe an env object.

        Args:
            env: The object.
            num_worlds: Worlds its creator was asked for, where the object itself may not know.

        Raises:
            ValueError: The object has other worlds than it was asked for, or worlds of unequal numbers of agents.
        """
        worlds = int(env.num_envs)
        if num_worlds is not None and worlds not in (1, num_worlds):
            raise ValueError(
                f"{type(env).__name__} must hold the worlds it was asked for; got num_envs={worlds} for {num_worlds}. "
                "Set self.num_envs to the argument num_envs."
            )
        worlds = num_worlds or worlds
        if int(env.num_agents) % worlds:
            raise ValueError(
                f"{type(env).__name__} must have the same number of agents in each world; got num_agents="
                f"{env.num_agents} in {worlds} worlds. Pad with masks."
            )
        return cls(
            name=type(getattr(env, "env", env) if env.__class__.__module__.startswith("puffer_") else env).__name__,
            single_observation_space=env.single_observation_space,
            single_action_space=env.single_action_space,
            original_observation_space=env.original_observation_space,
            original_action_space=env.original_action_space,
            observation_layout=env.observation_layout,
            action_layout=env.action_layout,
            num_agents=int(env.num_agents),
            num_worlds=worlds,
            action_mask_size=int(env.action_mask_size),
            has_final_observations=bool(env.has_final_observations),
            rebinds_buffers=bool(env.rebinds_buffers),
            has_state=bool(env.has_state),
            has_capsule=env.step_capsule() is not None,
            emulated=bool(env.emulated),
            episode_extras=tuple(env.episode_extras),
            render_mode=env.render_mode,
            metadata=dict(env.metadata),
        )

    @property
    def num_envs(self) -> int:
        """Worlds in the object, by the name an env has for it."""
        return self.num_worlds

    @property
    def driver_env(self) -> EnvReport:
        """This report."""
        return self

    def check_like(self, other: EnvReport) -> None:
        """Check that another object can be stepped in the same batch.

        Raises:
            ValueError: Spaces, masks or the number of worlds differ.
        """
        for field in ("single_observation_space", "single_action_space", "action_mask_size", "num_worlds"):
            mine, its = getattr(self, field), getattr(other, field)
            if mine != its:
                raise ValueError(
                    f"every env must have the same {field}; got {mine!r} in {self.name} and {its!r} in {other.name}. "
                    "Vectorise envs that differ separately, or pad their spaces."
                )

    def replaced(self, **fields: Any) -> EnvReport:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **fields)
