"""Agents that do not share weights: one policy for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import nn

from puffer_policies.heads import ActionHead
from puffer_policies.policies import TrainablePolicy

Tensor = torch.Tensor
State = tuple[Tensor, ...]


class IndependentPolicies(nn.Module):
    """One policy per agent of a world, all with the same spaces; rows are dealt out by their agent's number.

    A trainer that sees `takes_agent_ids` passes the number of each row's agent. Without numbers, rows are taken to be
    whole worlds in order: agent 0 to n-1 of the first world, then of the second.

    Args:
        policies: Policies with the face of a trainer, one for each agent, equal in head and state.

    Raises:
        TypeError: A policy has not the face of a trainer.
        ValueError: There is no policy, or they differ in head or state.
    """

    takes_agent_ids = True

    def __init__(self, policies: Sequence[nn.Module]) -> None:
        super().__init__()
        _check_alike(policies)
        self.policies = nn.ModuleList(policies)
        self.is_recurrent = bool(cast(TrainablePolicy, policies[0]).is_recurrent)

    @property
    def action_head(self) -> ActionHead:
        """The head of the first policy; the others have equal ones."""
        return self._policy(0).action_head

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return the state of the first policy; those of the others are alike."""
        return self._policy(0).initial_state(num_rows, device)

    def forward(self, observations: Tensor, state: State = (), agent_ids: Tensor | None = None) -> Any:
        """Step rows once, as `forward_eval`."""
        return self.forward_eval(observations, state, agent_ids)

    def forward_eval(
        self, observations: Tensor, state: State = (), agent_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Step rows once; see `TrainablePolicy`.

        Args:
            observations: (rows, *observation_shape).
            state: State of the rows.
            agent_ids: int64 (rows,), the number of each row's agent; None for whole worlds in order.
        """

        def step(policy: TrainablePolicy, rows: Tensor) -> tuple[Tensor, ...]:
            parameters, values, after = policy.forward_eval(observations[rows], tuple(part[rows] for part in state))
            return parameters, values, *after

        parameters, values, *after = self._deal(step, self._ids(agent_ids, len(observations), observations.device))
        return parameters, values, tuple(after)

    def forward_sequence(
        self,
        observations: Tensor,
        state: State = (),
        resets: Tensor | None = None,
        agent_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run segments; see `TrainablePolicy`. agent_ids: int64 (batch,), one agent for each segment."""
        batch, horizon = observations.shape[:2]

        def run(policy: TrainablePolicy, rows: Tensor) -> tuple[Tensor, ...]:
            parameters, values = policy.forward_sequence(
                observations[rows], tuple(part[rows] for part in state), None if resets is None else resets[rows]
            )
            return parameters.view(len(rows), horizon, -1), values

        parameters, values = self._deal(run, self._ids(agent_ids, batch, observations.device))
        return parameters.flatten(0, 1), values

    def _deal(self, run: Callable[[TrainablePolicy, Tensor], tuple[Tensor, ...]], ids: Tensor) -> list[Tensor]:
        """Run each policy on its rows and put the results back in the order of the rows."""
        order = torch.argsort(ids, stable=True)
        counts = torch.bincount(ids, minlength=len(self.policies)).tolist()
        shares = [(index, rows) for index, rows in enumerate(order.split(counts)) if len(rows)]
        parts = [run(self._policy(index), rows) for index, rows in shares or [(0, order)]]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return [torch.cat(columns)[back] for columns in zip(*parts, strict=True)]

    def _ids(self, agent_ids: Tensor | None, rows: int, device: torch.device) -> Tensor:
        if agent_ids is not None:
            ids = torch.as_tensor(agent_ids, dtype=torch.int64, device=device)
            if ids.shape != (rows,) or bool(((ids < 0) | (ids >= len(self.policies))).any()):
                raise ValueError(
                    f"agent_ids must be ({rows},) in [0, {len(self.policies)}); got {tuple(ids.shape)} with "
                    f"{sorted(set(ids.flatten().tolist()))[:8]}. Number the agents of each world from 0."
                )
            return ids
        if rows % len(self.policies):
            raise ValueError(
                f"rows must be whole worlds of {len(self.policies)} agents without agent_ids; got {rows} rows. "
                "Pass agent_ids."
            )
        return torch.arange(rows, device=device) % len(self.policies)

    def _policy(self, index: int) -> TrainablePolicy:
        return cast(TrainablePolicy, self.policies[index])


def _check_alike(policies: Sequence[nn.Module]) -> None:
    if not policies:
        raise ValueError("policies must hold at least one policy; got none. Pass one for each agent of a world.")
    for policy in policies:
        if not isinstance(policy, TrainablePolicy):
            raise TypeError(
                f"policies must have the face of a trainer; got {type(policy).__name__}. Pass what default_policy or "
                "adapt_policy returns."
            )
    forms = list(dict.fromkeys(_form(cast(TrainablePolicy, policy)) for policy in policies))
    if len(forms) > 1:
        raise ValueError(
            f"policies must be equal in head and state; got {' and '.join(forms)}. "
            "Build them for one pair of spaces, with one memory."
        )
    if len(policies) > 1 and list(cast(TrainablePolicy, policies[0]).action_head.parameters()):
        raise ValueError(
            "action heads of independent policies must have no weights of their own, since all agents share the first; "
            f"got {forms[0]}. Use autoregressive=False."
        )


def _form(policy: TrainablePolicy) -> str:
    """Describe what policies of one world have in common: the head and the state of a row."""
    head = policy.action_head
    state = [tuple(part.shape[1:]) for part in policy.initial_state(1)]
    return f"{type(head).__name__} of {head.num_parameters} parameters with state {state}"
