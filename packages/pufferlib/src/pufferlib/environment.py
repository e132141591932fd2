"""`make` and `emulate` as the PufferLib guides use them: vector environments that show one agent's spaces."""

from __future__ import annotations

from typing import Any

import puffer_emulate
import puffer_vector
from puffer_vector import VectorEnv


def make(id: Any, num_envs: int = 1, num_workers: int | None = None, **kwargs: Any) -> VectorEnv:
    """Make a vector environment of the registered environment `id`.

    This is `puffer_vector.make` with two defaults of the guides: `observation_space` and `action_space` are those
    of one agent, so that a policy can be built from them (`joint_spaces=True` makes them those of a whole batch),
    and `num_workers` above 1 means processes.

    Args:
        id: A registered id, such as `ocean-breakout` or `gym-CartPole-v1`, or a callable that makes an environment.
        num_envs: Number of worlds.
        num_workers: Number of worker processes; None or 1 steps everything in this process.
        **kwargs: Options of `puffer_vector.make`; the rest are parameters of the environment.

    Raises:
        UnknownEnvError: If nothing is registered under `id`; lists near names.
        ValueError: If the numbers do not fit together.
    """
    if num_workers is not None and num_workers > 1:
        kwargs.setdefault("backend", "processes")
    kwargs.setdefault("joint_spaces", False)
    return puffer_vector.make(id, num_envs=num_envs, num_workers=num_workers, **kwargs)


def emulate(env: Any, num_envs: int = 1, **kwargs: Any) -> VectorEnv:
    """Make a vector environment of a Gymnasium environment, its class, or a callable that makes one.

    Args:
        env: The environment. An object is used as a recipe: copies are made from its spec.
        num_envs: Number of worlds.
        **kwargs: As for `make`.

    Raises:
        ValueError: If an environment object has no spec to make copies from; pass a callable instead.
    """
    return make(puffer_emulate.creator_of(env), num_envs=num_envs, **kwargs)
