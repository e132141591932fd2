"""The policy that an env gets when the user names none: everything follows from the spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from puffer_policies.attention import AttentionMemory
from puffer_policies.distributions import make_action_head
from puffer_policies.encoders import MLP, make_encoder
from puffer_policies.images import ImpalaCNN, NatureCNN
from puffer_policies.memory import GRU, LSTM, Memory, MinGRU
from puffer_policies.policies import Policy
from puffer_policies.recurrent import RecurrentPolicy
from puffer_policies.residual import ResidualMLP
from puffer_policies.spaces import env_spaces

MEMORIES: dict[str, Callable[[int, int], Memory]] = {
    "lstm": LSTM,
    "gru": GRU,
    "mingru": MinGRU,
    "attention": AttentionMemory,
}
"""Memories by the name that `default_policy` takes."""

CNNS: dict[str, Callable[..., nn.Module]] = {"nature": NatureCNN, "impala": ImpalaCNN}
"""CNNs by the name that `default_policy` takes."""


class DefaultPolicy(Policy):
    """Encoder and head chosen by the spaces of an env.

    Args:
        env: A PufferEnv, a vector env, or anything with single-agent spaces.
        hidden_size: Features.
        num_layers: Layers of the MLP.
        activation: "gelu", "relu", "tanh", "silu" or "elu", in the MLP.
        layer_norm: Whether the MLP's layers are normalised.
        cnn: Encoder of images: "nature" or "impala".
        residual: Whether the MLP's layers after the first are residual blocks.
        action_distribution: Distribution of Box actions: "normal", "tanh_normal" or "beta".
        state_dependent_std: Whether deviations of Box actions are computed from observations.
        autoregressive: Whether elements of a MultiDiscrete action depend on those before them.

    Raises:
        TypeError: The env has no spaces, or spaces of a kind that has no encoder or head.
        ValueError: An option has no such choice, or does not fit the spaces.
    """

    def __init__(
        self,
        env: Any,
        hidden_size: int = 128,
        num_layers: int = 2,
        activation: str = "gelu",
        layer_norm: bool = False,
        cnn: str = "nature",
        residual: bool = False,
        action_distribution: str = "normal",
        state_dependent_std: bool = False,
        autoregressive: bool = False,
    ) -> None:
        _, action_space, observation_layout, action_layout = env_spaces(env)
        if cnn not in CNNS:
            raise ValueError(f"cnn must be one of {', '.join(CNNS)}; got {cnn!r}.")
        make_mlp = ResidualMLP if residual else MLP
        encoder = make_encoder(observation_layout, hidden_size, num_layers, activation, layer_norm, CNNS[cnn], make_mlp)
        head = make_action_head(
            action_space,
            action_layout,
            distribution=action_distribution,
            state_dependent_std=state_dependent_std,
            autoregressive=autoregressive,
        )
        super().__init__(encoder, head, hidden_size)


def default_policy(env: Any, hidden_size: int = 128, recurrent: str | None = None, **options: Any) -> nn.Module:
    """Build a policy for an env from its spaces: MLP, CNN or multi-input encoder, optional memory, head, value.

    Args:
        env: A PufferEnv, a vector env, or anything with single-agent spaces.
        hidden_size: Features, and the size of the memory.
        recurrent: None, "lstm", "gru", "mingru" or "attention".
        **options: Those of `DefaultPolicy`.

    Returns:
        A `Policy` or a `RecurrentPolicy`.

    Raises:
        ValueError: An option has an unknown value.
        TypeError: The env has no spaces, or they hold a kind that no encoder or head takes.
    """
    if recurrent is not None and recurrent not in MEMORIES:
        raise ValueError(f"recurrent must be None or one of {', '.join(MEMORIES)}; got {recurrent!r}.")
    policy = DefaultPolicy(env, hidden_size, **options)
    if recurrent is None:
        return policy
    return RecurrentPolicy(policy, MEMORIES[recurrent](hidden_size, hidden_size))
