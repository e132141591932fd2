import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffer_spaces import Episodes, episode_dtype


def test_the_dtype_has_the_fields_of_the_contract_and_then_the_extras():
    dtype = episode_dtype(("wins", "goals"))

    assert [(name, dtype[name].str) for name in dtype.names] == [
        ("step", "<i8"),
        ("world", "<i8"),
        ("agent", "<i4"),
        ("episode_return", "<f8"),
        ("episode_length", "<i8"),
        ("score", "<f8"),
        ("perf", "<f8"),
        ("wins", "<f8"),
        ("goals", "<f8"),
    ]


@pytest.mark.parametrize("extras", [("score",), ("a", "a")])
def test_names_that_are_taken_are_refused(extras):
    with pytest.raises(ValueError, match="names of their own"):
        episode_dtype(extras)


def test_score_defaults_to_the_return_and_the_rest_to_nan():
    episodes = Episodes(("wins", "goals"))

    episodes.append(3, 1, 0, 2.5, 7)
    episodes.append(4, 1, 0, 2.5, 7, 9.0, 0.5, 1.0)

    first, second = episodes.drain().tolist()
    assert first[:6] == (3, 1, 0, 2.5, 7, 2.5)
    assert all(math.isnan(value) for value in first[6:])
    assert second[:8] == (4, 1, 0, 2.5, 7, 9.0, 0.5, 1.0)
    assert math.isnan(second[8])
    with pytest.raises(ValueError, match="at most the 2 values"):
        episodes.append(1, 0, 0, 0.0, 1, 0.0, 0.0, 1.0, 2.0, 3.0)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 3), st.integers(0, 9)), max_size=300))
def test_drain_sorts_by_step_world_agent_and_keeps_ties_in_order(keys):
    episodes = Episodes()
    for step, world, agent, number in keys:
        episodes.append(step, world, agent, float(number), 1)

    assert len(episodes) == len(keys)
    drained = episodes.drain()

    expected = sorted(keys, key=lambda key: key[:3])
    assert [(r["step"], r["world"], r["agent"], int(r["episode_return"])) for r in drained] == expected
    assert len(episodes) == 0
    assert len(episodes.drain()) == 0


def test_drained_records_belong_to_the_caller():
    episodes = Episodes()
    episodes.append(1, 0, 0, 1.0, 1)
    drained = episodes.drain()

    episodes.append(2, 0, 0, 5.0, 1)

    assert drained["episode_return"].tolist() == [1.0]


def test_extend_adds_arrays_of_the_same_dtype_only():
    episodes = Episodes(("wins",))
    records = np.zeros(200, episode_dtype(("wins",)))
    records["step"] = range(200)

    episodes.extend(records[:150])
    episodes.extend(records[150:])

    assert episodes.drain()["step"].tolist() == list(range(200))
    with pytest.raises(TypeError, match="episode_dtype"):
        episodes.extend(np.zeros(1, episode_dtype()))


def test_what_nobody_drains_is_bounded_and_the_oldest_goes_first():
    episodes = Episodes(max_records=100)
    for step in range(1, 1001):
        episodes.append(step, 0, 0, 0.0, 1)

    assert len(episodes) <= 100
    assert episodes.num_dropped == 1000 - len(episodes)
    kept = episodes.drain()["step"].tolist()
    assert kept == list(range(1001 - len(kept), 1001))
    assert len(kept) >= 50

    records = np.zeros(250, episode_dtype())
    records["step"] = range(250)
    episodes.extend(records)
    assert episodes.drain()["step"].tolist() == list(range(150, 250))


def test_clear_forgets():
    episodes = Episodes()
    episodes.append(1, 0, 0, 1.0, 1)
    episodes.clear()

    assert len(episodes.drain()) == 0


@pytest.mark.parametrize("extras", ["wins", (1,), [None]])
def test_extras_that_are_no_names_are_refused(extras):
    with pytest.raises(TypeError, match="episode extras must be a sequence of names; got"):
        Episodes(extras)
