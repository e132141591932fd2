"""From an environment's id and settings to the objects that a command works with."""

import contextlib
import dataclasses
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import puffer_vector
from puffer_policies import ActionHead, LSTMWrapper, RecurrentPolicy, default_policy, make_action_head
from puffer_policies.default import MEMORIES
from puffer_spaces import EnvSpec, Parameter, UnknownEnvError, load_object
from puffer_spaces import spec as registered_spec
from puffer_train.checkpoint import load_policy_state
from puffer_train.config import PolicyConfig, TrainConfig
from puffer_train.generator import PrivateGenerator
from puffer_train.normalization import ObservationNormalizer, float_leaves
from puffer_train.options import UsageError

_OWN_MODULES = "puffer"
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
    _import_users_module(module)
    with contextlib.suppress(UnknownEnvError):
        return _with_parameters(registered_spec(name))
    try:
        creator = load_object(env_id)
    except AttributeError:
        raise UsageError(f"{module} must register or define {name}; it does neither.") from None
    return _with_parameters(EnvSpec(env_id, env_id, batched="num_envs" in inspect.signature(creator).parameters))


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
        return puffer_vector.make(spec, seed=seed, env_kwargs=dict(env), **vec)


def make_policy(spec: EnvSpec, vec: Any, settings: Mapping[str, Any], seed: int) -> torch.nn.Module:
    """Make the policy of a command, with weights that only depend on the seed.

    Args:
        spec: May name a policy made for the environment.
        vec: The vector env whose spaces the policy fits.
        settings: Those fields of `PolicyConfig` that somebody set; the policy's own defaults stand for the others.
        seed: Seed of the weights.

    Raises:
        UsageError: If the class cannot be imported or does not take a setting.
    """
    options = dict(settings)
    class_name = options.pop("name", None) or spec.policy
    with PrivateGenerator(seed, torch.device("cpu")).use():
        if class_name is None:
            memory = options.pop("rnn", "none")
            return default_policy(vec, recurrent=None if memory == "none" else memory, **options)
        return _make_named_policy(class_name, vec, options)


def load_player(
    spec: EnvSpec, vec: Any, config: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any]
) -> tuple[torch.nn.Module, ObservationNormalizer]:
    """Return the policy of a checkpoint and what goes before it.

    Args:
        spec: The environment.
        vec: The vector env to play in.
        config: The settings in the checkpoint's metadata, by group; what it lacks has its default.
        state: The checkpoint's state.

    Raises:
        CheckpointError: If the weights do not fit, because the environment's spaces are others.
    """
    policy = make_policy(spec, vec, config.get("policy", {}), seed=0)
    load_policy_state(policy, state["policy"])
    train = TrainConfig(**config.get("train", {}))
    leaves = float_leaves(vec.observation_layout) if train.normalize_observations else []
    normalizer = ObservationNormalizer(leaves, train.observation_clip)
    normalizer.load_state_dict(state["normalizer"])
    return policy, normalizer


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


def _with_parameters(spec: EnvSpec) -> EnvSpec:
    """Return the spec with the parameters of its creator's signature, if it declares none."""
    if len(spec.parameters):
        return spec
    try:
        arguments = inspect.signature(load_object(spec.entry_point)).parameters.values()
    except (ImportError, AttributeError, ValueError, TypeError):  # making the environment says what is wrong with it
        return spec
    parameters = [
        Parameter(
            argument.name, _parameter_type(argument), None if argument.default is argument.empty else argument.default
        )
        for argument in arguments
        if argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY)
        if argument.name not in _NO_PARAMETERS
    ]
    return dataclasses.replace(spec, parameters=tuple(parameters))


def _parameter_type(argument: inspect.Parameter) -> type:
    """Return bool, int, float or str where that is clear; a default of 0 may well stand for a float."""
    name = argument.annotation if isinstance(argument.annotation, str) else getattr(argument.annotation, "__name__", "")
    if name in _TYPES:
        return _TYPES[name]
    return type(argument.default) if type(argument.default) in (bool, float, str) else object


def _import_users_module(name: str) -> None:
    _look_in_working_directory()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(f"the part of the id before the colon must be a module; there is none named {name}.") from None


def _look_in_working_directory() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _make_named_policy(class_name: str, vec: Any, options: dict[str, Any]) -> torch.nn.Module:
    _look_in_working_directory()
    try:
        policy_class = load_object(class_name)
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(
            f"--policy.name must be module:Class that can be imported; got {class_name}: {error}."
        ) from error
    memory = options.pop("rnn", "none")
    taken = inspect.signature(policy_class).parameters
    for name in options:
        if name not in taken:
            raise UsageError(f"--policy.{name.replace('_', '-')} must be an option of {class_name}, which takes none.")
    policy: torch.nn.Module = policy_class(vec, **options)
    if memory == "none":
        return policy
    size = options.get("hidden_size", getattr(policy, "hidden_size", PolicyConfig.hidden_size))
    if memory == "lstm":
        return LSTMWrapper(vec, policy, size, size)
    head = getattr(policy, "action_head", None)
    if not isinstance(head, ActionHead):
        head = make_action_head(vec.single_action_space, vec.action_layout, rescale=False)
    return RecurrentPolicy(policy, MEMORIES[memory](size, size), head)
