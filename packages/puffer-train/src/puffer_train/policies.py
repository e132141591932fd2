"""From settings or a checkpoint to the policy."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from puffer_policies import MEMORIES, ActionHead, LSTMWrapper, RecurrentPolicy, default_policy, make_action_head
from puffer_spaces import EnvSpec, load_object
from puffer_train.checkpoint import load_policy_state
from puffer_train.config import PolicyConfig, TrainConfig
from puffer_train.environments import look_in_working_directory
from puffer_train.errors import UsageError
from puffer_train.generator import PrivateGenerator
from puffer_train.normalization import ObservationNormalizer, float_leaves


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


def _make_named_policy(class_name: str, vec: Any, options: dict[str, Any]) -> torch.nn.Module:
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
