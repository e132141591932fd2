"""OceanEnv: any native environment as a PufferEnv of many worlds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_ocean import parameters as checks
from puffer_ocean import snapshots, spec
from puffer_ocean.library import find_table
from puffer_ocean.native import NativeEnv
from puffer_ocean.render import Window, ansi
from puffer_spaces import Buffers, PufferEnv, episode_dtype

Array = npt.NDArray[Any]
_ROWS = ("observations", "rewards", "terminals", "truncations", "masks", "action_mask")
_SHAPES = ("agents", "observation_shape", "action_kind", "action_sizes")
"""What of the spec the rows and their meaning depend on: it stays as it is for the life of an env."""
_RENDER_MODES = ("rgb_array", "ansi", "human")
_DEFAULT_WIDTH = 320
_INT32 = np.iinfo(np.int32)


class OceanEnv(PufferEnv):
    """Worlds of a native environment, stepped in place by compiled code without the GIL.

    World w of the object is world `first_world + w` of the run. Its random stream is a hash of the seed, that number
    and the number of the episode, so that trajectories depend neither on how worlds are spread over objects, processes
    and threads nor on earlier episodes. Autoreset is SAME_STEP, with final observations; each ended episode leaves a
    record.

    Args:
        name: Name of a built-in environment, such as "squared", or the path of a C file (see `load_env`).
        num_envs: Worlds in this object.
        buf: `Buffers`, a dict of arrays, or None to allocate them.
        seed: Seed of the first reset that is given none. None draws one from the operating system.
        render_mode: "rgb_array", "ansi", "human" or None.
        **parameters: Those of the environment's table, and `max_steps`: the number of steps after which an episode is
            truncated, 0 for the environment's own limit, -1 for none.

    Raises:
        TypeError: An unknown parameter, or one of the wrong type.
        ValueError: An unknown name, a parameter out of its range, or parameters that do not go together.
    """

    rebinds_buffers = True
    has_final_observations = True
    has_state = True
    clears_flags = True
    metadata: Mapping[str, Any] = MappingProxyType({"render_modes": _RENDER_MODES, "render_fps": 30})

    def __init__(
        self,
        name: str | os.PathLike[str],
        num_envs: int = 1,
        buf: Any = None,
        seed: int | None = None,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        self._table = find_table(name)
        self.name = self._table.name
        self.num_envs = checks.integer("num_envs", num_envs, 1, 2**31 - 1)
        if render_mode not in (None, *_RENDER_MODES):
            raise ValueError(f"render_mode must be None, rgb_array, ansi or human; got {render_mode!r}.")
        self.render_mode = render_mode
        self._given = checks.check(self._table, parameters)
        packed, self._spec = self._resolve(self._given)
        self.metadata = {"render_modes": _RENDER_MODES, "render_fps": self._spec["fps"]}
        self.single_observation_space = spec.observation_space(self._spec)
        self.single_action_space = spec.action_space(self._spec)
        self.num_agents = self.num_envs * self._spec["agents"]
        self.action_mask_size = self._spec["action_mask_size"]
        self.episode_extras = self._table.extras
        self._episode_dtype = episode_dtype(self.episode_extras)
        self._native = NativeEnv(self._table, self.num_envs, packed, self._episode_dtype.itemsize)
        self._window: Window | None = None
        self._seed: int | None = None
        super().__init__(buf, checks.seed_or_none(seed))
        self._bind()

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters by name, as the next episode of each world will use them."""
        max_steps = checks.unpack(self._table, self._native.newest_params)["max_steps"]
        defaults = {parameter.name: parameter.default for parameter in checks.declared(self._table)}
        return {**defaults, **self._given, "max_steps": max_steps}

    def reset(
        self,
        seed: int | None = None,
        first_world: int = 0,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - part of the contract
    ) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode in every world.

        Args:
            seed: Restart the random sequences: any integer >= 0, of which the low 64 bits count. None goes on to the
                next episode of each world; at the first reset it takes the seed of the constructor.
            first_world: Number of the first world in the run; used with a seed and at the first reset.
            options: Accepted and ignored: native environments have parameters instead (`set_parameters`).

        Returns:
            (observations, infos): the bound array, which the next step overwrites, and an empty list.
        """
        seed = checks.seed_or_none(seed)
        if seed is None and self._seed is None:
            seed = self.initial_seed if self.initial_seed is not None else int.from_bytes(os.urandom(8), "little")
        if seed is not None:
            first_world = checks.integer("first_world", first_world, 0, 2**63 - 1)
            seed &= 0xFFFFFFFFFFFFFFFF
        self._native.reset(seed, first_world)
        self._seed = self._seed if seed is None else seed
        return self.observations, []

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, list[dict[str, Any]]]:
        """Step all worlds once, in place.

        Args:
            actions: (num_agents, *action_shape), integers for discrete actions. Those out of range are no-ops, NaN and
                infinities count as 0. The array itself is not changed.

        Returns:
            (observations, rewards, terminals, truncations, infos): the bound arrays, which the next step overwrites,
            and an empty list: what there is to say of ended episodes is in `episodes()`.
        """
        if not self._native.step(actions):
            self._native.step(self._converted(actions))
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def finish_step(self) -> list[dict[str, Any]]:
        """Collect the records of a step that was made in slices through the capsule."""
        self._native.finish_step()
        return []

    def step_capsule(self) -> Any:
        """Return the PyCapsule "puffer.step.v1", with which other threads step slices without the GIL."""
        return self._native.step_capsule()

    def episodes(self) -> npt.NDArray[np.void]:
        """Return the records of episodes that ended since the last call, in the order (step, world, agent)."""
        records = np.empty(self._native.num_records, self._episode_dtype)
        if len(records):
            self._native.drain(records.view(np.uint8))
        return records

    def set_buffers(self, buffers: Buffers) -> None:
        """Bind the env to arrays of the caller's; what the rows hold moves along.

        Raises:
            RuntimeError: A step runs on another thread.
        """
        old = self.buffers
        super().set_buffers(buffers)
        try:
            self._bind()
        except BaseException:
            if old is not None:
                super().set_buffers(old)
            raise

    def set_parameters(self, **parameters: Any) -> None:
        """Change parameters. Each world uses them from its next episode on; the others keep their values.

        Raises:
            TypeError, ValueError: As in the constructor, or they would change the shape of observations or actions.
        """
        given = {**self._given, **checks.check(self._table, parameters)}
        packed, changed = self._resolve(given)
        for fact in _SHAPES:
            if changed[fact] != self._spec[fact]:
                raise ValueError(
                    f"ocean-{self.name}: parameters of a running env must keep its shapes; {parameters} would change "
                    f"{fact} from {self._spec[fact]} to {changed[fact]}. Make a new env."
                )
        self._native.add_parameters(packed)
        self._given = given

    def get_state(self) -> bytes:
        """Return an exact snapshot: worlds, random streams, parameters, unfinished and undrained episodes, rows."""
        num_steps, num_generations, params, block, records = self._native.get_parts()
        ended = self.terminals | self.truncations
        rows = {name: array.tobytes() for name in _ROWS if (array := getattr(self, name)) is not None}
        facts = {
            **self._facts(),
            "seed": self._seed,
            "num_steps": num_steps,
            "num_generations": num_generations,
            "given": self._given,
        }
        parts = {"params": params, "block": block, "records": records, **rows}
        return snapshots.join(facts, {**parts, "final_observations": self.final_observations[ended].tobytes()})

    def set_state(self, state: bytes) -> None:
        """Return to a snapshot of an env of the same name, version, num_envs and shapes.

        Raises:
            TypeError, ValueError: These are no bytes of such a snapshot. The env is as it was.
        """
        header, parts = snapshots.split(state, self._facts())
        numbers = header["num_steps"], header["num_generations"]
        self._native.set_parts(*numbers, parts["params"], parts["block"], parts["records"])
        for name in _ROWS:
            if (array := getattr(self, name)) is not None:
                array[...] = np.frombuffer(parts[name], array.dtype).reshape(array.shape)
        ended = self.terminals | self.truncations
        final = np.frombuffer(parts["final_observations"], self.final_observations.dtype)
        self.final_observations[ended] = final.reshape(-1, *self.final_observations.shape[1:])
        self._seed = header["seed"]
        self._given = header["given"]

    def __reduce__(self) -> Any:
        raise TypeError(
            f"ocean-{self.name} must stay in its process, it cannot be pickled or copied. Make an env with the same "
            "arguments, and move the worlds with get_state and set_state."
        )

    def render(self, world: int = 0) -> Any:
        """Draw one world as `render_mode` says.

        Returns:
            uint8 (height, width, 3) for "rgb_array", a str for "ansi", None for "human" and without a mode.
        """
        if self.render_mode is None:
            return None
        picture = self._picture(world)
        if self.render_mode == "ansi":
            return ansi(picture)
        if self.render_mode == "human":
            if self._window is None:
                self._window = Window(f"ocean-{self.name}", self._spec["fps"])
            self._window.show(picture)
            return None
        return picture

    def close(self) -> None:
        """Free the worlds and close the window. It may be called twice."""
        if self._window is not None:
            self._window.close()
        self._native.close()

    def _resolve(self, given: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        try:
            return self._table.resolve(checks.pack(self._table, given))
        except ValueError as error:
            raise ValueError(f"ocean-{self.name}: {error}") from None

    def _bind(self) -> None:
        buffers = self.buffers
        assert buffers is not None
        self._native.bind([getattr(buffers, name) for name in buffers.keys()])  # noqa: SIM118 - in the order of fields

    def _facts(self) -> dict[str, Any]:
        shapes = {fact: list(value) if isinstance(value := self._spec[fact], tuple) else value for fact in _SHAPES}
        return {"env": self.name, "env_version": self._table.version, **shapes, "shape": self._native.shape}

    def _picture(self, world: int) -> npt.NDArray[np.uint8]:
        width, height = self._spec["width"], self._spec["height"]
        if width < 1 or height < 1:
            rows = self._spec["agents"]
            width = _DEFAULT_WIDTH
            height = min(_DEFAULT_WIDTH, max(16, 16 * rows))
        picture = np.empty((height, width, 3), np.uint8)
        self._native.draw(checks.integer("world", world, 0, self.num_envs - 1), picture, width, height)
        return picture

    def _converted(self, actions: Any) -> Array:
        """Return actions of another form than the buffer's as an array like it."""
        given = np.asarray(actions)
        integers = self.single_action_space.dtype != np.float32
        if given.dtype.kind not in ("iu" if integers else "iuf"):
            wanted = "integers" if integers else "numbers"
            raise TypeError(f"actions of ocean-{self.name} must be {wanted}; got {given.dtype}. Cast them first.")
        if given.size != self.actions.size or (given.ndim and len(given) != self.num_agents and self.num_agents > 1):
            raise ValueError(
                f"actions of ocean-{self.name} must have shape {self.actions.shape}; got {given.shape}. "
                "Give one row for each agent."
            )
        if integers and not np.can_cast(given.dtype, np.int32):  # what does not fit must not wrap into a legal action
            given = np.clip(given, max(np.iinfo(given.dtype).min, _INT32.min), _INT32.max)
        return np.ascontiguousarray(given.reshape(self.actions.shape).astype(self.actions.dtype))
