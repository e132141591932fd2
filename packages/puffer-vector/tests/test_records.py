"""Episode records of many env objects in one numbering, one dtype and one order, without shared memory."""

import numpy as np
import pytest

from puffer_spaces import episode_dtype
from puffer_vector.records import joined, local_to_global, merged, no_records

EXTRAS = ("speed", "height", "kills")


def test_records_of_envs_with_other_extras_are_brought_together():
    first = np.zeros(2, episode_dtype(("speed",)))
    first["step"], first["speed"] = [5, 4], 2.0
    second = np.zeros(1, episode_dtype())
    extras = ("speed", "height")
    parts = [local_to_global(first, 10, extras), no_records(extras), local_to_global(second, 3, extras)]
    records = merged(parts, extras)

    assert records["step"].tolist() == [0, 4, 5]
    assert records["world"].tolist() == [3, 10, 10]
    assert np.array_equal(records["speed"], [np.nan, 2, 2], equal_nan=True)
    assert np.isnan(records["height"]).all()
    assert len(merged([], extras)) == 0


def draw_records(rng):
    """Return records of an env with some of the extras, in one of the forms that arrays have."""
    extras = tuple(rng.permutation(EXTRAS)[: rng.integers(0, 4)].tolist())
    records = np.zeros(rng.integers(0, 6), episode_dtype(extras))
    for name in records.dtype.names:
        records[name] = rng.integers(0, 4, len(records))
    records.flags.writeable = bool(rng.integers(2))
    big_endian = records.astype(records.dtype.newbyteorder(">"))
    return [records, records[::2], records[::-1], records.view(np.recarray), big_endian][rng.integers(5)]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_records_are_those_of_plain_rows(seed):
    rng = np.random.default_rng(seed)
    extras = EXTRAS[: rng.integers(0, 4)]
    given = [(draw_records(rng), int(rng.integers(0, 100))) for _ in range(rng.integers(0, 6))]
    copies = [records.copy() for records, _ in given]
    parts = [local_to_global(records, first_world, extras) for records, first_world in given]
    records = merged(parts, extras)

    names = episode_dtype(extras).names
    rows = [
        tuple(record[name] if name in record.dtype.names else np.nan for name in names)
        for part, first_world in given
        for record in np.asarray(part)
    ]
    expected = np.array(rows, episode_dtype(extras))
    expected["world"] += np.repeat([first for _, first in given], [len(part) for part, _ in given]).astype(np.int64)
    expected = expected[np.lexsort((expected["agent"], expected["world"], expected["step"]))]
    assert type(records) is np.ndarray
    assert records.dtype == expected.dtype
    assert records.tobytes() == expected.tobytes()
    assert records.flags.writeable
    assert not any(np.shares_memory(records, part) for part in parts)
    for (one, _), copy, part in zip(given, copies, parts, strict=True):
        assert not np.shares_memory(part, one)
        assert (np.asarray(one) == np.asarray(copy)).all()


def test_an_array_alone_is_copied_too():
    records = np.zeros(3, episode_dtype())

    assert not np.shares_memory(joined([records]), records)
    assert joined([records[:0]]).dtype == records.dtype
