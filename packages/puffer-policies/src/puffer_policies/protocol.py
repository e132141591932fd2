"""The trainer's face for policies in the plain forms that users write."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from puffer_policies.continuous import BoxHead
from puffer_policies.distributions import make_action_head, torch_dtype
from puffer_policies.heads import ActionHead, describe_output
from puffer_policies.images import image_scale, is_image
from puffer_policies.observations import unflatten_observations
from puffer_policies.policies import TrainablePolicy
from puffer_policies.recurrent import LSTMWrapper
from puffer_policies.states import StateForm, check_resets, zero_where
from puffer_spaces import Layout

Tensor = torch.Tensor
State = tuple[Tensor, ...]
Call = Callable[..., Any]

FEW_ROWS, MANY_ROWS = 2, 3
"""Rows of the two trial calls that tell which axis of a state counts the rows."""

DICT_STATE_KEYS = ("lstm_h", "lstm_c")
"""Keys of PufferLib's dict state that live from step to step."""


def adapt_policy(
    module: nn.Module,
    single_observation_space: spaces.Space[Any],
    single_action_space: spaces.Space[Any],
    observation_layout: Layout | None = None,
    action_layout: Layout | None = None,
) -> TrainablePolicy:
    """Give a policy the face that a trainer uses.

    A policy that has it is returned as it is. Other modules may return `(logits, value)`, `(logits, value, state)`,
    `(mean, std, value)` or `(mean, std, value, state)` from `forward(observations)` or `forward(observations, state)`,
    objects of torch.distributions in place of logits, or be written for PufferLib 3.0, with `encode_observations` and
    `decode_actions`, `forward_eval` and a dict as state. Two trial calls on zero observations, without a gradient, find
    the form.

    A module gets observations as the env's buffer holds them; one that fails on them gets them as float32 (bytes of
    images in [0, 1]), or else as the dict or tuple of the original space. A new episode's state is zeros.

    Args:
        module: The policy.
        single_observation_space: One agent's row of observations.
        single_action_space: One agent's row of actions.
        observation_layout: How a row holds the original observation space.
        action_layout: How a row holds the original action space.

    Raises:
        TypeError: The module is none, or has none of the methods.
        ValueError: A trial call fails or returns something that does not fit the spaces.
    """
    if not isinstance(module, nn.Module):
        got = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
        raise TypeError(f"module must be an nn.Module; got {got}. Pass an instance of your policy.")
    if _is_trainable(module):
        return cast(TrainablePolicy, module)
    if isinstance(single_observation_space, spaces.Dict | spaces.Tuple):
        observation_layout = Layout(single_observation_space)
        single_observation_space = observation_layout.row_space
    head = make_action_head(single_action_space, action_layout, rescale=False)
    return AdaptedPolicy(module, head, single_observation_space, observation_layout)


def _is_trainable(module: nn.Module) -> bool:
    if isinstance(module, LSTMWrapper):
        kind = type(module)
        if kind.forward is not LSTMWrapper.forward or kind.forward_eval is not LSTMWrapper.forward_eval:
            return False  # written for PufferLib's dict state
    names = ("is_recurrent", "action_head", "initial_state", "forward_eval", "forward_sequence")
    return all(hasattr(module, name) for name in names)


class AdaptedPolicy(nn.Module):
    """A user's module behind the face of a trainer. Parameters and state dict are those of the module.

    Args:
        module: The policy.
        action_head: Head of the action space.
        observation_space: One agent's row of observations.
        observation_layout: How a row holds the original observation space.
    """

    def __init__(
        self,
        module: nn.Module,
        action_head: ActionHead,
        observation_space: spaces.Space[Any],
        observation_layout: Layout | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.action_head = action_head
        self._observation_shape = tuple(observation_space.shape or ())
        self._call, self._takes_state = _find_call(module)
        self._prepare: Call = _unchanged
        self._start: _DictStart | None = None
        self._form: StateForm | None = None
        with _trial(module):
            self._find_form(observation_space, observation_layout)
        self.is_recurrent = self._form is not None

    def initial_state(self, num_rows: int, device: torch.device | str | None = None) -> State:
        """Return zeros for each row, or ()."""
        return () if self._form is None else self._form.zeros(num_rows, device or _device_of(self.module))

    def forward(self, observations: Tensor, state: State = ()) -> tuple[Tensor, Tensor, State]:
        """Step rows once, as `forward_eval`."""
        return self.forward_eval(observations, state)

    def forward_eval(self, observations: Tensor, state: State = ()) -> tuple[Tensor, Tensor, State]:
        """Step rows once; see `TrainablePolicy`."""
        return self._step(self._call, observations, state)

    def forward_sequence(
        self, observations: Tensor, state: State = (), resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run segments; see `TrainablePolicy`. A module with memory is stepped."""
        batch, horizon = observations.shape[:2]
        check_resets(resets, batch, horizon)
        if self._form is None:
            call = self.module if _overrides_forward(self.module) else self._call
            parameters, values, _ = self._step(call, observations.flatten(0, 1), ())
            return parameters, values.view(batch, horizon)
        state = state or self.initial_state(batch, observations.device)
        steps = []
        for t in range(horizon):
            if resets is not None:
                state = zero_where(state, resets[:, t])
            parameters, values, state = self._step(self._call, observations[:, t], state)
            steps.append((parameters, values))
        parameters = torch.stack([step[0] for step in steps], 1).flatten(0, 1)
        return parameters, torch.stack([step[1] for step in steps], 1)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state dict of the module."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state dict of the module."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over the parameters of the module under its own names."""
        return self.module.named_parameters(*args, **kwargs)

    def _step(self, call: Call, observations: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        inner = self._form.to_module(state) if self._form is not None and state else None
        output, values, after = self._run(call, observations, inner)
        parameters = self.action_head.to_parameters(output)
        return parameters, values, () if self._form is None else self._form.to_rows(after)

    def _run(self, call: Call, observations: Tensor, state: Any) -> tuple[Any, Tensor, Any]:
        """Call the module; return its action output, values float32 (rows,) and its own state or None."""
        return self._read(*self._invoke(call, observations, state), len(observations))

    def _invoke(self, call: Call, observations: Tensor, state: Any) -> tuple[Any, Any]:
        """Call the module; return its result and the dict that it got as state, if it takes one."""
        if self._start is not None:
            state = self._start(observations) if state is None else dict(state)
        prepared = self._prepare(observations)
        result = call(prepared, state) if self._takes_state else call(prepared)
        return result, None if self._start is None else state

    def _read(self, result: Any, dict_state: Any, rows: int) -> tuple[Any, Tensor, Any]:
        """Check and take apart a result."""
        output, values, after = _split_result(result, self.action_head)
        if dict_state is not None:
            after = {key: dict_state.get(key) for key in DICT_STATE_KEYS}
            after = after if all(isinstance(part, Tensor) for part in after.values()) else None
        if not isinstance(values, Tensor) or values.numel() != rows:
            raise ValueError(
                f"the policy must return one value per row, (rows,) or (rows, 1); got {describe_output(values)} for "
                f"{rows} rows. Return (logits, value), (logits, value, state) or (mean, std, value)."
            )
        return output, values.reshape(-1).float(), after

    def _find_form(self, space: spaces.Space[Any], layout: Layout | None) -> None:
        """Try ways to call the module until one works, then check what it returns."""
        device = _device_of(self.module)
        few, many = (_zero_observations(space, rows, device) for rows in (FEW_ROWS, MANY_ROWS))
        after = self._read(*self._first_that_works(few, space, layout), FEW_ROWS)[2]
        output, values, after_many = self._run(self._call, many, None)
        parameters = self.action_head.to_parameters(output)
        if parameters.shape[0] != MANY_ROWS:
            raise self.action_head.unfit(output)
        if isinstance(self.action_head, BoxHead) and not bool(torch.isfinite(parameters).all()):
            raise ValueError(
                "mean and standard deviation must be finite and the deviation positive; got others for zero "
                "observations. Return the deviation itself, not its logarithm: exp(log_std)."
            )
        if after is None or after == ():
            return
        self._form = StateForm(after, after_many, FEW_ROWS, MANY_ROWS)
        from_zeros, values_from_zeros, _ = self._step(self._call, many, self._form.zeros(MANY_ROWS, device))
        pairs = ((from_zeros, parameters), (values_from_zeros, values))
        if not all(torch.allclose(left, right, atol=1e-4) for left, right in pairs):
            raise ValueError(
                "the policy's state at the start of an episode must be zeros; got another result from zeros than from "
                "None. Add what is learned to the input of the memory instead."
            )

    def _first_that_works(
        self, observations: Tensor, space: spaces.Space[Any], layout: Layout | None
    ) -> tuple[Any, Any]:
        errors: dict[str, Exception] = {}
        for way, prepare in _preparations(space, layout, observations.dtype).items():
            for start in _starts(self.module) if self._takes_state else [None]:
                self._prepare, self._start = prepare, start
                try:
                    return self._invoke(self._call, observations, None)
                except Exception as error:
                    errors.setdefault(f"{way}: {type(error).__name__}: {error}", error)
        raise ValueError(
            f"the policy must take observations {observations.dtype} {tuple(observations.shape)} of {space}; "
            f"{type(self.module).__name__} failed on zeros {'; '.join(errors)}"
        ) from next(iter(errors.values()))


def _find_call(module: nn.Module) -> tuple[Call, bool]:
    """Return the function that steps rows, and whether it takes a state."""
    forward_eval = getattr(module, "forward_eval", None)
    encode, decode = (getattr(module, name, None) for name in ("encode_observations", "decode_actions"))
    if callable(forward_eval):
        return forward_eval, _takes_second(forward_eval)
    if _overrides_forward(module):
        original = getattr(module, "_orig_mod", module)  # of a compiled module, whose own forward takes anything
        return module.__call__, _takes_second(original.forward)
    if callable(encode) and callable(decode) and len(_required(decode)) == 1:
        return _Composed(encode, decode), False
    if callable(encode):
        return encode, _takes_second(encode)
    raise TypeError(
        f"policy must have forward(observations), forward_eval, or encode_observations with decode_actions; "
        f"{type(module).__name__} has none of them."
    )


class _Composed:
    """`decode_actions` after `encode_observations`."""

    def __init__(self, encode: Call, decode: Call) -> None:
        self.encode = encode
        self.decode = decode

    def __call__(self, observations: Any) -> Any:
        return self.decode(self.encode(observations))


def _overrides_forward(module: nn.Module) -> bool:
    return getattr(type(module), "forward", None) is not nn.Module.forward or "forward" in vars(module)


def _positional(function: Call) -> list[inspect.Parameter]:
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return [parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind in kinds]


def _required(function: Call) -> list[inspect.Parameter]:
    return [parameter for parameter in _positional(function) if parameter.default is inspect.Parameter.empty]


def _takes_second(function: Call) -> bool:
    positional = _positional(function)
    return len(positional) > 1 or any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in positional)


def _split_result(result: Any, head: ActionHead) -> tuple[Any, Any, Any]:
    """Split a module's result into action output, values and state (None where it returns none)."""
    if not isinstance(result, tuple | list) or not 2 <= len(result) <= 4:
        raise ValueError(
            f"the policy must return (logits, value), (logits, value, state) or (mean, std, value); "
            f"got {describe_output(result)}."
        )
    has_deviation = isinstance(head, BoxHead) and isinstance(result[0], Tensor) and isinstance(result[1], Tensor)
    if has_deviation and len(result) > 2:
        return (result[0], result[1]), result[2], result[3] if len(result) > 3 else None
    if len(result) == 4:
        raise head.unfit(result)
    return result[0], result[1], result[2] if len(result) > 2 else None


def _preparations(space: spaces.Space[Any], layout: Layout | None, dtype: torch.dtype) -> dict[str, Call]:
    """Return what may be done to observations for a module, in the order in which it is tried, each with its name."""
    ways: dict[str, Call] = {"as they are": _unchanged}
    if dtype != torch.float32 and not (layout is not None and layout.is_mixed):
        ways["as float32"] = _AsFloat(image_scale(space) if is_image(space) else 1.0)
    if layout is not None and isinstance(layout.space, spaces.Dict | spaces.Tuple):
        ways["in their structure"] = _Unflatten(layout)
    return ways


def _unchanged(observations: Tensor) -> Tensor:
    return observations


class _AsFloat:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, observations: Tensor) -> Tensor:
        return observations.float() * self.scale if self.scale != 1.0 else observations.float()


class _Unflatten:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __call__(self, observations: Tensor) -> Any:
        return unflatten_observations(observations, self.layout)


class _DictStart:
    """PufferLib's dict state at the start of an episode.

    Args:
        hidden_size: Width of zeros; None puts None in their place.
    """

    def __init__(self, hidden_size: int | None) -> None:
        self.hidden_size = hidden_size

    def __call__(self, observations: Tensor) -> dict[str, Any]:
        if self.hidden_size is None:
            return dict.fromkeys(DICT_STATE_KEYS)
        shape = (len(observations), self.hidden_size)
        return {key: torch.zeros(shape, device=observations.device) for key in DICT_STATE_KEYS}


def _starts(module: nn.Module) -> list[_DictStart | None]:
    """Return what may be given to a module that takes a state, in the order in which it is tried."""
    hidden_size = getattr(module, "hidden_size", None)
    starts: list[_DictStart | None] = [None, _DictStart(None)]
    return [*starts, _DictStart(hidden_size)] if isinstance(hidden_size, int) else starts


def _zero_observations(space: spaces.Space[Any], rows: int, device: torch.device) -> Tensor:
    shape, dtype = tuple(space.shape or ()), torch_dtype(space.dtype or np.float32)
    return torch.zeros(rows, *shape, dtype=dtype, device=device)


def _device_of(module: nn.Module) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


@contextlib.contextmanager
def _trial(module: nn.Module) -> Iterator[None]:
    """Call a module without lasting effects: no gradient, evaluation mode, random state kept, no warnings."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for part, was_training in training.items():
            part.training = was_training
