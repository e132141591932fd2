"""The face of every action head: the parameters of a distribution over actions, and what one asks of it.

A head holds no distribution object. Parameters are one float tensor (rows, num_parameters), so that a trainer can
store, slice and compile them, and sampling is a function of given uniform numbers: the same numbers give a row the same
action whatever batch, worker or rank it is in.
"""

from __future__ import annotations

import math
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

    The public methods check shapes; a head implements those with an underscore, on float32 parameters (rows,
    num_parameters) and a bool mask or None.

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
            ValueError: An argument has another shape.
        """
        mask = self._check(parameters, action_mask)
        self.check_finite(parameters)
        rows = parameters.shape[0]
        if noise.numel() != rows * self.num_noise:
            raise ValueError(
                f"noise must be ({rows}, {self.num_noise}) for {rows} rows of parameters; got {tuple(noise.shape)}. "
                "Draw num_noise uniform numbers in [0, 1) for each row."
            )
        with torch.no_grad():
            noise = noise.reshape(rows, self.num_noise).to(torch.float32).clamp(max=ONE_BELOW)
            return self._sample(parameters.detach().float(), noise, mask)

    def log_prob_and_entropy(
        self, parameters: Tensor, actions: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probability (density) of actions and entropy in nats in one pass.

        Args:
            parameters: (rows, num_parameters).
            actions: (rows, *action_shape).
            action_mask: bool (rows, num_choices) or None.

        Returns:
            Two tensors, float32 (rows,).

        Raises:
            ValueError: An argument has another shape.
        """
        mask = self._check(parameters, action_mask, actions)
        return self._log_prob_and_entropy(parameters.float(), actions, mask)

    def log_prob(self, parameters: Tensor, actions: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Return the log-probability (density) of actions, float32 (rows,); see `log_prob_and_entropy`."""
        mask = self._check(parameters, action_mask, actions)
        return self._log_prob(parameters.float(), actions, mask)

    def entropy(self, parameters: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Return the entropy in nats, float32 (rows,); see `log_prob_and_entropy`."""
        return self._entropy(parameters.float(), self._check(parameters, action_mask))

    def mode(self, parameters: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Return the most likely action of each row, action_dtype (rows, *action_shape)."""
        mask = self._check(parameters, action_mask)
        with torch.no_grad():
            return self._mode(parameters.detach().float(), mask)

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

    def _check(self, parameters: Tensor, action_mask: Tensor | None, actions: Tensor | None = None) -> Tensor | None:
        """Raise a ValueError if a shape does not fit; return the mask as bool, None for a Box."""
        rows = parameters.shape[0] if parameters.ndim else 0
        if tuple(parameters.shape) != (rows, self.num_parameters):
            raise ValueError(
                f"parameters must be (rows, {self.num_parameters}); got {tuple(parameters.shape)}. "
                "Pass what the policy returns for this head, one row as parameters[None]."
            )
        if actions is not None and (len(actions) != rows or actions.numel() != rows * math.prod(self.action_shape)):
            raise ValueError(
                f"actions must be {(rows, *self.action_shape)} for {rows} rows of parameters; got "
                f"{tuple(actions.shape)}. Pass one action for each row."
            )
        if action_mask is None or (not self.num_choices and not action_mask.shape[-1]):
            return None
        if not self.num_choices:
            raise ValueError(
                f"action_mask must be None for a Box; got {tuple(action_mask.shape)}. Masks are for discrete actions."
            )
        if tuple(action_mask.shape) != (rows, self.num_choices):
            raise ValueError(
                f"action_mask must be bool ({rows}, {self.num_choices}) for {rows} rows of parameters; got "
                f"{tuple(action_mask.shape)}. It has one column per choice of each discrete element."
            )
        return action_mask.bool()

    def _sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _log_prob_and_entropy(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _log_prob(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> Tensor:
        return self._log_prob_and_entropy(parameters, actions, mask)[0]

    def _entropy(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
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
