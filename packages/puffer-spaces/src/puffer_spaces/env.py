"""PufferEnv: the contract between an environment and whoever steps it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from puffer_spaces.buffers import Array, Buffers, action_dtype
from puffer_spaces.episodes import episode_dtype
from puffer_spaces.resets import reset_env
from puffer_spaces.spaces import as_sizes, check_choices, joint_space, space_of_shapes

if TYPE_CHECKING:
    from puffer_spaces.layout import ActionLayout, Layout

StepResult = tuple[Array, Array, Array, Array, list[dict[str, Any]]]

_CLEARING = "_clears_rewards_and_flags"
_REQUIRED = ("single_observation_space", "single_action_space", "num_agents")


class PufferEnv:
    """An environment that steps `num_agents` agents at once, in place, in seven arrays allocated once.

    A subclass sets `single_observation_space` (Box), `single_action_space` (Discrete, MultiDiscrete or Box) and
    `num_agents`, then calls `super().__init__(buf)`. Its `reset` and `step` write into `self.observations`,
    `self.rewards`, `self.terminals`, `self.truncations`, `self.masks` and `self.final_observations` and return them.
    `rewards`, `terminals` and `truncations` are zeroed before each `step`.

    Rows of an env with `num_envs` worlds: world w owns rows [w A, (w + 1) A), A = num_agents // num_envs.

    - The transition from one observation to the next is valid iff the mask that came with that observation was True.
    - Autoreset happens in the same step, per world: on the step that ends a world's episode, `observations` already
      hold the first observation of the next one and `final_observations` the last of the old.
    - An agent that ends while its world goes on gets its flag once, then zero observations and mask False until the
      world resets or it returns. An agent that leaves without a flag is truncated.

    The short form, for one agent: call `super().__init__(buf)` first, then assign `observation_space` and
    `action_space`; return plain values from `reset` and `step` and leave resetting to the caller. `as_puffer_env` makes
    a full env of it.

    Args:
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed for the first reset that is given none. Only `SingleAgentEnv` and envs that say so use it.
    """

    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    num_agents: int

    num_envs: int = 1
    """Worlds in this object."""
    has_final_observations: bool = False
    """Whether `final_observations` are filled where an episode ends."""
    rebinds_buffers: bool = False
    """True: `set_buffers` after construction is enough. False: native code may have captured pointers in `__init__`, so
    whoever brings memory of his own builds the env again with `buf=`."""
    action_mask_size: int = 0
    """Columns of `action_mask`, sum(nvec); 0 for an env without masks."""
    episode_extras: tuple[str, ...] = ()
    """Names of the extra float64 fields of this env's episode records."""
    has_state: bool = False
    """Whether `get_state` and `set_state` work."""
    clears_flags: bool = False
    """Whether the class zeroes rewards and flags in its own `step`. An env with a step capsule does anyway."""
    render_mode: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({"render_modes": ()})

    buffers: Buffers | None = None
    """The bound arrays; None in the short form."""
    observations: Array
    actions: Array
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    masks: npt.NDArray[np.bool_]
    final_observations: Array
    action_mask: npt.NDArray[np.bool_] | None = None
    agent_ids: npt.NDArray[np.int64]
    infos: list[dict[str, Any]]
    initial_seed: int | None = None

    def __init__(self, buf: Buffers | Mapping[str, Any] | None = None, seed: int | None = None) -> None:
        self.initial_seed = seed
        self.infos = []
        missing = [name for name in _REQUIRED if not hasattr(self, name)]
        if missing[:2] == list(_REQUIRED[:2]) and "buffers" not in self.__dict__:
            return
        if missing:
            raise TypeError(
                f"{type(self).__name__} must set {', '.join(_REQUIRED)} before super().__init__(buf); "
                f"got no {' and no '.join(missing)}. For one agent, the short form sets observation_space and "
                "action_space after it."
            )
        _check_spaces(self)
        _check_counts(self)
        if buf is None:
            buf = Buffers.allocate(
                self.single_observation_space, self.single_action_space, self.num_agents, self.action_mask_size
            )
        self.agent_ids = np.arange(self.num_agents)
        PufferEnv.set_buffers(self, Buffers.from_mapping(buf))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.step
        clears_flags = cls.clears_flags or cls.step_capsule is not PufferEnv.step_capsule
        if inspect.isfunction(step) and not clears_flags and not hasattr(step, _CLEARING):
            cls.step = _cleared_before(step)  # type: ignore[method-assign]

    def reset(
        self, seed: int | None = None, first_world: int = 0, options: dict[str, Any] | None = None
    ) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode in every world.

        Args:
            seed: World w restarts its random sequence from `world_seed(seed, first_world + w)`; None continues it.
            first_world: Number of this object's first world in the whole vector env.
            options: What the env offers at reset.

        Returns:
            (observations, infos): the bound array, and a list of dicts that is empty when there is nothing to say.
        """
        raise NotImplementedError(f"{type(self).__name__} must define reset(seed=None) -> (observations, infos).")

    def step(self, actions: Array) -> StepResult:
        """Step all agents once, in place.

        Args:
            actions: Like the `actions` array, which a caller usually passes.

        Returns:
            (observations, rewards, terminals, truncations, infos): the bound arrays, overwritten by the next step.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step(actions).")

    def finish_step(self) -> list[dict[str, Any]]:
        """Return infos of a step that was made in slices through the capsule; called after the last slice."""
        return []

    def episodes(self) -> npt.NDArray[np.void]:
        """Return the records of episodes that ended since the last call, sorted by (step, world, agent)."""
        return np.empty(0, episode_dtype(self.episode_extras))

    def set_buffers(self, buffers: Buffers) -> None:
        """Bind the env to arrays of the caller's and set their masks to True.

        A subclass that holds views or pointers of its own overrides this to renew them. `__init__` binds the arrays
        without calling the override: there, the subclass makes its views after `super().__init__(buf)`.

        Raises:
            ValueError: An array has another dtype or shape than the spaces say, or is read-only.
        """
        buffers = Buffers.from_mapping(buffers)
        _check_buffers(self, buffers)
        self.buffers = buffers
        self.observations = buffers.observations
        self.actions = buffers.actions
        self.rewards = buffers.rewards
        self.terminals = buffers.terminals
        self.truncations = buffers.truncations
        self.masks = buffers.masks
        self.final_observations = buffers.final_observations
        self.action_mask = buffers.action_mask
        self.masks[...] = True
        if self.action_mask is not None:
            self.action_mask[...] = True

    def set_parameters(self, **parameters: Any) -> None:
        """Change parameters of the env. Each world applies them at its next reset."""
        if parameters:
            raise NotImplementedError(
                f"{type(self).__name__} must define set_parameters to change {sorted(parameters)}; it does not."
            )

    def get_state(self) -> bytes:
        """Return an exact snapshot of the env. What is in the buffers is the caller's to keep."""
        raise NotImplementedError(f"{type(self).__name__} must define get_state for snapshots; it does not.")

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of `get_state`."""
        raise NotImplementedError(f"{type(self).__name__} must define set_state for snapshots; it does not.")

    def step_capsule(self) -> Any:
        """Return the PyCapsule "puffer.step.v1" of a native env, or None.

        A class that overrides this clears rewards and flags itself.
        """
        return None

    def render(self) -> Any:
        """Draw the env as `render_mode` says."""
        raise NotImplementedError(f"{type(self).__name__} must define render to be drawn; it does not.")

    def close(self) -> None:
        """Free what the env holds. It may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @functools.cached_property
    def np_random(self) -> np.random.Generator:
        """A generator of the env's own. `SingleAgentEnv` seeds it at each reset that has a seed."""
        return np.random.default_rng(self.initial_seed)

    @functools.cached_property
    def observation_space(self) -> spaces.Space[Any]:
        """Space of the observations of all agents."""
        return joint_space(self.single_observation_space, self.num_agents)

    @functools.cached_property
    def action_space(self) -> spaces.Space[Any]:
        """Space of the actions of all agents."""
        return joint_space(self.single_action_space, self.num_agents)

    @functools.cached_property
    def original_observation_space(self) -> spaces.Space[Any]:
        """One agent's observation space before it was made a row."""
        return self.single_observation_space

    @functools.cached_property
    def original_action_space(self) -> spaces.Space[Any]:
        """One agent's action space before it was made a row."""
        return self.single_action_space

    @functools.cached_property
    def observation_layout(self) -> Layout:
        """How a row of observations holds the original space."""
        from puffer_spaces.layout import Layout

        return Layout(self.original_observation_space)

    @functools.cached_property
    def action_layout(self) -> ActionLayout:
        """How a row of actions holds the original space."""
        from puffer_spaces.layout import ActionLayout

        return ActionLayout(self.original_action_space)

    @property
    def driver_env(self) -> PufferEnv:
        """The env itself: PufferLib's name for the env one may look at."""
        return self

    @property
    def emulated(self) -> bool:
        """Whether the env is an adapter around a foreign one."""
        return False

    def async_reset(self, seed: int | None = None) -> None:
        """Reset, and keep the result for `recv`."""
        _, self.infos = reset_env(self, seed, 0)

    def send(self, actions: Array) -> None:
        """Step, and keep the result for `recv`."""
        self.infos = self.step(actions)[4]

    def recv(self) -> tuple[Array, Array, Array, Array, list[dict[str, Any]], Array, Array]:
        """Return (observations, rewards, terminals, truncations, infos, agent_ids, masks) of the last send."""
        return (
            self.observations,
            self.rewards,
            self.terminals,
            self.truncations,
            self.infos,
            self.agent_ids,
            self.masks,
        )

    def make_space(
        self,
        shape: int | Sequence[int] | Mapping[str, Any] | spaces.Space[Any],
        low: float | None = None,
        high: float | None = None,
        dtype: Any = None,
    ) -> spaces.Space[Any]:
        """Make a Box of a shape, or a Dict of a mapping from names to shapes. A space stays as it is.

        Args:
            shape: Sizes; an int is the length of a vector, () a scalar.
            low: Smallest value; None for that of an integer dtype, -inf for a float one.
            high: Largest value; None for that of an integer dtype, inf for a float one.
            dtype: None for uint8 where the shape has three sizes and no bounds are given, an image, else float32.

        Raises:
            TypeError: The shape is none.
            ValueError: A size is less than 1.
        """
        return space_of_shapes(shape, low, high, dtype)

    def make_discrete(self, num_choices: int) -> spaces.Discrete:
        """Make the space of one choice 0 .. num_choices - 1."""
        return spaces.Discrete(num_choices)

    def make_multi_discrete(self, num_choices: Sequence[int]) -> spaces.MultiDiscrete:
        """Make the space of several choices at once."""
        return spaces.MultiDiscrete(np.array(as_sizes("num_choices", num_choices)))


def _cleared_before(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a `step` so that no reward or flag of the step before is left when it starts."""

    @functools.wraps(step)
    def step_after_clearing(self: PufferEnv, *args: Any, **kwargs: Any) -> Any:
        if self.buffers is not None:
            self.rewards.fill(0)
            self.terminals.fill(False)
            self.truncations.fill(False)
        return step(self, *args, **kwargs)

    setattr(step_after_clearing, _CLEARING, True)
    return step_after_clearing


def _check_spaces(env: PufferEnv) -> None:
    name = type(env).__name__
    for attribute in ("observation_space", "action_space"):
        if attribute in env.__dict__:
            raise TypeError(f"{name} must set single_{attribute}, not {attribute}, before super().__init__(buf).")
    if not isinstance(env.single_observation_space, spaces.Box):
        raise TypeError(
            f"{name}.single_observation_space must be a gymnasium Box; got {env.single_observation_space!r}. "
            "Use Layout(space).row_space and write rows with Layout.flatten_into."
        )
    action_space = env.single_action_space
    if not isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete | spaces.Box):
        raise TypeError(
            f"{name}.single_action_space must be a gymnasium Discrete, MultiDiscrete or Box; got {action_space!r}. "
            "Use ActionLayout(space).row_space and read rows with ActionLayout.unflatten."
        )
    if isinstance(action_space, spaces.Box):
        return
    check_choices(action_space)
    if np.any(np.asarray(action_space.start) != 0):
        raise ValueError(
            f"{name}.single_action_space must start at 0, since actions are choices 0..n-1; got {action_space!r}. "
            "Add the start in step, or use ActionLayout(space), which does."
        )


def _check_counts(env: PufferEnv) -> None:
    name = type(env).__name__
    for attribute in ("num_agents", "num_envs"):
        count = getattr(env, attribute)
        if isinstance(count, bool) or not hasattr(count, "__index__") or count < 1:
            raise ValueError(f"{name}.{attribute} must be an integer of at least 1; got {count!r}. Set it first.")
    if env.num_agents % env.num_envs:
        raise ValueError(
            f"{name}.num_agents must be a multiple of num_envs; got num_agents={env.num_agents}, "
            f"num_envs={env.num_envs}. Rows are worlds times agents per world."
        )


def _check_buffers(env: PufferEnv, buffers: Buffers) -> None:
    rows = int(env.num_agents)
    observations = ((rows, *(env.single_observation_space.shape or ())), env.single_observation_space.dtype)
    flags = ((rows,), np.bool_)
    expected: dict[str, tuple[tuple[int, ...], Any]] = {
        "observations": observations,
        "actions": ((rows, *(env.single_action_space.shape or ())), action_dtype(env.single_action_space)),
        "rewards": ((rows,), np.float32),
        "terminals": flags,
        "truncations": flags,
        "masks": flags,
        "final_observations": observations,
    }
    if env.action_mask_size:
        expected["action_mask"] = ((rows, env.action_mask_size), np.bool_)
    for name, (shape, dtype) in expected.items():
        array = buffers[name]
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(
                f"{name} of {type(env).__name__} must be {np.dtype(dtype)} {shape}; got {got}. "
                "Make the buffers with Buffers.allocate(single_observation_space, single_action_space, num_agents)."
            )
        if not array.flags.writeable or not array.flags.c_contiguous:
            got = "one with gaps between its rows" if array.flags.writeable else "a read-only one"
            raise ValueError(
                f"{name} of {type(env).__name__} must be a writable, C-contiguous array; got {got}. "
                "Give the memory itself, or a slice of neighbouring rows."
            )
