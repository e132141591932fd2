"""Moving rows to other places and back, where no two share a place: then each way is the gradient of the other.

torch's own operations do not know that places are distinct, and add up gradients one row at a time.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

Tensor = torch.Tensor


def place_rows(x: Tensor, places: Tensor, flags: Tensor) -> Tensor:
    """Lay rows out among rows of zeros, with more columns behind.

    Args:
        x: (rows, columns).
        places: int64 (rows,), where each goes; all different.
        flags: (num_places, more columns), without a gradient.

    Returns:
        (num_places, columns + more columns).
    """
    return cast(Tensor, _Place.apply(x, places, flags))


def gather_rows(x: Tensor, places: Tensor) -> Tensor:
    """Return the rows of x at `places`, int64 (rows,), all different."""
    return cast(Tensor, _Gather.apply(x, places))


class _Place(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, flags: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.num_columns = x.shape[1]
        out = x.new_zeros(len(flags), x.shape[1] + flags.shape[1])
        out[:, : x.shape[1]].index_copy_(0, places, x)
        out[:, x.shape[1] :] = flags
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return grad[:, : ctx.num_columns].index_select(0, places), None, None


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.num_rows = len(x)
        return x.index_select(0, places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return grad.new_zeros(ctx.num_rows, *grad.shape[1:]).index_copy_(0, places, grad), None
