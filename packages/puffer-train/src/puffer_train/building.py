"""From an environment's id and settings to the objects that a command works with."""

import contextlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import puffer_vector
from puffer_spaces import EnvSpec, UnknownEnvError, load_object, register
from puffer_spaces import spec as registered_spec
from puffer_train.options import UsageError

_OWN_MODULES = "puffer"


def find_spec(env_id: str) -> EnvSpec:
    """Return the registration of an id.

    An id of the form `module:name` imports the module first, also from the working directory. It then means the
    environment registered as `name`, or else the module's class or function of that name.

    Raises:
        UnknownEnvError: If there is none; the message has near ones.
        UsageError: If the module cannot be imported.
    """
    try:
        return registered_spec(env_id)
    except UnknownEnvError:
        module, colon, name = env_id.partition(":")
        if not colon:
            raise
    _import_users_module(module)
    with contextlib.suppress(UnknownEnvError):
        return registered_spec(name)
    try:
        creator = load_object(env_id)
    except AttributeError:
        raise UsageError(f"{module} must register or define {name}; it does neither.") from None
    return register(EnvSpec(env_id, env_id, batched="num_envs" in inspect.signature(creator).parameters))


def make_vector(spec: EnvSpec, vec: Mapping[str, Any], env: Mapping[str, Any], seed: int) -> Any:
    """Make the vector env of a command.

    Args:
        spec: What to make.
        vec: Fields of `VecConfig`.
        env: The environment's parameters.
        seed: Root of the worlds' seeds.
    """
    return puffer_vector.make(spec, seed=seed, env_kwargs=dict(env), **vec)


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an argument error that our own checks raise inside the block into a UsageError.

    A ValueError or TypeError out of other code (an environment's, torch's) is no sentence for users: it keeps its
    traceback.
    """
    try:
        yield
    except UsageError:
        raise
    except (ValueError, TypeError) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames and str(frames[-1].f_globals.get("__name__", "")).startswith(_OWN_MODULES):
            raise UsageError(str(error)) from error
        raise


def _import_users_module(name: str) -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"the part of the id before the colon must be a module; there is none named {name}.") from None
