"""What every environment must do, whatever its rules: these tests run for each id by themselves."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import random
import threading
from itertools import pairwise

import numpy as np
import pytest

from puffer_ocean import OceanEnv
from puffer_ocean.native import built_tables
from puffer_spaces import Buffers, check_env, make_env, spec

NAMES = sorted(built_tables())
NUM_WORLDS = 70
SEED = 3

every_env = pytest.mark.parametrize("name", NAMES)


def started(name, num_envs=NUM_WORLDS, seed=SEED, first_world=0, **parameters):
    env = OceanEnv(name, num_envs, **parameters)
    env.reset(seed, first_world)
    return env


def short(name):
    """Parameters with which episodes end often, by the framework's limit too."""
    return {"max_steps": 23} if name != "memory" else {"max_steps": 5}


@every_env
def test_it_can_be_made_by_id_and_by_alias(name, actions_of):
    for id in (f"ocean-{name}", f"puffer_{name}"):
        env = make_env(id, num_envs=2)
        env.reset(seed=1)
        for step in range(1000):
            env.step(actions_of(env, step))
        env.close()
        env.close()
    assert spec(f"puffer_{name}") is spec(f"ocean-{name}")


@pytest.mark.parametrize("name", [*NAMES, "pysquared"])
def test_the_check_of_the_contract_finds_nothing(name):
    env = make_env(f"ocean-{name}", num_envs=3, max_steps=20)

    assert check_env(env) == []


@every_env
def test_the_same_seed_gives_the_same_run_and_another_does_not(name, rollout_hash):
    hashes = [rollout_hash(started(name, 8, seed), 200) for seed in (SEED, SEED, SEED + 1, SEED + 2**64)]

    assert hashes[0] == hashes[1] == hashes[3]
    assert hashes[0] != hashes[2]


@every_env
def test_a_second_seeded_reset_repeats_the_first(name, rollout_hash):
    env = started(name, 8)
    first = rollout_hash(env, 150)
    env.reset(SEED)

    assert rollout_hash(env, 150) == first


@every_env
@pytest.mark.parametrize("arguments", [(), (None,), (0,), (np.int64(3),), (2**31 + 5,), (2**70,)])
def test_reset_takes_every_form_of_seed(name, arguments):
    env = OceanEnv(name, 2, seed=4)
    runs = []
    for _ in range(2):
        env.reset(*arguments)
        runs.append([env.step(np.zeros_like(env.actions))[0].copy() for _ in range(100)])

    is_seeded = bool(arguments) and arguments[0] is not None
    if is_seeded:
        np.testing.assert_array_equal(runs[0], runs[1])


@every_env
def test_reset_without_a_seed_goes_on_to_other_episodes(name, rollout_hash):
    env, twin = started(name, 64), started(name, 64)
    hashes = []
    for each in (env, twin):
        each.reset()
        first = rollout_hash(each, 60)
        each.reset(None)
        hashes.append((first, rollout_hash(each, 60)))

    assert hashes[0] == hashes[1]
    assert hashes[0][0] != hashes[0][1]


@every_env
def test_unseeded_envs_differ(name, rollout_hash):
    envs = OceanEnv(name, 64), OceanEnv(name, 64)
    for env in envs:
        env.reset()

    assert rollout_hash(envs[0], 60) != rollout_hash(envs[1], 60)


@every_env
def test_options_of_reset_are_accepted(name):
    OceanEnv(name).reset(seed=1, options={"level": 3})


@every_env
def test_trajectories_do_not_depend_on_how_worlds_are_split(name, actions_of, add_rows):
    whole = started(name, **short(name))
    agents = whole.num_agents // NUM_WORLDS
    bounds = [0, 1, 2, 9, 65, NUM_WORLDS]
    parts = [started(name, high - low, first_world=low, **short(name)) for low, high in pairwise(bounds)]
    for step in range(120):
        actions = actions_of(whole, step)
        whole.step(actions)
        for part, (low, high) in zip(parts, pairwise(bounds), strict=True):
            rows = slice(low * agents, high * agents)
            part.step(actions[rows])
            expected, got = hashlib.sha256(), hashlib.sha256()
            add_rows(expected, whole, rows)
            add_rows(got, part)
            assert expected.digest() == got.digest()

    records = whole.episodes()
    for part, low in zip(parts, bounds, strict=False):
        own = part.episodes()
        own["world"] += low
        np.testing.assert_array_equal(own, records[np.isin(records["world"], np.unique(own["world"]))])
    assert len(records) == len(np.unique(records[["step", "world", "agent"]]))


@every_env
def test_slices_through_the_capsule_are_the_same_steps(name, actions_of, add_rows, open_capsule):
    env, twin = started(name, 200, **short(name)), started(name, 200, **short(name))
    interface = open_capsule(capsule := env.step_capsule())
    slices = [(128, 192), (0, 64), (192, 200), (64, 128)]
    assert (interface.abi_version, interface.struct_size) == (1, ctypes.sizeof(interface))
    assert (interface.num_worlds, interface.slice_multiple) == (200, 64)
    assert interface.rows_per_world == env.num_agents // 200
    for step in range(60):
        actions = actions_of(env, step)
        env.actions[...] = actions
        if step % 2:
            threads = [threading.Thread(target=interface.step, args=(interface.ctx, *ends)) for ends in slices]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for ends in slices:
                interface.step(interface.ctx, *ends)
        assert env.finish_step() == []
        twin.step(actions)
        expected, got = hashlib.sha256(), hashlib.sha256()
        add_rows(expected, twin)
        add_rows(got, env)
        assert expected.digest() == got.digest()

    np.testing.assert_array_equal(env.episodes(), twin.episodes())
    del capsule


@every_env
def test_stepping_one_env_changes_nothing_else(name, rollout_hash, capfd, tmp_path):
    expected = rollout_hash(started(name, 4), 60)
    env, other = started(name, 4), started(name, 4, seed=9)
    states = random.getstate(), np.random.get_state()[1].copy(), dict(os.environ)
    half = rollout_hash(other, 30)
    assert rollout_hash(env, 60) == expected
    with contextlib.chdir(tmp_path):
        rollout_hash(other, 30, first_step=30)

    assert half == rollout_hash(started(name, 4, seed=9), 30)
    assert random.getstate() == states[0]
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    assert dict(os.environ) == states[2]
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@every_env
def test_an_episode_never_ends_without_a_flag(name, actions_of):
    env = started(name, 16, max_steps=150 if name != "memory" else 0)
    agents = env.num_agents // 16
    numbers = np.array(env._native.episode_numbers())
    for step in range(600):
        masks = env.masks.copy()
        env.step(actions_of(env, step))
        flagged = (env.terminals | env.truncations).reshape(16, agents)
        now = np.array(env._native.episode_numbers())
        ended = now != numbers
        assert (now - numbers <= 1).all()
        assert (flagged.any(axis=1) >= ended).all()
        if agents == 1:
            np.testing.assert_array_equal(flagged[:, 0], ended)
        assert not (flagged & ~masks.reshape(16, agents)).any()
        assert env.masks.reshape(16, agents)[ended].all()
        numbers = now

    assert numbers.min() >= 2


@every_env
def test_records_agree_with_rewards_and_flags(name, actions_of):
    env = started(name, 8, max_steps=100)
    returns, lengths = np.zeros(env.num_agents), np.zeros(env.num_agents, int)
    expected = []
    agents = env.num_agents // 8
    for step in range(400):
        masks = env.masks.copy()
        env.step(actions_of(env, step))
        returns[masks] += env.rewards[masks]
        lengths[masks] += 1
        for row in np.flatnonzero(env.terminals | env.truncations):
            expected.append((step + 1, row // agents, row % agents, returns[row], lengths[row]))
            returns[row], lengths[row] = 0, 0

    records = env.episodes()
    assert records.dtype.names[7:] == env.episode_extras
    assert [tuple(record)[:5] for record in records.tolist()] == expected
    assert np.isfinite(records["score"]).all()
    assert ((records["perf"] >= 0) & (records["perf"] <= 1)).all()
    assert len(env.episodes()) == 0
    env.reset(SEED)
    env.step(actions_of(env, 0))
    assert len(env.episodes()) == 0


@every_env
def test_a_truncated_episode_ends_in_the_observation_of_a_longer_one(name, actions_of):
    limit = 4
    env, longer = started(name, 32, max_steps=limit), started(name, 32, max_steps=-1)
    alive = np.ones(env.num_agents, bool)
    for step in range(limit):
        actions = actions_of(env, step)
        env.step(actions)
        longer.step(actions)
        if step < limit - 1:
            alive &= ~(env.terminals | env.truncations)

    np.testing.assert_array_equal(env.truncations, alive | env.truncations)
    unended = alive & ~longer.terminals
    assert unended.any()
    np.testing.assert_array_equal(env.final_observations[unended], longer.observations[unended])
    np.testing.assert_array_equal(env.terminals[alive], longer.terminals[alive])
    env.step(actions_of(env, limit))
    assert not env.truncations[alive].any()


@every_env
def test_a_snapshot_continues_exactly(name, rollout_hash):
    env = started(name, 16, **short(name))
    rollout_hash(env, 37)
    env.set_parameters(max_steps=11)
    env.step(np.zeros_like(env.actions))
    state = env.get_state()
    expected = rollout_hash(env, 80, first_step=37)
    env.reset()
    after_reset = rollout_hash(env, 10)

    other = OceanEnv(name, 16)
    for each in (other, env, other):
        each.set_state(state)
        assert each.get_state() == state
        assert rollout_hash(each, 80, first_step=37) == expected
        each.reset()
        assert rollout_hash(each, 10) == after_reset


@every_env
def test_rows_move_along_to_other_buffers(name, actions_of, add_rows):
    env, twin = started(name, 8), started(name, 8)
    for step in range(60):
        actions = actions_of(env, step)
        env.step(actions)
        twin.step(actions)
        expected, got = hashlib.sha256(), hashlib.sha256()
        add_rows(expected, twin)
        add_rows(got, env)
        assert expected.digest() == got.digest()
        if step % 7 == 0:
            env.set_buffers(
                Buffers.allocate(
                    env.single_observation_space, env.single_action_space, env.num_agents, env.action_mask_size
                )
            )


@every_env
def test_pictures_show_the_world(name, actions_of):
    env = started(name, 2, render_mode="rgb_array")
    pictures = []
    for step in range(12):
        pictures.append(env.render())
        env.step(actions_of(env, step))
    thread_pictures = []
    thread = threading.Thread(target=lambda: thread_pictures.append(env.render(world=1)))
    thread.start()
    thread.join()

    assert pictures[0].dtype == np.uint8
    assert pictures[0].ndim == 3
    assert pictures[0].shape[2] == 3
    assert min(pictures[0].shape[:2]) >= 64
    assert len(np.unique(pictures[0].reshape(-1, 3), axis=0)) >= 3
    assert any((picture != pictures[0]).any() for picture in pictures)
    assert thread_pictures[0].shape == pictures[0].shape
    np.testing.assert_array_equal(env.render(), env.render())


@every_env
def test_text_shows_the_world(name):
    env = started(name, 1, render_mode="ansi")

    lines = env.render().split("\n")

    assert 4 <= len(lines) <= 80
    assert all("\u2580" in line for line in lines)
