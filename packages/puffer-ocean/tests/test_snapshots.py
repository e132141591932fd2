"""Snapshots: what they keep, and which are refused. That they continue exactly is in test_acceptance.py."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_ocean import OceanEnv


@pytest.fixture
def squared():
    env = OceanEnv("squared", 4)
    env.reset(seed=1)
    return env


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s[:-5] + b"\x7f" + s[-4:], lambda s: b"", lambda s: s[5:]]
)
def test_damaged_snapshots_are_refused(squared, change):
    state = squared.get_state()
    with pytest.raises(ValueError, match="state must be the bytes of get_state, unchanged"):
        squared.set_state(change(state))

    assert squared.get_state() == state


def test_no_changed_bit_goes_unnoticed(squared):
    state = squared.get_state()
    for position in range(0, len(state), 3):
        changed = bytearray(state)
        changed[position] ^= 1 << position % 8
        with pytest.raises(ValueError, match="state must be the bytes of get_state, unchanged"):
            squared.set_state(bytes(changed))

    assert squared.get_state() == state


def test_a_snapshot_of_continuous_actions_is_refused_where_actions_are_discrete():
    env, other = OceanEnv("cartpole", 4), OceanEnv("cartpole", 4, continuous=True)
    env.reset(0)
    other.reset(0)
    with pytest.raises(ValueError, match="state must be a snapshot with action_kind='discrete'; got action_kind='box'"):
        env.set_state(other.get_state())


@pytest.mark.parametrize(
    ("name", "num_envs", "parameters", "fact"),
    [("memory", 4, {}, "env"), ("squared", 5, {}, "shape"), ("squared", 4, {"size": 5}, "observation_shape")],
)
def test_snapshots_of_another_env_are_refused(squared, name, num_envs, parameters, fact):
    other = OceanEnv(name, num_envs, **parameters)
    other.reset(0)
    with pytest.raises(ValueError, match=f"state must be a snapshot with {fact}="):
        squared.set_state(other.get_state())


def test_a_snapshot_must_be_bytes(squared):
    with pytest.raises(TypeError, match="state must be the bytes"):
        squared.set_state("text")


def test_a_snapshot_keeps_undrained_records(squared):
    for _ in range(40):
        squared.step(np.ones(4, np.int32))
    state = squared.get_state()
    records = squared.episodes()
    squared.set_state(state)

    assert len(records) > 0
    np.testing.assert_array_equal(squared.episodes(), records)
