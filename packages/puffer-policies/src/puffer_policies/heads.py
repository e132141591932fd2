"""The face of every action head: the parameters of a distribution over actions, and what one asks of it.

A head holds no distribution object. Parameters are one float tensor (rows, num_parameters), so that a trainer can
store, slice and compile them, and sampling is a function of given uniform numbers: the same numbers give a row the same
action whatever batch, worker or rank it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from puffer_policies.initialization import ACTOR_GAIN

Tensor = torch.Tensor

ONE_BELOW = 1.0 - 2.0**-24
"""The largest float32 below 1: uniform numbers are clamped to it, because float64 ones may round up to 1."""


class NonFiniteParametersError(FloatingPointError):
    """A policy's output has NaN or infinite entries.

    Attributes:
        rows: Rows of the batch that have them.
    """

    def __init__(self, rows: Sequence[int], num_rows: int) -> None:
        self.rows = list(rows)
        shown = ", ".join(map(str, self.rows[:8])) + (", ..." if len(self.rows) > 8 else "")
        super().__init__(
            f"parameters of the action distribution must be finite; got NaN or infinity in {len(self.rows)} of "
            f"{num_rows} rows: {shown}. Look at the observations of these rows; if they are fine the policy has "
            "diverged: lower the learning rate or the gradient norm limit."
        )


class ActionHead(nn.Module):
    """A distribution over the actions of one space, given a tensor of parameters.

    Masks are bool (rows, num_choices), True where an action is allowed, with the choices of all discrete elements side
    by side. A masked choice has probability and gradient exactly zero. A row whose mask allows nothing for an element
    (an absent agent's) has the uniform distribution over that element, with gradient zero.

    Attributes:
        num_parameters: Width of the parameter tensor.
        num_free: How many of them, the last ones, do not depend on the observation in our policies (log-deviations).
        num_noise: Uniform numbers that sampling takes per row.
        parameter_gain: Gain of the layer that computes them in our policies.
        num_choices: Width of an action mask: the sum of the numbers of choices; 0 without discrete elements.
        action_shape: Shape of one action.
        action_dtype: Dtype of actions, that of the env's buffer.
    """

    num_parameters: int
    num_free: int = 0
    num_noise: int
    num_choices: int = 0
    parameter_gain: float = ACTOR_GAIN
    action_shape: tuple[int, ...]
    action_dtype: torch.dtype

    def sample(self, parameters: Tensor, noise: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Draw one action per row by inverting its distribution at given uniform numbers.

        Args:
            parameters: (rows, num_parameters).
            noise: float32 (rows, num_noise) in [0, 1).
            action_mask: bool (rows, num_choices) or None.

        Returns:
            action_dtype (rows, *action_shape).

        Raises:
            NonFiniteParametersError: A row's parameters are not finite.
        """
        self.check_finite(parameters)
        with torch.no_grad():
            noise = noise.reshape(parameters.shape[0], self.num_noise).to(torch.float32).clamp(max=ONE_BELOW)
            return self._sample(parameters.detach().float(), noise, action_mask)

    def log_prob_and_entropy(
        self, parameters: Tensor, actions: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probability (density) of actions and entropy in nats, each float32 (rows,), in one pass."""
        raise NotImplementedError

    def log_prob(self, parameters: Tensor, actions: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Return the log-probability (density) of actions, float32 (rows,)."""
        return self.log_prob_and_entropy(parameters, actions, action_mask)[0]

    def entropy(self, parameters: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Return the entropy in nats, float32 (rows,)."""
        raise NotImplementedError

    def mode(self, parameters: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Return the most likely action of each row, action_dtype (rows, *action_shape)."""
        with torch.no_grad():
            return self._mode(parameters.detach().float(), action_mask)

    def sample_with_log_prob(
        self, parameters: Tensor, noise: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw actions and return them with their log-probabilities, without a gradient."""
        actions = self.sample(parameters, noise, action_mask)
        with torch.no_grad():
            return actions, self.log_prob(parameters, actions, action_mask)

    def env_actions(self, actions: Tensor) -> Tensor:
        """Return what the env is sent for sampled actions: the same, clipped to the bounds of a Box."""
        return actions

    def to_parameters(self, output: Any) -> Tensor:
        """Make the parameter tensor of a policy's output in one of the plain forms.

        Args:
            output: Parameters (rows, num_parameters) already; a tuple of logits, one per element; (mean, standard
                deviation) of a Normal, the deviation (rows, n) or (1, n) or (n,); or an object of torch.distributions.

        Returns:
            (rows, num_parameters).

        Raises:
            ValueError: The output does not fit the action space.
        """
        if isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] == self.num_parameters:
            return output
        return self._to_parameters(output)

    def check_finite(self, parameters: Tensor) -> None:
        """Raise if a row's parameters are not finite; the cost is one sum where all are. Logits of -inf are masks.

        Raises:
            NonFiniteParametersError: It names the rows.
        """
        if torch.compiler.is_compiling():
            return
        parameters = parameters.detach()
        if bool(torch.isfinite(parameters.sum())):
            return
        bad = self._bad_rows(parameters.float())
        if bool(bad.any()):
            raise NonFiniteParametersError(bad.nonzero().squeeze(1).tolist(), len(bad))

    def _sample(self, parameters: Tensor, noise: Tensor, action_mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _mode(self, parameters: Tensor, action_mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _bad_rows(self, parameters: Tensor) -> Tensor:
        return ~torch.isfinite(parameters).all(1)

    def _to_parameters(self, output: Any) -> Tensor:
        raise self.unfit(output)

    def unfit(self, output: Any) -> ValueError:
        """Return the error that says what was expected instead of a policy's output."""
        return ValueError(
            f"the policy must return {self.expected()}; got {describe_output(output)}. "
            "Give its last layer as many outputs as the action space asks for."
        )

    def expected(self) -> str:
        """Say in words what a policy returns for this head."""
        return f"parameters (rows, {self.num_parameters})"


def describe_output(output: Any) -> str:
    """Name types and shapes of a policy's output in a message."""
    if isinstance(output, Tensor):
        return f"a tensor {tuple(output.shape)}"
    if isinstance(output, tuple | list):
        return f"{type(output).__name__} of ({', '.join(describe_output(part) for part in output)})"
    return type(output).__name__
