"""The plain-Python twin of squared: the oracle for the native framework, seeds to records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_ocean import OceanEnv, PySquared
from puffer_spaces import load_config, make_env

NUM_WORLDS = 9


def assert_equal_steps(env, twin, actions):
    env.step(actions)
    twin.step(actions)
    ended = env.terminals | env.truncations
    for name in ("observations", "rewards", "terminals", "truncations", "masks"):
        np.testing.assert_array_equal(getattr(env, name), getattr(twin, name), name)
    np.testing.assert_array_equal(env.final_observations[ended], twin.final_observations[ended])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**70),
    first_world=st.integers(0, 2**40),
    size=st.sampled_from([3, 5, 11, 21]),
    num_targets=st.integers(1, 8),
    max_steps=st.sampled_from([0, 1, 5, -1]),
    reward_step=st.sampled_from([0, -0.1]),
    resets=st.booleans(),
    data=st.data(),
)
def test_both_step_alike(seed, first_world, size, num_targets, max_steps, reward_step, resets, data):
    parameters = {"size": size, "num_targets": num_targets, "max_steps": max_steps, "reward_step": reward_step}
    env, twin = OceanEnv("squared", NUM_WORLDS, **parameters), PySquared(NUM_WORLDS, **parameters)
    actions = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(-1, 6, (120, NUM_WORLDS))
    env.reset(seed, first_world)
    twin.reset(seed, first_world)
    np.testing.assert_array_equal(env.observations, twin.observations)
    for step in range(60):
        assert_equal_steps(env, twin, actions[step])
    if resets:
        env.reset()
        twin.reset()
        np.testing.assert_array_equal(env.observations, twin.observations)
    for step in range(60, 120):
        assert_equal_steps(env, twin, actions[step])

    np.testing.assert_array_equal(env.episodes(), twin.episodes())


def test_it_is_registered_with_its_configuration():
    env = make_env("puffer_pysquared", num_envs=3, size=5)

    assert isinstance(env, PySquared)
    assert env.single_observation_space.shape == (25,)
    assert set(load_config("ocean-pysquared")) == {"env", "vec", "policy", "train"}


def test_reset_takes_every_form_of_seed():
    env = PySquared()
    for arguments in [(), (None,), (0,), (np.int64(3),), (2**31 + 5,)]:
        env.reset(*arguments)


def test_text_shows_the_board():
    env = PySquared(render_mode="ansi", size=3)
    env.reset(0)
    lines = env.render().split("\n")

    assert [len(line) for line in lines] == [6, 6, 6]
    assert lines[1][2:4] == "[]"
    assert "".join(lines).count("<>") == 1


@pytest.mark.parametrize(("parameters", "word"), [({"size": 4}, "size"), ({"onehot": True}, "onehot"), ({"x": 1}, "x")])
def test_bad_parameters_are_refused(parameters, word):
    with pytest.raises((ValueError, TypeError), match=f"pysquared.*{word}"):
        PySquared(**parameters)


@pytest.mark.parametrize("name", ["num_envs", "seed", "first_world"])
def test_bad_integers_are_refused_as_by_the_native_env(name):
    for make in (PySquared, lambda *args, **kwargs: OceanEnv("squared", *args, **kwargs)):
        with pytest.raises(ValueError, match=f"{name} must be an integer .*; got -1"):
            make(**{name: -1}) if name != "first_world" else make(2).reset(1, -1)
        with pytest.raises(TypeError, match=f"{name} must be an integer .*; got 'x'"):
            make(**{name: "x"}) if name != "first_world" else make(2).reset(1, "x")
