"""make: one function for every vector env."""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from puffer_spaces import PufferEnv
from puffer_vector.arguments import checked_choice, checked_flag, checked_folder, checked_integer, checked_seconds
from puffer_vector.base import VectorEnv
from puffer_vector.cpus import available_cpus
from puffer_vector.creators import Instance, resolve_creators
from puffer_vector.parallel import ParallelVector
from puffer_vector.plan import make_plan
from puffer_vector.processes import ProcessVector
from puffer_vector.serial import SerialVector
from puffer_vector.settings import Settings
from puffer_vector.threads import make_threads

Auto = Literal["auto"]


def _make_ray(settings: Settings) -> ParallelVector:
    try:
        from puffer_vector.remote import RayVector
    except ModuleNotFoundError as error:
        raise ImportError(
            f'backend="ray" needs ray, which is not installed ({error}). Run: pip install "puffer-vector[ray]"'
        ) from error
    return RayVector(settings)


_BACKENDS: dict[str, Callable[[Settings], ParallelVector]] = {
    "serial": SerialVector,
    "threads": make_threads,
    "processes": ProcessVector,
    "ray": _make_ray,
}
_PUFFERLIB_NAMES = {
    "Serial": "serial",
    "PufferEnv": "serial",
    "native": "serial",
    "Multiprocessing": "processes",
    "Ray": "ray",
}


def make(
    env: Any,
    num_envs: int | None = None,
    backend: str | type | Callable[..., VectorEnv] = "serial",
    num_workers: int | Auto | None = None,
    batch_size: int | Auto | None = None,
    seed: int | None = None,
    *,
    env_args: Sequence[Any] | None = None,
    env_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    mode: Literal["sync", "async"] = "sync",
    order: Literal["fixed", "first_come"] | None = None,
    surplus_envs: int = 0,
    envs_per_worker: int | None = None,
    timeout_s: float | None = None,
    restart_failed: bool = False,
    copy: bool = False,
    flight_record: str | os.PathLike[str] | None = None,
    context: Literal["forkserver", "spawn", "fork"] | None = None,
    joint_spaces: bool = True,
    first_world: int = 0,
    zero_copy: bool = True,
    overwork: bool = True,
    **kwargs: Any,
) -> VectorEnv:
    """Make a vector env.

    Args:
        env: Registered id, EnvSpec, env class, function that returns an env, or a list or generator of them. A creator
            whose signature names `num_envs` is called once per worker with its share of the worlds; any other is called
            once per world. Who passes `num_envs` in `env_kwargs` gets num_envs objects of so many worlds.
        num_envs: Worlds (or objects, as above). By default 1, or one per creator of a list.
        backend: "serial" (the calling thread), "threads" (native envs in a pool without the interpreter's lock, others
            in Python threads), "processes", or "ray". Also the names of PufferLib: Serial, Multiprocessing, PufferEnv.
        num_workers: Threads or processes that step envs. By default as many as the CPUs of this process allow.
        batch_size: Worlds in a batch, in the unit of num_envs. Fewer than num_envs make the env asynchronous: `recv`
            returns a batch while the others run.
        seed: Root of all seeds; world i gets `world_seed(seed, i)`. None draws one.
        env_args: Positional arguments of the creator; a list of lists with a list of creators.
        env_kwargs: Keyword arguments of the creator, or a list with those of each env.
        mode: "async" makes batches of half the envs unless batch_size or surplus_envs say otherwise.
        order: "fixed" returns batches in turn, which is deterministic; "first_come" whatever is ready first.
        surplus_envs: Worlds beyond a batch of num_envs, which run while it is worked on.
        envs_per_worker: Worlds of each worker, another way to give num_workers.
        timeout_s: Longest time for one step or reset of a worker, in seconds.
        restart_failed: Whether an env that fails is replaced by a new one. Its rows get truncation True and are
            marked in `vec.invalid`.
        copy: Whether `recv` and `step` return arrays of the caller's own.
        flight_record: Folder in which the last actions of each env are kept, for `replay` after a failure, whoever
            ends. Without one, processes and Ray keep the first actions after a seeded reset, in memory; a failure
            writes them to the folder for temporary files.
        context: How processes start. By default a fork server where there is one, else spawn.
        joint_spaces: Whether `observation_space` and `action_space` are those of a batch; else they are one agent's.
        first_world: Number of the first world, where several vector envs share one numbering.
        zero_copy: False is PufferLib's way to say order="first_come".
        overwork: Taken for PufferLib's sake: more workers than CPUs are allowed, they sleep instead of spinning.
        **kwargs: Keyword arguments of every env. Those with a name that `make` takes itself go to env_kwargs.

    Returns:
        The vector env, not yet reset. Close it, or use it in a `with` statement.

    Raises:
        ValueError: Sizes do not fit together, or the envs cannot be in one batch.
        TypeError: An argument is of the wrong kind.
        WorkerError: An env could not be built.
    """
    del overwork
    open_backend, name = _backend(backend)
    if isinstance(env, Iterator):
        env = list(env)
    if isinstance(env, list | tuple) and not env:
        raise ValueError("env must be a creator, or a list of at least one; got an empty one.")
    if num_envs is None:
        num_envs = len(env) if isinstance(env, list | tuple) else 1
    if order is None:
        order = "fixed" if checked_flag("zero_copy", zero_copy) else "first_come"
    cpus = available_cpus()
    plan = make_plan(
        num_envs,
        num_workers=None if num_workers == "auto" else num_workers,
        batch_size=None if batch_size == "auto" else batch_size,
        mode=mode,
        order=order,
        surplus_envs=surplus_envs,
        envs_per_worker=envs_per_worker,
        cpus=cpus,
        one_worker=name == "serial",
    )
    creators = resolve_creators(env, plan.num_units, env_args, env_kwargs, kwargs, tuple(make.__annotations__))
    if name not in ("serial", "threads") and any(isinstance(creator, Instance) for creator in creators):
        raise ValueError(f'env must be a creator for backend="{name}", since workers build their own; got {env!r}.')
    settings = Settings(
        plan=plan,
        creators=creators,
        seed=secrets.randbits(63) if seed is None else checked_integer("seed", seed),
        first_world=checked_integer("first_world", first_world),
        timeout_s=checked_seconds("timeout_s", timeout_s),
        restart_failed=checked_flag("restart_failed", restart_failed),
        copy=checked_flag("copy", copy),
        joint_spaces=checked_flag("joint_spaces", joint_spaces),
        context=checked_choice("context", context, ("forkserver", "spawn", "fork", None)),
        cpus=cpus,
        flight_record=checked_folder("flight_record", flight_record),
    )
    return open_backend(settings)


def Serial(env_creator: Any, num_envs: int | None = None, **options: Any) -> VectorEnv:  # noqa: N802
    """Make a vector env that steps in the calling thread; PufferLib's name for `make(..., backend="serial")`."""
    return make(env_creator, num_envs, "serial", **options)


def Multiprocessing(env_creator: Any, num_envs: int | None = None, **options: Any) -> VectorEnv:  # noqa: N802
    """Make a vector env of worker processes; PufferLib's name for `make(..., backend="processes")`."""
    return make(env_creator, num_envs, "processes", **options)


def _backend(backend: str | type | Callable[..., VectorEnv]) -> tuple[Callable[[Settings], ParallelVector], str]:
    name = getattr(backend, "__name__", backend)
    if inspect.isclass(backend) and issubclass(backend, PufferEnv):
        name = "PufferEnv"
    if isinstance(name, str):
        name = _PUFFERLIB_NAMES.get(name, name)
        if name in _BACKENDS:
            return _BACKENDS[name], name
    known = ", ".join(f'"{known}"' for known in _BACKENDS)
    raise ValueError(f"backend must be one of {known}; got {backend!r}.")
