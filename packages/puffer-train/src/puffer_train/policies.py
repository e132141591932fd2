"""From settings or a checkpoint to the policy."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch

from puffer_policies import (
    MEMORIES,
    MLP,
    ActionHead,
    BetaHead,
    ImpalaCNN,
    IndependentPolicies,
    LSTMWrapper,
    NatureCNN,
    NormalHead,
    RecurrentPolicy,
    ResidualMLP,
    TanhNormalHead,
    adapt_policy,
    default_policy,
    make_action_head,
)
from puffer_spaces import EnvSpec, load_config, load_object
from puffer_train.agent_numbers import agents_per_world
from puffer_train.checkpoint import load_policy_state
from puffer_train.config import PolicyConfig, TrainConfig
from puffer_train.environments import look_in_working_directory
from puffer_train.errors import UsageError
from puffer_train.generator import PrivateGenerator
from puffer_train.normalization import ObservationNormalizer, float_leaves

_VECTOR = ((MLP, ResidualMLP), "a vector among the observations")
_CONTINUOUS = ((NormalHead, TanhNormalHead, BetaHead), "continuous actions")
_NEEDED_PARTS: dict[str, tuple[Any, str]] = {
    "num_layers": _VECTOR,
    "activation": _VECTOR,
    "layer_norm": _VECTOR,
    "residual": _VECTOR,
    "cnn": ((NatureCNN, ImpalaCNN), "an image among the observations"),
    "action_distribution": _CONTINUOUS,
    "state_dependent_std": _CONTINUOUS,
}
"""What a policy must have for an option to mean something, and how that is said."""


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
    is_independent = options.pop("independent", False)
    agents = agents_per_world(vec)
    if is_independent and agents < 2:
        raise UsageError(f"--policy.independent needs several agents in a world; {spec.id} has {agents}. Leave it out.")
    with PrivateGenerator(seed, torch.device("cpu")).use():
        policies = [_make_one(spec, vec, dict(options)) for _ in range(agents if is_independent else 1)]
        if not is_independent:
            return policies[0]
        adapted = (adapt_policy(policy, *_spaces_of(vec)) for policy in policies)
        return IndependentPolicies([cast(torch.nn.Module, policy) for policy in adapted])


def _spaces_of(vec: Any) -> tuple[Any, Any, Any, Any]:
    return vec.single_observation_space, vec.single_action_space, vec.observation_layout, vec.action_layout


def _make_one(spec: EnvSpec, vec: Any, options: dict[str, Any]) -> torch.nn.Module:
    class_name = options.pop("name", None) or spec.policy
    if class_name is not None:
        shipped = load_config(spec).get("policy", {})
        return _make_named_policy(class_name, vec, options, shipped)
    _check_options(spec, options)
    memory = options.pop("rnn", "none")
    policy = default_policy(vec, recurrent=None if memory == "none" else memory, **options)
    for name, value in options.items():
        needed, what = _NEEDED_PARTS.get(name, (torch.nn.Module, ""))
        if value != getattr(PolicyConfig, name) and not any(isinstance(part, needed) for part in policy.modules()):
            raise UsageError(f"{_flag(name)} needs {what}; {spec.id} has none. Leave it out.")
    return policy


def _check_options(spec: EnvSpec, options: Mapping[str, Any]) -> None:
    """Refuse options of which one would make the other do nothing."""
    if options.get("residual") and options.get("num_layers", PolicyConfig.num_layers) < 2:
        raise UsageError("--policy.residual needs --policy.num-layers of at least 2; got 1.")
    if options.get("state_dependent_std") and options.get("action_distribution") == "beta":
        raise UsageError(
            f"--policy.state-dependent-std needs a normal or tanh_normal distribution; {spec.id} is given beta, "
            "whose parameters all depend on observations. Leave it out."
        )


def _flag(name: str) -> str:
    return f"--policy.{name.replace('_', '-')}"


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


def _make_named_policy(
    class_name: str, vec: Any, options: dict[str, Any], shipped: Mapping[str, Any]
) -> torch.nn.Module:
    look_in_working_directory()
    try:
        policy_class = load_object(class_name)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).rstrip(".")
        raise UsageError(
            f"--policy.name must be module:Class that can be imported; got {class_name}: {reason}."
        ) from error
    if not callable(policy_class):
        raise UsageError(f"--policy.name must be a class or function that makes a policy; {class_name} is none.")
    memory = options.pop("rnn", "none")
    arguments = _arguments_of(policy_class, class_name, options, shipped)
    try:
        inspect.signature(policy_class).bind(vec, **arguments)
    except TypeError as error:
        raise UsageError(
            f"{class_name} must take the vector env first, and may take --policy options by their names; {error}. "
            "Begin its arguments with env."
        ) from error
    policy: torch.nn.Module = policy_class(vec, **arguments)
    if memory == "none":
        return policy
    if isinstance(policy, torch.nn.Module) and adapt_policy(policy, *_spaces_of(vec)).is_recurrent:
        raise UsageError(f"--policy.rnn needs a policy without memory; {class_name} has one. Leave it out.")
    size = arguments.get("hidden_size", getattr(policy, "hidden_size", PolicyConfig.hidden_size))
    if memory == "lstm":
        return LSTMWrapper(vec, policy, size, size)
    head = getattr(policy, "action_head", None)
    if not isinstance(head, ActionHead):
        head = make_action_head(vec.single_action_space, vec.action_layout, rescale=False)
    return RecurrentPolicy(policy, MEMORIES[memory](size, size), head)


def _arguments_of(
    policy_class: Callable[..., Any], class_name: str, options: Mapping[str, Any], shipped: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options that a class takes. Another one is refused, unless it asks for nothing.

    One that has its default does so, since the file of a run's settings has the defaults too and is a --config as it
    is; and so does one that is as the environment ships it, for the network that was chosen there.
    """
    taken = inspect.signature(policy_class).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    arguments = {}
    for name, value in options.items():
        if name not in taken and value in (getattr(PolicyConfig, name, None), shipped.get(name)):
            continue
        if name not in taken and not takes_any:
            raise UsageError(
                f"{_flag(name)} must be an argument of {class_name}, which has none of that name; "
                f"got {name}={value!r}. Let {class_name} take {name}."
            )
        arguments[name] = value
    return arguments
