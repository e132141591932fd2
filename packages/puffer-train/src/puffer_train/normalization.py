"""Running mean and standard deviation of observations.

They stay as they are from the first step of a rollout to the end of its update, and are brought up to date once after
it: rollout and update see the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from puffer_train.distributed import Ranks
from puffer_train.native import kernels

_VARIANCE_FLOOR = 1e-8
_SEGMENTS_AT_ONCE = 256


@dataclass(frozen=True)
class FloatLeaf:
    """Where a float vector lies in an observation row.

    Attributes:
        start: First column, or first byte where rows are bytes.
        size: Number of values.
        dtype: Type of a value.
    """

    start: int
    size: int
    dtype: torch.dtype = torch.float32

    @property
    def num_bytes(self) -> int:
        """Bytes of the leaf in a row of bytes."""
        return self.size * self.dtype.itemsize


def float_leaves(layout: Any) -> list[FloatLeaf]:
    """Return the float vectors of a row that has this `puffer_spaces.Layout`; scalars count, images do not."""
    leaves = []
    for leaf in layout.leaves:
        if leaf.is_discrete or leaf.dtype.kind != "f" or len(leaf.shape) > 1:
            continue
        start = leaf.offset if layout.is_mixed else leaf.offset // leaf.dtype.itemsize
        leaves.append(FloatLeaf(start, leaf.size, getattr(torch, leaf.dtype.name)))
    return leaves


class ObservationNormalizer(nn.Module):
    """Gives float vectors mean 0 and standard deviation 1, and bounds them.

    What no leaf covers (images, discrete values) passes untouched, and so does everything before the first `update`.

    Args:
        leaves: The float vectors of a row.
        clip: Bound of a normalised value.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor
    clip: torch.Tensor

    def __init__(self, leaves: Sequence[FloatLeaf], clip: float = 10.0) -> None:
        super().__init__()
        self.leaves = tuple(leaves)
        size = sum(leaf.size for leaf in leaves)
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("clip", torch.tensor(clip, dtype=torch.float64))
        self._bound = clip
        self._scales: list[tuple[torch.Tensor, torch.Tensor]] = []

    @classmethod
    def from_state_dict(cls, state: Mapping[str, torch.Tensor], layout: Any) -> ObservationNormalizer:
        """Make the normaliser of a checkpoint, for observations of a `puffer_spaces.Layout`.

        Args:
            state: `normalizer` of the checkpoint's state.
            layout: Layout of an observation row.
        """
        normalizer = cls(float_leaves(layout) if state["mean"].numel() else [])
        normalizer.load_state_dict(state)
        return normalizer

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return normalised rows of the same dtype and shape (..., row size); the input stays as it is."""
        if not self._scales:
            return observations
        if len(self.leaves) == 1 and not self._in_bytes(observations) and self.leaves[0].size == observations.shape[-1]:
            mean, inverse_std = self._scales[0]
            return (observations - mean).mul_(inverse_std).clamp_(-self._bound, self._bound)
        result = observations.clone(memory_format=torch.contiguous_format)
        for leaf, (mean, inverse_std) in zip(self.leaves, self._scales, strict=True):
            self._view(result, leaf).sub_(mean).mul_(inverse_std).clamp_(-self._bound, self._bound)
        return result

    def update(self, observations: torch.Tensor, valid: torch.Tensor, ranks: Ranks | None = None) -> None:
        """Take the rows of a rollout into the statistics.

        Args:
            observations: (num_segments, horizon, row size), not normalised.
            valid: bool (num_segments, horizon). Other rows do not count.
            ranks: Processes whose rows count together.
        """
        if self.mean.numel() == 0:
            return
        if float(self.count) == 0.0:  # find a mean first: squares of distances from 0 could cancel
            count, total, _ = self._totals(observations, valid, ranks)
            self.mean += total / count.clamp(min=1.0)
        count, total, squares = self._totals(observations, valid, ranks)
        if float(count[0]) == 0.0:
            return
        shift = total / count
        batch_variance = squares / count - shift * shift
        new_count = self.count + count[0]
        share = count[0] / new_count
        self.variance += (batch_variance - self.variance) * share + shift * shift * share * (1.0 - share)
        self.mean += shift * share
        self.count.copy_(new_count)
        self._refresh()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load statistics; see `torch.nn.Module.load_state_dict`."""
        result = super().load_state_dict(*args, **kwargs)
        self._refresh()
        return result

    def _refresh(self) -> None:
        self._scales = []
        self._bound = float(self.clip)
        if float(self.count) == 0.0:
            return
        mean, inverse_std = self.mean, (self.variance.clamp(min=0.0) + _VARIANCE_FLOOR).rsqrt()
        first = 0
        for leaf in self.leaves:
            part = slice(first, first + leaf.size)
            self._scales.append((mean[part].to(leaf.dtype), inverse_std[part].to(leaf.dtype)))
            first += leaf.size

    def _totals(self, observations: torch.Tensor, valid: torch.Tensor, ranks: Ranks | None) -> torch.Tensor:
        """Return [count, sum, sum of squares] of distances from the mean: float64 (3, number of values)."""
        totals = torch.zeros(3, self.mean.numel(), dtype=torch.float64, device=self.mean.device)
        for start in range(0, len(observations), _SEGMENTS_AT_ONCE):
            part, is_valid = observations[start : start + _SEGMENTS_AT_ONCE], valid[start : start + _SEGMENTS_AT_ONCE]
            part = part.to(self.mean.device, non_blocking=True)
            first = 0
            for leaf in self.leaves:
                columns = slice(first, first + leaf.size)
                rows = self._view(part, leaf).reshape(-1, leaf.size)
                totals[1:, columns] += _moments(rows, is_valid.reshape(-1), self.mean[columns])
                first += leaf.size
        totals[0] = valid.sum()
        return totals if ranks is None else ranks.sum_(totals)

    def _view(self, rows: torch.Tensor, leaf: FloatLeaf) -> torch.Tensor:
        if self._in_bytes(rows):
            return rows[..., leaf.start : leaf.start + leaf.num_bytes].view(leaf.dtype)
        return rows[..., leaf.start : leaf.start + leaf.size]

    @staticmethod
    def _in_bytes(rows: torch.Tensor) -> bool:
        return rows.dtype == torch.uint8


def _moments(rows: torch.Tensor, valid: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """Return sums of the valid rows' distances from the mean, and of their squares: float64 (2, row size)."""
    native = kernels() if rows.device.type == "cpu" and rows.dtype == torch.float32 else None
    if native is None:
        distances = rows[valid].double() - mean
        return torch.stack([distances.sum(0), distances.square().sum(0)])
    totals = torch.zeros(2, len(mean), dtype=torch.float64)
    native.add_moments(rows.contiguous().numpy(), valid.view(torch.uint8).numpy(), mean.numpy(), totals.numpy())
    return totals
