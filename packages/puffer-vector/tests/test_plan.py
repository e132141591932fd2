"""Sizes that fit together, and clear errors for those that do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffer_vector.plan import make_plan


def plan(num_envs, **kwargs):
    given = {
        "num_workers": None,
        "batch_size": None,
        "mode": "sync",
        "order": "fixed",
        "surplus_envs": 0,
        "envs_per_worker": None,
        "cpus": 2,
    }
    return make_plan(num_envs, **{**given, **kwargs})


@pytest.mark.parametrize(
    ("num_envs", "kwargs", "slots", "per_batch"),
    [
        (8, {}, 2, 2),
        (7, {}, 1, 1),
        (9, {"cpus": 4}, 3, 3),
        (8, {"num_workers": 8}, 8, 8),
        (8, {"envs_per_worker": 2}, 4, 4),
        (8, {"batch_size": 4}, 2, 1),
        (8, {"batch_size": 2}, 4, 1),
        (8, {"mode": "async"}, 2, 1),
        (4, {"surplus_envs": 4}, 2, 1),
        (4, {"surplus_envs": 2, "order": "first_come", "cpus": 8}, 6, 4),
        (8, {"batch_size": 6, "order": "first_come", "num_workers": 4}, 4, 3),
        (8, {"one_worker": True}, 1, 1),
        (8, {"one_worker": True, "batch_size": 2}, 4, 1),
        (8, {"one_worker": True, "batch_size": 6, "order": "first_come"}, 4, 3),
    ],
)
def test_sizes_are_filled_in(num_envs, kwargs, slots, per_batch):
    made = plan(num_envs, **kwargs)

    assert (made.num_slots, made.slots_per_batch) == (slots, per_batch)


@pytest.mark.parametrize(
    ("num_envs", "kwargs", "error", "text"),
    [
        (8, {"num_workers": 3}, ValueError, "got num_envs=8, num_workers=3. Use 6 or 9 envs, or 2 or 4 workers"),
        (2, {"num_workers": 5}, ValueError, "Use 5 envs, or 1 or 2 workers"),
        (8, {"num_workers": 0}, ValueError, "num_workers must be at least 1; got 0"),
        (0, {}, ValueError, "num_envs must be at least 1"),
        (8, {"batch_size": 16}, ValueError, "batch_size=16, 8 envs. Use batch_size=8 or fewer"),
        (8, {"batch_size": 3}, ValueError, "multiple of batch_size.*Use a batch_size of 2 or 4"),
        (8, {"batch_size": 2, "num_workers": 2}, ValueError, "whole number of workers' envs.*Use 4 or 8 workers"),
        (8, {"envs_per_worker": 3}, ValueError, "multiple of envs_per_worker.*Use 2 or 4 envs a worker"),
        (8, {"envs_per_worker": 4, "num_workers": 4}, ValueError, "must agree with envs_per_worker"),
        (7, {"mode": "async"}, ValueError, "must be even"),
        (8, {"mode": "half"}, ValueError, "mode must be"),
        (8, {"order": "any"}, ValueError, "order must be"),
        (8, {"one_worker": True, "num_workers": 2}, ValueError, "one worker, the calling thread"),
        (8, {"num_workers": 2.0}, TypeError, "num_workers must be an integer"),
        (8, {"surplus_envs": -1}, ValueError, "surplus_envs must be at least 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_a_way_out(num_envs, kwargs, error, text):
    with pytest.raises(error, match=text):
        plan(num_envs, **kwargs)


@given(num_envs=st.integers(1, 200), cpus=st.integers(1, 16), divisor=st.integers(1, 8))
def test_automatic_workers_divide_the_envs_and_batches_hold_whole_workers(num_envs, cpus, divisor):
    batch = num_envs // divisor if num_envs % divisor == 0 else num_envs
    made = plan(num_envs, cpus=cpus, batch_size=batch)

    assert made.num_units == made.units_per_slot * made.num_slots
    assert made.slots_per_batch * made.units_per_slot == batch
    if batch == num_envs:
        assert made.num_slots <= cpus
    grouped = made.grouped()
    assert grouped.slots_per_batch * grouped.units_per_slot == batch
