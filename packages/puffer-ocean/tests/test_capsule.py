"""Slices through the capsule that do not make up a step. That those which do are one is in test_acceptance.py."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from puffer_ocean import OceanEnv

NUM_WORLDS = 200


@pytest.fixture
def env():
    env = OceanEnv("squared", NUM_WORLDS, max_steps=2)
    env.reset(seed=1)
    return env


def step_slices(open_capsule, env, *slices):
    interface = open_capsule(capsule := env.step_capsule())
    for first, last in slices:
        interface.step(interface.ctx, first, last)
    del capsule


@pytest.mark.parametrize(
    ("slices", "num_worlds"),
    [
        ([], 0),
        ([(0, 64)], 64),
        ([(0, 128), (64, 200)], 264),
        ([(0, 64), (64, 300)], 64),
        ([(64, 0), (-64, 64), (3, 3)], 0),
    ],
)
def test_slices_that_do_not_cover_each_world_once_are_reported(env, open_capsule, slices, num_worlds):
    step_slices(open_capsule, env, *slices)

    with pytest.raises(RuntimeError, match=f"each of its 200 worlds once before finish_step; got {num_worlds} worlds"):
        env.finish_step()
    assert len(env.episodes()) == 0


def test_slices_need_not_begin_at_cache_lines(env, open_capsule, rollout_hash):
    twin = OceanEnv("squared", NUM_WORLDS, max_steps=2)
    twin.reset(seed=1)
    twin.step(env.actions)
    step_slices(open_capsule, env, (7, 200), (0, 7))
    env.finish_step()

    assert rollout_hash(env, 20) == rollout_hash(twin, 20)


def test_a_whole_step_between_slices_is_refused_and_a_reset_begins_anew(env, open_capsule, rollout_hash):
    twin = OceanEnv("squared", NUM_WORLDS, max_steps=2)
    twin.reset(seed=5)
    step_slices(open_capsule, env, (0, 64))
    with pytest.raises(RuntimeError, match="must cover each of its 200 worlds once"):
        env.step(env.actions)
    env.reset(seed=5)

    assert rollout_hash(env, 20) == rollout_hash(twin, 20)


def test_slices_after_close_do_nothing(env, open_capsule):
    capsule = env.step_capsule()
    env.close()
    interface = open_capsule(capsule)
    before = env.observations.copy()
    interface.step(interface.ctx, 0, NUM_WORLDS)

    np.testing.assert_array_equal(env.observations, before)


@pytest.mark.parametrize("name", ["close", "reset", "set_buffers"])
def test_during_a_step_on_another_thread_is_refused(open_capsule, name):
    """A call between two steps is fine, so it is tried until it comes in the middle of one."""
    message, deadline = "", time.monotonic() + 30
    while not message and time.monotonic() < deadline:
        env = OceanEnv("breakout", 20_000)
        env.reset(0)
        interface = open_capsule(capsule := env.step_capsule())
        thread = threading.Thread(target=interface.step, args=(interface.ctx, 0, 20_000))
        thread.start()
        try:
            getattr(env, name)(*[env.buffers] if name == "set_buffers" else [])
        except RuntimeError as error:
            message = str(error)
        thread.join()
        del capsule

    assert "breakout must not be used while a step or reset of it runs on another thread" in message
