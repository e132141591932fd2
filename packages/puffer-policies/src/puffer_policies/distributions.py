"""Which head an action space gets, and the head of actions with parts of several kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from puffer_policies.autoregressive import AutoregressiveHead
from puffer_policies.continuous import BetaHead, BoxHead, NormalHead, TanhNormalHead
from puffer_policies.discrete import BernoulliHead, CategoricalHead
from puffer_policies.heads import ActionHead, NonFiniteParametersError
from puffer_spaces import ActionLayout, Layout, Leaf

Tensor = torch.Tensor

BOX_HEADS: dict[str, type[BoxHead]] = {"normal": NormalHead, "tanh_normal": TanhNormalHead, "beta": BetaHead}
"""Distributions for Box actions by the name that `make_action_head` and `default_policy` take."""

MAX_INTEGER_CHOICES = 256
"""An integer Box with at most so many values per element is a set of choices."""


def make_action_head(
    action_space: spaces.Space[Any],
    action_layout: Layout | None = None,
    *,
    distribution: str = "normal",
    rescale: bool = True,
    state_dependent_std: bool = False,
    autoregressive: bool = False,
) -> ActionHead:
    """Build the head for an action space.

    Discrete and MultiDiscrete get Categoricals, MultiBinary Bernoullis, a Box of floats the named distribution, a small
    integer Box one Categorical per element. Rows that mix kinds, as a layout describes them, get one head per leaf.

    Args:
        action_space: One agent's action space. A Dict or Tuple stands for its `ActionLayout`.
        action_layout: How a row of actions holds its leaves; needed where the row is bytes of mixed kinds.
        distribution: "normal", "tanh_normal" or "beta", for Box leaves.
        rescale: Whether [-1, 1] of the distribution stands for the bounds of a bounded Box.
        state_dependent_std: Whether deviations are computed from observations instead of learned as constants.
        autoregressive: Whether each element of a MultiDiscrete depends on those before it.

    Raises:
        ValueError: The distribution is unknown or needs bounds that the Box does not have, or the space has no elements
            that could depend on others.
        TypeError: The space is of another kind.
    """
    if distribution not in BOX_HEADS:
        raise ValueError(f"distribution must be one of {', '.join(BOX_HEADS)}; got {distribution!r}.")
    options: dict[str, Any] = {"rescale": rescale, "state_dependent_std": state_dependent_std}
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        action_layout = ActionLayout(action_space)
        action_space = action_layout.row_space
    if autoregressive:
        return _autoregressive_head(action_space)
    if isinstance(action_space, spaces.Box) and action_layout is not None and action_layout.is_mixed:
        return CompositeHead(action_layout.leaves, action_layout.nbytes, distribution, options)
    return _leaf_head(action_space, distribution, options)


def _leaf_head(
    space: spaces.Space[Any], distribution: str, options: dict[str, Any], zero_based: bool = False
) -> ActionHead:
    if isinstance(space, spaces.Discrete):
        return CategoricalHead([int(space.n)], None if zero_based else [int(space.start)], ())
    if isinstance(space, spaces.MultiDiscrete):
        starts = None if zero_based else np.asarray(space.start).ravel().tolist()
        return CategoricalHead(np.asarray(space.nvec).ravel().tolist(), starts, tuple(space.shape))
    if isinstance(space, spaces.MultiBinary):
        return BernoulliHead(int(np.prod(space.shape)), tuple(space.shape))
    if isinstance(space, spaces.Box):
        return _box_head(space, distribution, options)
    raise TypeError(
        f"action_space must be Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these; got {space}. "
        "Describe the action by these."
    )


def _autoregressive_head(space: spaces.Space[Any]) -> ActionHead:
    if not isinstance(space, spaces.MultiDiscrete) or space.nvec.size < 2:
        raise ValueError(
            f"an autoregressive head needs a MultiDiscrete of two or more elements; got {space}. "
            "Use autoregressive=False."
        )
    return AutoregressiveHead(space.nvec.ravel().tolist(), space.start.ravel().tolist(), tuple(space.shape))


def _box_head(space: spaces.Box, distribution: str, options: dict[str, Any]) -> ActionHead:
    dtype = torch_dtype(space.dtype)
    if dtype.is_floating_point:
        low, high = space.low.ravel().tolist(), space.high.ravel().tolist()
        return BOX_HEADS[distribution](low, high, tuple(space.shape), dtype, **options)
    # Python's integers: the difference of two int64 may overflow.
    first, last = (list(map(int, bound.ravel())) for bound in (space.low, space.high))
    counts = [high - low + 1 for low, high in zip(first, last, strict=True)]
    if max(counts) > MAX_INTEGER_CHOICES:
        raise TypeError(
            f"an integer Box of actions must have at most {MAX_INTEGER_CHOICES} values per element; got {space}. "
            "Declare a float Box and round in the env."
        )
    return CategoricalHead(counts, first, tuple(space.shape), dtype)


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's dtype for a NumPy dtype.

    Raises:
        TypeError: torch has none.
    """
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        raise TypeError(
            f"dtype must be one that torch has; got {np.dtype(dtype)}. Use float32, int64 or uint8."
        ) from None


class _Part(NamedTuple):
    """One leaf of a row of actions: its bytes and its share of parameters, noise and mask."""

    start: int
    stop: int
    parameters: slice
    free: slice
    noise: slice
    choices: slice


class CompositeHead(ActionHead):
    """Independent leaves of different kinds in one row of bytes, as an `ActionLayout` places them.

    Parameters: what the network computes for each leaf in turn, then what is free of the observation for each leaf.

    Args:
        leaves: Leaves of the layout.
        num_bytes: Bytes of a row.
        distribution: Distribution of the Box leaves.
        options: Options of their heads.
    """

    def __init__(self, leaves: Sequence[Leaf], num_bytes: int, distribution: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleList(
            [_leaf_head(leaf.space, distribution, options, zero_based=leaf.zero_based) for leaf in leaves]
        )
        self.dtypes = [torch_dtype(leaf.dtype) for leaf in leaves]
        self.action_shape = (num_bytes,)
        self.action_dtype = torch.uint8
        self.num_free = sum(head.num_free for head in self._heads())
        self.num_parameters = sum(head.num_parameters for head in self._heads())
        self.num_noise = sum(head.num_noise for head in self._heads())
        self.num_choices = sum(head.num_choices for head in self._heads())
        self.parts = self._place(leaves)

    def env_actions(self, actions: Tensor) -> Tensor:
        """Clip the Box leaves to their bounds."""
        return self._write(
            [head.env_actions(self._read(actions, index)) for index, head in enumerate(self._heads())], len(actions)
        )

    def _log_prob_and_entropy(self, parameters: Tensor, actions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        results = [
            head._log_prob_and_entropy(self._share(parameters, part), self._read(actions, index), _mask(mask, part))
            for index, (head, part) in enumerate(zip(self._heads(), self.parts, strict=True))
        ]
        log_probs, entropies = zip(*results, strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def _entropy(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        results = [
            head._entropy(self._share(parameters, part), _mask(mask, part))
            for head, part in zip(self._heads(), self.parts, strict=True)
        ]
        return torch.stack(results).sum(0)

    def _sample(self, parameters: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        actions = [
            head._sample(self._share(parameters, part), noise[:, part.noise], _mask(mask, part))
            for head, part in zip(self._heads(), self.parts, strict=True)
        ]
        return self._write(actions, len(parameters))

    def _mode(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        actions = [
            head._mode(self._share(parameters, part), _mask(mask, part))
            for head, part in zip(self._heads(), self.parts, strict=True)
        ]
        return self._write(actions, len(parameters))

    def _bad_rows(self, parameters: Tensor) -> Tensor:
        bad = [
            head._bad_rows(self._share(parameters, part)) for head, part in zip(self._heads(), self.parts, strict=True)
        ]
        return torch.stack(bad).any(0)

    def _heads(self) -> list[ActionHead]:
        return list(self.heads)  # type: ignore[arg-type]

    def _place(self, leaves: Sequence[Leaf]) -> list[_Part]:
        parts = []
        computed, free = 0, self.num_parameters - self.num_free
        noise = choices = 0
        for head, leaf in zip(self._heads(), leaves, strict=True):
            width = head.num_parameters - head.num_free
            parts.append(
                _Part(
                    leaf.offset,
                    leaf.offset + leaf.nbytes,
                    slice(computed, computed + width),
                    slice(free, free + head.num_free),
                    slice(noise, noise + head.num_noise),
                    slice(choices, choices + head.num_choices),
                )
            )
            computed, free = computed + width, free + head.num_free
            noise, choices = noise + head.num_noise, choices + head.num_choices
        return parts

    def _share(self, parameters: Tensor, part: _Part) -> Tensor:
        if part.free.start == part.free.stop:
            return parameters[:, part.parameters]
        return torch.cat([parameters[:, part.parameters], parameters[:, part.free]], 1)

    def _read(self, actions: Tensor, index: int) -> Tensor:
        part = self.parts[index]
        return actions[:, part.start : part.stop].contiguous().view(self.dtypes[index])

    def _write(self, actions: Sequence[Tensor], num_rows: int) -> Tensor:
        rows = actions[0].new_zeros((num_rows, *self.action_shape), dtype=torch.uint8)
        for part, dtype, values in zip(self.parts, self.dtypes, actions, strict=True):
            size = (part.stop - part.start) // dtype.itemsize
            rows[:, part.start : part.stop] = values.to(dtype).reshape(num_rows, size).contiguous().view(torch.uint8)
        return rows


def _mask(mask: Tensor | None, part: _Part) -> Tensor | None:
    return None if mask is None or part.choices.start == part.choices.stop else mask[:, part.choices]


__all__ = [
    "BOX_HEADS",
    "ActionHead",
    "AutoregressiveHead",
    "BernoulliHead",
    "BetaHead",
    "CategoricalHead",
    "CompositeHead",
    "NonFiniteParametersError",
    "NormalHead",
    "TanhNormalHead",
    "make_action_head",
    "torch_dtype",
]
