"""Values of every environment: within bounds for any action and parameter, and the same as ever."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from puffer_ocean import OceanEnv
from puffer_ocean.native import built_tables

ENVS = Path(__file__).parents[1] / "src" / "puffer_ocean" / "envs"
NAMES = sorted(built_tables())
CONTINUOUS = [name for name in NAMES if any(row[0] == "continuous" for row in built_tables()[name].parameters)]

every_env = pytest.mark.parametrize("name", NAMES)


def started(name, num_envs, seed=3, **parameters):
    env = OceanEnv(name, num_envs, **parameters)
    env.reset(seed)
    return env


def with_continuous_forms(names):
    return [(name, {}) for name in names] + [(name, {"continuous": True}) for name in CONTINUOUS]


@pytest.mark.parametrize(("name", "form"), with_continuous_forms(NAMES))
def test_observations_and_rewards_stay_within_their_bounds(name, form, actions_of):
    env = started(name, 8, **form)
    space = env.single_observation_space
    for step in range(2000):
        env.step(actions_of(env, step))
        for observations in (env.observations, env.final_observations[env.terminals | env.truncations]):
            assert (observations >= space.low).all()
            assert (observations <= space.high).all()
        assert np.isfinite(env.observations).all()
        assert (abs(env.rewards) <= 1 + 1e-6).all()


@every_env
def test_illegal_discrete_actions_are_one_and_the_same_no_op(name, actions_of):
    values = [-1, 1 << 20, np.iinfo(np.int32).min, np.iinfo(np.int32).max]
    envs = [started(name, 16) for _ in values]
    wide = started(name, 16)
    for step in range(200):
        illegal = np.random.default_rng(step).random(envs[0].actions.shape) < 0.3
        for env, value in zip(envs, values, strict=True):
            actions = np.where(illegal, np.int32(value), actions_of(env, step))
            before = actions.copy()
            env.step(actions)
            np.testing.assert_array_equal(actions, before)
        wide.step(np.where(illegal, 2**32 + 1, actions_of(wide, step).astype(np.int64)))

    records = envs[0].episodes()
    for env in (*envs[1:], wide):
        np.testing.assert_array_equal(env.observations, envs[0].observations)
        np.testing.assert_array_equal(env.episodes(), records)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_actions_that_are_no_numbers_count_as_zero_and_large_ones_are_clipped(name, actions_of):
    pairs = [(np.nan, 0), (np.inf, 0), (-np.inf, 0), (1e30, 1), (-1e30, -1)]
    envs = [(started(name, 8, continuous=True), started(name, 8, continuous=True)) for _ in pairs]
    for step in range(200):
        odd = np.random.default_rng(step).random(envs[0][0].actions.shape) < 0.3
        for (value, same), (env, twin) in zip(pairs, envs, strict=True):
            env.step(np.where(odd, np.float32(value), actions_of(env, step)))
            twin.step(np.where(odd, np.float32(same), actions_of(env, step)))
            np.testing.assert_array_equal(env.observations, twin.observations)


def drawn_parameters(table, rng):
    """Random values within the declared ranges, near their ends as often as not."""
    drawn = {}
    for name, kind, _offset, default, low, high, _doc in table.parameters:
        if name == "max_steps":
            drawn[name] = int(rng.choice([0, -1, 1, 7, 200]))
        elif kind is bool:
            drawn[name] = bool(rng.integers(2))
        else:
            value = rng.choice([low, high, default, rng.uniform(low, high), rng.uniform(low, high)])
            drawn[name] = int(value) if kind is int else float(np.clip(np.float32(value), low, high))
    return drawn


@every_env
def test_every_parameter_works_over_its_range(name, actions_of):
    table, rng = built_tables()[name], np.random.default_rng(0)
    sets = [{}]
    for parameter, kind, _offset, _default, low, high, _doc in table.parameters:
        sets += [{parameter: kind(low)}, {parameter: kind(high)}] if parameter != "max_steps" else [{parameter: 1}]
    sets += [drawn_parameters(table, rng) for _ in range(20)]
    num_made = 0
    for parameters in sets:
        try:
            env = OceanEnv(name, 5, **parameters)
        except ValueError:  # parameters that do not go together, such as an even size
            continue
        num_made += 1
        env.reset(seed=num_made)
        num_steps = min(2000, max(100, 40_000_000 // env.observations.nbytes))
        for step in range(num_steps):
            env.step(actions_of(env, step) if step < 50 else np.roll(env.actions, 1, axis=0))
        assert np.isfinite(env.observations).all()
        assert np.isfinite(env.rewards).all()
        records = env.episodes()
        assert all(np.isfinite(records[field]).all() for field in records.dtype.names)
        env.close()

    assert num_made > len(sets) // 2


@every_env
def test_bad_parameters_are_refused_by_name(name):
    table = built_tables()[name]
    with pytest.raises(TypeError, match=f"ocean-{name} .*no_such_thing"):
        OceanEnv(name, no_such_thing=1)
    for parameter, kind, _offset, _default, low, high, _doc in table.parameters:
        with pytest.raises(TypeError, match=f"ocean-{name}: {parameter} "):
            OceanEnv(name, **{parameter: "7"})
        for value in [low - 1, high + 1, float("nan")]:
            with pytest.raises((ValueError, TypeError), match=f"ocean-{name}: {parameter} "):
                OceanEnv(name, **{parameter: value if kind is not int or value != value else int(value)})


@every_env
@pytest.mark.parametrize("num_envs", [0, -1, 2**31, 2**64, 1.5, None, "2"])
def test_a_bad_number_of_worlds_is_refused(name, num_envs):
    with pytest.raises((ValueError, TypeError), match=r"num_envs must be an integer in \[1, 2147483647\]; got"):
        OceanEnv(name, num_envs)


def golden_hashes(name, actions_of, add_rows):
    """Hashes of 1,000 steps of 8 worlds, for three seeds, of the discrete and the continuous form."""
    hashes = {}
    forms = {"default": {}, **({"continuous": {"continuous": True}} if name in CONTINUOUS else {})}
    for form, parameters in forms.items():
        for seed in (0, 1, 2**63):
            env, digest = started(name, 8, seed, **parameters), hashlib.sha256()
            digest.update(env.observations.tobytes())
            for step in range(1000):
                env.step(actions_of(env, step))
                add_rows(digest, env)
            digest.update(env.episodes().tobytes())
            hashes[f"{form} {seed}"] = digest.hexdigest()
    return hashes


@every_env
def test_golden_hashes(name, actions_of, add_rows):
    file = ENVS / name / "golden.json"
    got = {"version": built_tables()[name].version, "sha256": golden_hashes(name, actions_of, add_rows)}
    if os.environ.get("PUFFER_UPDATE_GOLDEN"):
        file.write_text(json.dumps(got, indent=2) + "\n")

    assert got == json.loads(file.read_text()), (
        f"trajectories of {name} differ from those of golden.json. If its rules were meant to change, raise its "
        "OC_VERSION and run PUFFER_UPDATE_GOLDEN=1 pytest packages/puffer-ocean -k golden"
    )
