"""From an environment's id and settings to the environment. Nothing here needs torch."""

import contextlib
import dataclasses
import importlib
import inspect
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium

import puffer_vector
from puffer_spaces import EnvSpec, Parameter, UnknownEnvError, load_object
from puffer_spaces import spec as registered_spec
from puffer_train.errors import UsageError, is_argument_error, usage_errors

_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_NO_PARAMETERS = ("self", "buf", "seed", "num_envs", "render_mode")


def find_spec(env_id: str) -> EnvSpec:
    """Return the registration of an id.

    An id of the form `module:name` imports the module first, also from the working directory. It then means the
    environment registered as `name`, or else the module's class or function of that name.

    Raises:
        UnknownEnvError: If there is none; the message has near ones.
        UsageError: If the module cannot be imported.
    """
    try:
        return _with_parameters(registered_spec(env_id))
    except UnknownEnvError:
        module, colon, name = env_id.partition(":")
        if not colon:
            raise
        if not module or not name:
            raise UsageError(f"an id with a colon must be module:name; got {env_id!r}.") from None
    _import_users_module(module)
    with contextlib.suppress(UnknownEnvError):
        return _with_parameters(registered_spec(name))
    try:
        creator = load_object(env_id)
    except AttributeError:
        raise UsageError(f"{module} must register or define {name}; it does neither.") from None
    if not callable(creator):
        raise UsageError(f"{env_id} must be a class or function that makes an environment; it is {creator!r}.")
    if _is_network(creator):
        raise UsageError(
            f"the id must be that of an environment; {env_id} is a network. "
            f"Give it beside one: puffer train ID --policy.name {env_id}."
        )
    return _with_parameters(EnvSpec(env_id, env_id, batched="num_envs" in inspect.signature(creator).parameters))


def why_unavailable(spec: EnvSpec) -> str | None:
    """Return what keeps an environment from being made here, or None where its modules can be imported."""
    gymnasium_spec = gymnasium.registry.get(spec.kwargs.get("env_id", ""))
    entry_points: list[Any] = [spec.entry_point]
    if gymnasium_spec is not None:
        entry_points.append(gymnasium_spec.entry_point)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for entry_point in entry_points:
                creator = load_object(entry_point)
                if getattr(creator, "__module__", "") == "gymnasium.envs":  # a placeholder that says where it has moved
                    creator()
    except Exception as error:  # a suite without its simulator raises what it likes
        return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
    return None


def make_vector(spec: EnvSpec, vec: Mapping[str, Any], env: Mapping[str, Any], seed: int) -> Any:
    """Make the vector env of a command.

    Args:
        spec: What to make.
        vec: Fields of `VecConfig`.
        env: Those parameters of the environment that somebody set.
        seed: Root of the worlds' seeds.

    Raises:
        UsageError: If a parameter or a size is out of range.
        WorkerError: If the environment could not be made.
    """
    with usage_errors():
        for parameter in spec.parameters:
            if parameter.name in env:
                parameter.check(env[parameter.name])
        _check_required(spec, env)
        try:
            return puffer_vector.make(spec, seed=seed, env_kwargs=dict(env), **vec)
        except puffer_vector.WorkerError as error:
            if is_argument_error(error.__cause__):  # an environment's own word on its parameters
                raise UsageError(str(error.__cause__)) from error
            raise


def _with_parameters(spec: EnvSpec) -> EnvSpec:
    """Return the spec with the parameters of its creator's signature, if it declares none."""
    if len(spec.parameters):
        return spec
    parameters = [
        Parameter(name, _parameter_type(argument), None if argument.default is argument.empty else argument.default)
        for name, argument in _creator_arguments(spec).items()
    ]
    return dataclasses.replace(spec, parameters=tuple(parameters)) if parameters else spec


def _creator_arguments(spec: EnvSpec) -> dict[str, inspect.Parameter]:
    """Return the arguments of an environment's creator that are parameters of the environment."""
    try:
        arguments = inspect.signature(load_object(spec.entry_point)).parameters.values()
    except (ImportError, AttributeError, ValueError, TypeError):  # making the environment says what is wrong with it
        return {}
    return {
        argument.name: argument
        for argument in arguments
        if argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY)
        if argument.name not in _NO_PARAMETERS
    }


def _is_network(creator: Any) -> bool:
    """Say whether something is a network or its class; nothing is where torch was not imported."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", ())
    return isinstance(creator, module) or (inspect.isclass(creator) and issubclass(creator, module))


def _check_required(spec: EnvSpec, env: Mapping[str, Any]) -> None:
    """Check that each argument that an environment's creator has no default for is given."""
    for name, argument in _creator_arguments(spec).items():
        if argument.default is argument.empty and name not in env and name not in spec.kwargs:
            raise UsageError(f"--env.{name.replace('_', '-')} must be given; {spec.id} has no default for it.")


def _parameter_type(argument: inspect.Parameter) -> type:
    """Return bool, int, float or str where that is clear; a default of 0 may well stand for a float."""
    name = argument.annotation if isinstance(argument.annotation, str) else getattr(argument.annotation, "__name__", "")
    if name in _TYPES:
        return _TYPES[name]
    return type(argument.default) if type(argument.default) in (bool, float, str) else object


def _import_users_module(name: str) -> None:
    look_in_working_directory()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"the part of the id before the colon must be a module; there is none named {name}.") from None


def look_in_working_directory() -> None:
    """Let modules of the working directory be imported, as in a script that lies there."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
