"""VectorEnv: the face that every backend has."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
StepResult = tuple[Array, Array, Array, Array, list[dict[str, Any]]]
RecvResult = tuple[Array, Array, Array, Array, list[dict[str, Any]], Array, Array]


class VectorEnv:
    """Many worlds stepped together; rows are agents.

    `reset` and `step` are the synchronous way. `async_reset`, `recv` and `send` are the same in two halves: with
    batches smaller than the whole, the other worlds go on while the caller works on one batch.

    Arrays that `recv`, `reset` and `step` return are views of shared rows: they are valid until the next `send` or
    `step`, and are the same objects each time. Make the vector env with `copy=True` to get arrays of your own.

    The env resets a world in the step that ends its episode: `observations` then hold the first observation of the
    next episode and `final_observations` the last of the old one. A transition is valid iff the mask that came with the
    observation it starts from was True.

    A vector env is used by one thread at a time. Those of `make` have all of this; a class of your own may define as
    little as `reset` and `step`.
    """

    num_envs: int
    """Worlds in all."""
    num_agents: int
    """Rows in all, padding included."""
    agents_per_batch: int
    """Rows in one batch."""
    batch_size: int
    """Worlds in one batch."""
    num_workers: int
    """Threads or processes that step envs, counting the calling thread where it takes part."""
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    observation_space: spaces.Space[Any]
    """Space of the observations of one batch."""
    action_space: spaces.Space[Any]
    """Space of the actions of one batch."""
    original_observation_space: spaces.Space[Any]
    original_action_space: spaces.Space[Any]
    observation_layout: Any
    """`Layout` of a row of observations."""
    action_layout: Any
    """`Layout` of a row of actions."""
    action_mask_size: int
    episode_extras: tuple[str, ...]
    has_final_observations: bool
    has_state: bool
    env_name: str
    driver_env: Any
    """The first env object where it lives in this process, else a report with its spaces."""
    render_mode: str | None
    metadata: dict[str, Any]

    @property
    def final_observations(self) -> Array:
        """Last observations of episodes that ended in the batch just returned, row by row; elsewhere meaningless."""
        raise NotImplementedError

    @property
    def action_mask(self) -> Flags | None:
        """bool (agents_per_batch, action_mask_size) of the batch just returned, or None where envs have no masks."""
        raise NotImplementedError

    @property
    def invalid(self) -> Flags:
        """bool (agents_per_batch,): rows of the batch just returned whose env was replaced after a failure.

        The transition that led to such a row never happened: its reward is 0 and its truncation is set.
        """
        raise NotImplementedError

    @property
    def world_ids(self) -> npt.NDArray[np.int64]:
        """Numbers of the worlds of the batch just returned."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether the vector env is closed."""
        return False

    def seed(self, seed: int) -> None:
        """Give the root of the seeds for the next reset that is given none."""
        raise NotImplementedError

    def async_reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start a new episode in every world; the first observations come from `recv`.

        Args:
            seed: Root of the seeds; world i gets `world_seed(seed, i)`. None goes on with the sequences of the envs,
                or takes the seed that `seed`, or the first time `make`, was given.
            options: Passed to every env's reset, once. Later resets at the ends of episodes do not get them.

        Results of steps that were not received are dropped; their episode records are kept.
        """
        raise NotImplementedError

    def send(self, actions: Any) -> None:
        """Start a step of the batch that `recv` returned last.

        Args:
            actions: (agents_per_batch, *action_shape), integers for choices, else the Box's dtype.

        Raises:
            TypeError: The actions have another dtype.
            ValueError: They have another shape, or a choice is out of range. No env was stepped.
            RuntimeError: There is no batch that waits for actions.
        """
        raise NotImplementedError

    def recv(self) -> RecvResult:
        """Wait for the next batch.

        Returns:
            (observations, rewards, terminals, truncations, infos, agent_ids, masks), valid until the next send.
            agent_ids are the batch's rows in the whole vector env. Infos are a list of dicts, empty on most steps; each
            has the row of its agent as `agent_index`.

        Raises:
            WorkerError: An env or its worker failed. The vector env is closed then.
            RuntimeError: No batch is on its way.
        """
        raise NotImplementedError

    def episodes(self) -> npt.NDArray[np.void]:
        """Return the records of episodes that ended in batches received since the last call.

        Returns:
            Array of `puffer_spaces.episode_dtype(episode_extras)`, sorted by (step, world, agent); worlds are numbered
            in the whole vector env.
        """
        raise NotImplementedError

    def drain(self) -> None:
        """Wait until no env is being stepped. Results are kept for `recv`."""

    def get_state(self) -> bytes:
        """Return an exact snapshot of all envs, rows, results and records that wait, in a format without code.

        Raises:
            NotImplementedError: An env has no `get_state`.
        """
        raise NotImplementedError

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot that a vector env of the same envs and sizes made.

        Raises:
            ValueError: The snapshot is of another vector env.
        """
        raise NotImplementedError

    def set_parameters(self, **parameters: Any) -> None:
        """Change parameters of all envs; each world applies them at its next reset."""
        raise NotImplementedError

    def render(self, world: int = 0) -> Any:
        """Draw one world as its `render_mode` says.

        Raises:
            ValueError: There is no such world.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close all envs and end all workers. It may be called twice."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode in every world and wait for the first batch. Arguments as for `async_reset`.

        Returns:
            (observations, infos) of the first batch.
        """
        self.async_reset(seed, options)
        result = self.recv()
        return result[0], result[4]

    def step(self, actions: Any) -> StepResult:
        """Send actions for the last batch and wait for the next one.

        Returns:
            (observations, rewards, terminals, truncations, infos), valid until the next step.
        """
        self.send(actions)
        return self.recv()[:5]

    @property
    def agent_per_batch(self) -> int:
        """`agents_per_batch` by PufferLib's name."""
        return self.agents_per_batch

    @property
    def emulated(self) -> bool:
        """Whether the envs are adapters around foreign ones."""
        return bool(self.driver_env.emulated)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "env_name"):
            return f"{type(self).__name__}(not open)"
        return (
            f"{type(self).__name__}({self.env_name}, num_envs={self.num_envs}, num_workers={self.num_workers}, "
            f"batch_size={self.batch_size}, num_agents={self.num_agents})"
        )
