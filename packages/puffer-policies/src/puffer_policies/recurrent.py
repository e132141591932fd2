"""Policies with memory between the encoder and the heads."""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import nn

from puffer_policies.distributions import make_action_head
from puffer_policies.heads import ActionHead
from puffer_policies.memory import LSTM, Memory
from puffer_policies.policies import Policy
from puffer_policies.spaces import env_spaces
from puffer_policies.states import check_resets

Tensor = torch.Tensor
State = tuple[Tensor, ...]


class RecurrentPolicy(nn.Module):
    """A policy with `encode_observations` and `decode_actions`, and a memory in between.

    Weights of the wrapped policy stay as they are. The state is zero at the start of an episode; in training it is
    zeroed inside a segment where `resets` say so.

    Args:
        policy: A `Policy`, or any module with the two methods.
        memory: Maps features to features; its `hidden_size` is what `decode_actions` takes.
        action_head: Head of the action space; None takes that of the policy.

    Raises:
        TypeError: A part has not the methods it needs, or there is no head.
        ValueError: The memory has other sizes than the policy.
    """

    is_recurrent = True

    def __init__(self, policy: nn.Module, memory: Memory, action_head: ActionHead | None = None) -> None:
        super().__init__()
        _check_parts(policy, memory)
        head = action_head if action_head is not None else getattr(policy, "action_head", None)
        if not isinstance(head, ActionHead):
            raise TypeError(
                f"action_head must be given for a policy that has none; got {type(policy).__name__}. "
                "Pass make_action_head(env.single_action_space, env.action_layout, rescale=False)."
            )
        self.policy = policy
        self.memory = cast(nn.Module, memory)
        self.action_head = head
        self.hidden_size = memory.hidden_size
        self._encode_takes_state = "state" in inspect.signature(policy.encode_observations).parameters  # type: ignore[arg-type]

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return zeros for each row."""
        return self._memory.initial_state(num_rows, device)

    def forward(self, observations: Tensor, state: State | None = None) -> tuple[Tensor, Tensor, State]:
        """Step rows once: parameters (rows, num_parameters), values (rows, 1) and the next state."""
        parameters, values, state = self.forward_eval(observations, state or ())
        return parameters, values.unsqueeze(1), state

    def forward_eval(self, observations: Tensor, state: State = ()) -> tuple[Tensor, Tensor, State]:
        """Step rows once; see `TrainablePolicy`. The empty state stands for the start of an episode."""
        hidden, state = self._memory.step(self._encode(observations), state or self.initial_state(len(observations)))
        return *self._decode(hidden), state

    def forward_sequence(
        self, observations: Tensor, state: State = (), resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run segments; see `TrainablePolicy`."""
        return self._run(observations, state, resets)[:2]

    def _run(self, observations: Tensor, state: State, resets: Tensor | None) -> tuple[Tensor, Tensor, State]:
        batch, horizon = observations.shape[:2]
        check_resets(resets, batch, horizon)
        features = self._encode(observations.flatten(0, 1)).unflatten(0, (batch, horizon))
        hidden, state = self._memory.sequence(features, state or self.initial_state(batch), resets)
        parameters, values = self._decode(hidden.flatten(0, 1))
        return parameters, values.view(batch, horizon), state

    def _encode(self, observations: Tensor) -> Tensor:
        encode = cast(Any, self.policy.encode_observations)
        return cast(Tensor, encode(observations, state=None) if self._encode_takes_state else encode(observations))

    def _decode(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        output, values = cast(Any, self.policy.decode_actions)(hidden)
        return self.action_head.to_parameters(output), values.reshape(-1).float()

    @property
    def _memory(self) -> Memory:
        return cast(Memory, self.memory)


class LSTMWrapper(RecurrentPolicy):
    """PufferLib 3.0's wrapper: an LSTM between `encode_observations` and `decode_actions` of a policy.

    Only the LSTM is initialised here, orthogonal with zero biases: the policy keeps its weights. Besides the face of a
    trainer it takes PufferLib's state, a dict with "lstm_h" and "lstm_c", and updates that in place.

    Args:
        env: An env or vector env; its action space gives the head of a policy that has none.
        policy: The policy to wrap.
        input_size: Features of the policy.
        hidden_size: Size of the state, and the features that `decode_actions` takes.
    """

    def __init__(self, env: Any, policy: nn.Module, input_size: int = 128, hidden_size: int = 128) -> None:
        observation_space, action_space, _, action_layout = env_spaces(env)
        head = getattr(policy, "action_head", None)
        if not isinstance(head, ActionHead):
            head = make_action_head(action_space, action_layout, rescale=False)
        super().__init__(policy, LSTM(input_size, hidden_size), head)
        self.input_size = input_size
        self.obs_shape = tuple(observation_space.shape or ())
        self.is_continuous = bool(getattr(policy, "is_continuous", False))
        self._cells: list[nn.LSTMCell] = []

    @property
    def lstm(self) -> LSTM:
        """The LSTM, for whole sequences, batch first."""
        return cast(LSTM, self.memory)

    @property
    def cell(self) -> nn.LSTMCell:
        """A cell with the weights of `lstm`, for single steps."""
        if not self._cells:  # a list, so that the shared weights are registered once
            with torch.random.fork_rng(devices=[]):
                self._cells.append(nn.LSTMCell(self.input_size, self.hidden_size))
        cell = self._cells[0]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(cell, name, getattr(self.memory, f"{name}_l0"))
        return cell

    def forward_eval(self, observations: Tensor, state: Any = ()) -> Any:
        """Step rows once; with PufferLib's dict state, return (parameters, values (rows, 1))."""
        if not isinstance(state, dict):
            return super().forward_eval(observations, state or ())
        parameters, values, after = super().forward_eval(observations, _state_of(state))
        _store(state, after)
        return parameters, values.unsqueeze(1)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        """Run segments (batch, horizon, *shape) or step rows (rows, *shape); with a dict state as PufferLib does."""
        is_sequence = observations.ndim == len(self.obs_shape) + 2
        if not isinstance(state, dict):
            return self._run(observations, state or (), None) if is_sequence else super().forward(observations, state)
        if not is_sequence:
            return self.forward_eval(observations, state)
        parameters, values, after = self._run(observations, _state_of(state), None)
        _store(state, after)
        return parameters, values


def _check_parts(policy: nn.Module, memory: Any) -> None:
    for name in ("encode_observations", "decode_actions"):
        if not callable(getattr(policy, name, None)):
            raise TypeError(
                f"policy must have encode_observations and decode_actions to be wrapped; {type(policy).__name__} "
                f"has no {name}. Split its forward into the two."
            )
    if isinstance(memory, type) or not all(hasattr(memory, name) for name in ("initial_state", "step", "sequence")):
        raise TypeError(
            f"memory must have initial_state, step and sequence; got {memory}. "
            "Pass an LSTM, GRU, MinGRU or AttentionMemory of puffer_policies."
        )
    sizes = (memory.input_size, memory.hidden_size)
    if isinstance(policy, Policy) and sizes != (policy.hidden_size, policy.hidden_size):
        raise ValueError(
            f"input_size and hidden_size of the memory must be the policy's hidden_size={policy.hidden_size}; got "
            f"{sizes[0]} and {sizes[1]}. Give both that value."
        )


def _state_of(state: dict[str, Any]) -> State:
    h, c = state.get("lstm_h"), state.get("lstm_c")
    if h is None or c is None:
        return ()
    return (h.squeeze(0), c.squeeze(0)) if h.ndim == 3 else (h, c)


def _store(state: dict[str, Any], after: State) -> None:
    state["hidden"], state["lstm_h"], state["lstm_c"] = after[0], after[0], after[1]
