"""Actor-critics: an encoder, an action head and a value, with the face that a trainer uses."""

from __future__ import annotations

from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import nn

from puffer_policies.heads import ActionHead
from puffer_policies.initialization import CRITIC_GAIN, layer_init
from puffer_policies.linear import Linear, linear

Tensor = torch.Tensor
State = tuple[Tensor, ...]


@runtime_checkable
class TrainablePolicy(Protocol):
    """What a trainer uses. Our policies have it; `adapt_policy` gives it to others.

    `forward_eval` steps rows once, `forward_sequence` runs whole segments; with equal weights they agree to 1e-5.
    A state is a tuple of tensors with one row per agent, () without memory.
    """

    is_recurrent: bool
    action_head: ActionHead

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return the state at the start of an episode: zeros."""

    def forward_eval(self, observations: Tensor, state: State = ()) -> tuple[Tensor, Tensor, State]:
        """Map (rows, *observation_shape) to parameters (rows, num_parameters), values (rows,) and the next state."""

    def forward_sequence(
        self, observations: Tensor, state: State = (), resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map (batch, horizon, *observation_shape) to parameters and values of all steps.

        Args:
            observations: (batch, horizon, *observation_shape).
            state: State at the start of the segments.
            resets: bool (batch, horizon) or None. The state of a row is zeroed before step t where resets[:, t].

        Returns:
            Parameters (batch * horizon, num_parameters), row by row, and values (batch, horizon).
        """


class Policy(nn.Module):
    """A policy without memory: features of the encoder, linear layers for the action's parameters and for the value.

    The first layers of the head start with gain 0.01, the value with 1. Log-deviations that do not depend on the
    observation are one parameter vector, zero at the start.

    Args:
        encoder: Maps (rows, *observation_shape) to (rows, hidden_size).
        action_head: Head of the action space.
        hidden_size: Outputs of the encoder; None reads `encoder.hidden_size`.

    Raises:
        TypeError: The head is none, or the size of the features is unknown.
        ValueError: The encoder has another number of outputs.
    """

    is_recurrent = False

    def __init__(self, encoder: nn.Module, action_head: ActionHead, hidden_size: int | None = None) -> None:
        super().__init__()
        if not isinstance(action_head, ActionHead):
            raise TypeError(
                f"action_head must be an ActionHead; got {type(action_head).__name__}. Pass make_action_head(space)."
            )
        self.hidden_size = _features_of(encoder, hidden_size)
        self.encoder = encoder
        self.action_head = action_head
        self.num_computed = action_head.num_parameters - action_head.num_free
        self.actor = layer_init(Linear(self.hidden_size, self.num_computed), std=action_head.parameter_gain)
        self.critic = layer_init(Linear(self.hidden_size, 1), std=CRITIC_GAIN)
        self.log_std = nn.Parameter(torch.zeros(action_head.num_free)) if action_head.num_free else None

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:  # noqa: ARG002
        """Return the empty state."""
        return ()

    def encode_observations(self, observations: Tensor, state: Any = None) -> Tensor:  # noqa: ARG002
        """Map (rows, *observation_shape) to features (rows, hidden_size)."""
        return cast(Tensor, self.encoder(observations))

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Map features (rows, hidden_size) to parameters (rows, num_parameters) and values (rows, 1)."""
        # One product for both reads the features once.
        weight = torch.cat([self.actor.weight, self.critic.weight])
        bias = torch.cat([self.actor.bias, self.critic.bias])
        outputs = linear(hidden, weight, bias)
        parameters, values = outputs[:, :-1], outputs[:, -1:]
        if self.log_std is not None:
            parameters = torch.cat([parameters, self.log_std.to(outputs.dtype).expand(len(outputs), -1)], 1)
        return parameters, values

    def forward(self, observations: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        """Return parameters (rows, num_parameters) and values (rows, 1)."""
        return self.decode_actions(self.encode_observations(observations, state))

    def forward_eval(self, observations: Tensor, state: State = ()) -> tuple[Tensor, Tensor, State]:
        """Step rows once; see `TrainablePolicy`."""
        output, values = self(observations, state)
        return self.action_head.to_parameters(output), values.reshape(-1).float(), ()

    def forward_sequence(
        self,
        observations: Tensor,
        state: State = (),
        resets: Tensor | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Run segments; see `TrainablePolicy`."""
        parameters, values, _ = self.forward_eval(observations.flatten(0, 1), state)
        return parameters, values.reshape(observations.shape[:2])


def _features_of(encoder: nn.Module, hidden_size: int | None) -> int:
    outputs = getattr(encoder, "hidden_size", hidden_size)
    if outputs is None:
        raise TypeError(
            f"hidden_size must be given for an encoder without hidden_size; got {type(encoder).__name__}. "
            "Pass the number of its outputs."
        )
    if hidden_size not in (None, outputs):
        raise ValueError(
            f"hidden_size must be that of the encoder; got hidden_size={hidden_size} for an encoder of {outputs}. "
            "Leave it out."
        )
    return int(cast(int, outputs))
