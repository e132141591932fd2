"""Random numbers without state: each is a hash of what it is for.

An action's noise depends on (seed, step of the row, global row), so that it is the same for any split of the rows into
batches, groups or processes, and a resumed run needs no generator state. The finaliser is SplitMix64's, as in
`puffer_spaces.seeding`.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from puffer_spaces import hash2, hash3
from puffer_train.native import kernels

ACTION_STREAM = 1
ORDER_STREAM = 2
PRIORITY_STREAM = 3

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_FLOAT32_OF_24_BITS = np.float32(1.0 / (1 << 24))


def fill_uniform(
    out: npt.NDArray[np.float32], seed: int, steps: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> None:
    """Fill `out` with uniforms of [0, 1) keyed (seed, step, row, column).

    Args:
        out: float32 (num_rows, num_columns), C-contiguous. Written.
        seed: Seed of the run.
        steps: int64 (num_rows,), C-contiguous. Steps that each row has taken.
        rows: int64 (num_rows,), C-contiguous. Row numbers in the whole vector environment.
    """
    key = _action_key(seed)
    native = kernels()
    if native is not None:
        native.fill_uniform(out, key, steps, rows)
        return
    row_keys = _hash(_hash(np.full(1, key, np.uint64), steps), rows)
    columns = np.arange(out.shape[1])
    bits = _hash(row_keys[:, None], columns) >> np.uint64(40)
    np.multiply(bits.astype(np.float32), _FLOAT32_OF_24_BITS, out=out)


@functools.lru_cache(maxsize=16)
def _action_key(seed: int) -> int:
    return hash2(seed, ACTION_STREAM)


def permutation(seed: int, epoch: int, pass_index: int, block: int, size: int) -> npt.NDArray[np.int64]:
    """Return a random order of range(size), keyed (seed, epoch, pass_index, block): int64 (size,)."""
    key = hash3(hash3(seed, ORDER_STREAM, epoch), pass_index, block)
    return np.argsort(_hash_range(key, size))  # no two hashes are equal: one order


def uniforms(seed: int, epoch: int, index: int, size: int) -> npt.NDArray[np.float32]:
    """Return uniforms of [0, 1) for a draw by priority, keyed (seed, epoch, index): float32 (size,)."""
    key = hash3(hash3(seed, PRIORITY_STREAM, epoch), index, 0)
    bits = _hash_range(key, size) >> np.uint64(40)
    return bits.astype(np.float32) * _FLOAT32_OF_24_BITS


def _hash_range(key: int, size: int) -> npt.NDArray[np.uint64]:
    """Return hash2(key, number) for each number of range(size)."""
    native = kernels()
    if native is None:
        return _hash(np.full(1, key, np.uint64), np.arange(size))
    hashes = np.empty(size, np.uint64)
    native.hash_range(hashes, key)
    return hashes


def _hash(keys: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return hash2(key, number) for each pair."""
    return _mix(_mix(keys + _GOLDEN_GAMMA) + (numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN_GAMMA)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MULTIPLIER_1
    z = (z ^ (z >> np.uint64(27))) * _MULTIPLIER_2
    return z ^ (z >> np.uint64(31))
