"""Environments of one's own: compiled from a path. The env of these tests has agents that die and come back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from puffer_ocean import OceanEnv, load_env
from puffer_ocean.library import COMPILE_ARGS
from puffer_spaces import make_env

STAY, DIE, LEAVE, WAKE_ALL, END_WORLD, DIE_AND_RETURN = range(6)
AGE, NUMBER, DRAW = range(3)


@pytest.fixture
def flock(flock_path):
    """Two worlds of three agents."""
    env = OceanEnv(flock_path, 2)
    env.reset(seed=1)
    return env


def step(env, *actions):
    """Step with actions of the first agents; the others stay."""
    env.step(np.array([*actions, *[STAY] * (env.num_agents - len(actions))], np.int32))
    return env


def test_its_spec_is_ready_for_the_registry(flock_path):
    spec = load_env(flock_path)
    env = make_env(spec, num_envs=3, num_agents=2)

    assert (spec.id, spec.version, spec.batched) == ("ocean-flock", "7", True)
    assert (env.num_envs, env.num_agents, env.episode_extras) == (3, 6, ("number",))


def test_bounds_may_differ_between_elements(flock):
    np.testing.assert_array_equal(flock.single_observation_space.high, [1000, 3, 1])
    np.testing.assert_array_equal(flock.single_observation_space.low, [0, 0, 0])


def test_an_agent_that_ends_gets_its_flag_once_and_is_masked(flock):
    step(flock, DIE, LEAVE)

    assert flock.terminals.tolist() == [True] + [False] * 5
    assert flock.truncations.tolist() == [False, True] + [False] * 4
    assert flock.masks.tolist() == [False, False] + [True] * 4
    assert flock.final_observations[:2, NUMBER].tolist() == [1, 2]
    assert flock.final_observations[:2, AGE].tolist() == [1, 1]
    assert flock.rewards.tolist() == [0.5] * 6
    assert not flock.observations[:2].any()

    step(flock)
    assert not (flock.terminals | flock.truncations).any()
    assert flock.masks.tolist() == [False, False] + [True] * 4
    assert flock.rewards.tolist() == [0, 0] + [0.5] * 4
    assert not flock.observations[:2].any()


def test_the_step_that_ends_the_world_flags_the_living_and_refills_all_rows(flock):
    step(flock, DIE)
    step(flock, STAY, END_WORLD)

    assert flock.terminals.tolist() == [False, True, True, False, False, False]
    assert flock.masks.all()
    assert flock.observations[:3, AGE].tolist() == [0, 0, 0]
    assert flock.observations[:3, NUMBER].tolist() == [1, 2, 3]
    assert flock.final_observations[1:3, AGE].tolist() == [2, 2]
    assert flock._native.episode_numbers() == [1, 0]
    records = flock.episodes()
    assert records[["step", "world", "agent", "episode_length"]].tolist() == [(1, 0, 0, 1), (2, 0, 1, 2), (2, 0, 2, 2)]
    assert records["number"].tolist() == [1, 2, 3]
    assert records["perf"].tolist() == [1, 1, 1]


def test_a_world_whose_agents_have_all_ended_is_over(flock):
    step(flock, DIE, DIE)
    step(flock, STAY, STAY, LEAVE)

    assert flock._native.episode_numbers() == [1, 0]
    assert flock.masks.all()
    assert flock.truncations.tolist() == [False, False, True, False, False, False]


def test_an_agent_may_come_back(flock):
    step(flock, DIE)
    step(flock, STAY, WAKE_ALL)

    assert flock.masks.all()
    assert not (flock.terminals | flock.truncations).any()
    assert flock.observations[0, [AGE, NUMBER]].tolist() == [0, 1]
    step(flock, DIE)
    assert flock.episodes()[["step", "agent", "episode_return", "episode_length"]].tolist() == [
        (1, 0, 0.5, 1),
        (3, 0, 0.5, 1),
    ]


def test_an_agent_may_end_and_begin_again_in_one_step(flock):
    step(flock)
    step(flock, DIE_AND_RETURN, DIE_AND_RETURN, DIE_AND_RETURN)

    assert flock.terminals.tolist() == [True] * 3 + [False] * 3
    assert flock.masks.all()
    assert flock.final_observations[:3, AGE].tolist() == [2, 2, 2]
    assert flock.observations[:3, AGE].tolist() == [0, 0, 0]
    assert flock._native.episode_numbers() == [0, 0]
    assert flock.episodes()["episode_return"].tolist() == [1, 1, 1]
    step(flock, DIE)
    assert flock.episodes()[["episode_return", "episode_length", "perf"]].tolist() == [(0.5, 1, 1)]


def test_one_that_came_back_as_its_world_ends_is_flagged_once(flock):
    step(flock, DIE_AND_RETURN, END_WORLD)

    assert flock.terminals.tolist() == [True] * 3 + [False] * 3
    assert len(flock.episodes()) == 3
    assert flock.observations[:3, AGE].tolist() == [0, 0, 0]
    step(flock, DIE)
    assert flock.episodes()["episode_length"].tolist() == [1]


def test_the_limit_of_steps_counts_those_of_the_world(flock_path):
    env = OceanEnv(flock_path, 1, max_steps=3)
    env.reset(1)
    step(env, DIE)
    step(env, STAY, WAKE_ALL)
    step(env, STAY, DIE)

    assert env.terminals.tolist() == [False, True, False]
    assert env.truncations.tolist() == [True, True, True]
    assert env.episodes()["episode_length"].tolist() == [1, 1, 3, 3]


def test_action_masks_follow_the_state(flock):
    assert flock.action_mask_size == 6
    assert flock.action_mask[:, WAKE_ALL].tolist() == [True, False, False] * 2
    assert not flock.action_mask[:, DIE].any()
    step(flock, LEAVE)

    assert flock.action_mask[0].all()
    assert flock.action_mask[1:, DIE].all()
    step(flock, STAY, END_WORLD)
    assert not flock.action_mask[:3, DIE].any()
    assert flock.action_mask[3:, DIE].all()


def test_snapshots_keep_the_dead_and_the_flexible_state(flock, rollout_hash):
    step(flock, DIE, STAY, LEAVE)
    state = flock.get_state()
    expected = rollout_hash(flock, 50)
    masks = flock.action_mask.copy()
    flock.reset()
    flock.set_state(state)

    assert flock.masks.tolist() == [False, True, False, True, True, True]
    assert rollout_hash(flock, 50) == expected
    np.testing.assert_array_equal(flock.action_mask, masks)


def test_worlds_of_many_agents_do_not_depend_on_the_split(flock_path, actions_of):
    whole = OceanEnv(flock_path, 5)
    parts = [OceanEnv(flock_path, 2), OceanEnv(flock_path, 3)]
    whole.reset(4)
    parts[0].reset(4)
    parts[1].reset(4, 2)
    for number in range(200):
        actions = actions_of(whole, number)
        whole.step(actions)
        parts[0].step(actions[:6])
        parts[1].step(actions[6:])
        for name in ("observations", "rewards", "terminals", "truncations", "masks", "action_mask"):
            joined = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(getattr(whole, name), joined)


def test_an_env_without_a_picture_shows_its_observations(flock_path):
    env = OceanEnv(flock_path, 1, render_mode="rgb_array")
    env.reset(0)

    assert env.render().shape == (48, 320, 3)
    assert len(np.unique(env.render())) > 2


def test_a_file_that_does_not_compile_says_why(flock_path, tmp_path):
    file = tmp_path / "broken.c"
    file.write_text(
        '#define OC_ENV broken\n#define OC_DOC "x"\n#define OC_OBS_T float\n#include "ocean.h"\nint x = ;\n'
    )
    with pytest.raises(RuntimeError, match=r"broken.c must compile; (?s:.)*int x = ;"):
        OceanEnv(file)


def test_a_file_without_the_env_of_its_name_says_so(flock_path, tmp_path):
    file = tmp_path / "herd.c"
    file.write_text(flock_path.read_text())
    with pytest.raises(RuntimeError, match="Write #define OC_ENV herd"):
        OceanEnv(file)


def test_a_missing_file_and_a_missing_compiler_are_named(flock_path, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"must be a C file; got .*nothing.c"):
        OceanEnv(tmp_path / "nothing.c")
    file = tmp_path / "other.c"
    file.write_text("int other;")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(FileNotFoundError, match="got none as no-such-compiler"):
        OceanEnv(file)


def test_it_is_compiled_once_and_again_after_a_change(flock_path, tmp_path):
    file = tmp_path / "flock.c"
    program = f"from puffer_ocean import OceanEnv; print(OceanEnv({str(file)!r}).single_observation_space.high[0])"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    seen = []
    for high in ("1000", "1000", "2000"):
        file.write_text(flock_path.read_text().replace(".obs_high = 1000", f".obs_high = {high}"))
        result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        seen.append((result.stdout.strip(), len(list((tmp_path / "cache").rglob("*.so")))))

    assert seen == [("1000.0", 1), ("1000.0", 1), ("2000.0", 2)]


@pytest.mark.skipif(os.environ.get("PUFFER_BUILD") != "sanitize", reason="needs PUFFER_BUILD=sanitize")
def test_a_sanitizer_build_catches_a_write_into_the_next_worlds_row(flock_path):
    program = (
        f"import numpy as np; from puffer_ocean import OceanEnv; e = OceanEnv({str(flock_path)!r}, 4, overflow=True)\n"
        "e.reset(0); e.step(np.zeros(12, np.int32))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert result.returncode != 0
    assert "use-after-poison" in result.stderr
    assert "flock.c" in result.stderr


def test_it_is_compiled_with_the_arguments_of_the_build(build_settings):
    assert list(COMPILE_ARGS) == build_settings["compile-args"]


@pytest.fixture
def build_settings():
    import tomllib

    return tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]["puffer"]["build"]
