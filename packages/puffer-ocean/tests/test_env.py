"""OceanEnv's own faces: actions of other forms, parameters that change, snapshots that do not fit, misuse."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import puffer_ocean
from puffer_ocean import OceanEnv, env_specs
from puffer_ocean.native import NativeEnv
from puffer_spaces import Buffers, UnknownEnvError, spec


@pytest.fixture
def squared():
    env = OceanEnv("squared", 4)
    env.reset(seed=1)
    return env


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(UnknownEnvError, match=r"got 'square'. Did you mean squared\?"):
        OceanEnv("square")


@pytest.mark.parametrize("seed", [-1, 1.5, "1"])
def test_bad_seeds_are_refused(squared, seed):
    with pytest.raises((ValueError, TypeError), match="seed must be an integer >= 0 or None"):
        squared.reset(seed)
    with pytest.raises((ValueError, TypeError), match="seed must be an integer >= 0 or None"):
        OceanEnv("squared", seed=seed)


def test_the_constructors_seed_is_that_of_the_first_reset(rollout_hash):
    env, twin = OceanEnv("squared", 4, seed=5), OceanEnv("squared", 4)
    env.reset(first_world=7)
    twin.reset(5, 7)

    assert rollout_hash(env, 50) == rollout_hash(twin, 50)


@pytest.mark.parametrize(
    "form",
    [
        lambda a: a.tolist(),
        lambda a: a.astype(np.int64),
        lambda a: a.astype(np.uint64),
        lambda a: a.astype(np.uint8),
        lambda a: a.reshape(4, 1),
        lambda a: a.astype(np.int32),
        lambda a: np.repeat(a.astype(np.int32), 2)[::2],
        lambda a: a.astype(">i4"),
        lambda a: memoryview(a.astype(np.int32)),
    ],
)
def test_actions_of_any_integer_form_are_taken(form, rollout_hash):
    env, twin = OceanEnv("squared", 4), OceanEnv("squared", 4)
    env.reset(1)
    twin.reset(1)
    for step in range(40):
        actions = np.random.default_rng(step).integers(0, 5, 4)
        env.step(form(actions))
        twin.actions[:] = actions
        twin.step(twin.actions)

    np.testing.assert_array_equal(env.observations, twin.observations)


@pytest.mark.parametrize("number", [2**32 + 1, -(2**32) + 1, 2**63 - 1])
def test_wide_actions_do_not_wrap_into_legal_ones(squared, number):
    before = squared.observations.copy()
    squared.step(np.full(4, number, np.int64))
    squared.step(np.full(4, number % 2**64, np.uint64))

    np.testing.assert_array_equal(squared.observations, before)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(4), r"actions of ocean-squared must be integers; got float64"),
        (np.zeros(4, bool), r"actions of ocean-squared must be integers; got bool"),
        (np.zeros(3, int), r"actions of ocean-squared must have shape \(4,\); got \(3,\)"),
        (np.zeros((2, 2), int), r"actions of ocean-squared must have shape \(4,\); got \(2, 2\)"),
        (np.int64(3), r"actions of ocean-squared must have shape \(4,\); got \(\)"),
        (None, r"actions of ocean-squared must be integers; got object"),
    ],
)
def test_actions_that_do_not_fit_are_refused(squared, actions, message):
    before = squared.observations.copy()
    with pytest.raises((ValueError, TypeError), match=message):
        squared.step(actions)

    np.testing.assert_array_equal(squared.observations, before)


def test_one_world_takes_a_plain_number():
    env = OceanEnv("squared")
    env.reset(1)

    assert env.step(1)[0][0, 5 * 11 + 5] == 0


def test_continuous_actions_of_any_real_form_are_taken():
    envs = [OceanEnv("cartpole", 3, continuous=True) for _ in range(3)]
    for env in envs:
        env.reset(1)
    envs[0].step(np.array([[0.5], [-1], [2]], np.float32))
    envs[1].step([[0.5], [-1.0], [1.0]])
    envs[2].step(np.array([0.5, -1, 1]))

    np.testing.assert_array_equal(envs[0].observations, envs[1].observations)
    np.testing.assert_array_equal(envs[0].observations, envs[2].observations)


def test_parameters_change_at_each_worlds_next_reset():
    env = OceanEnv("squared", 2, max_steps=10, reward_step=0)
    env.reset(3)
    env.set_parameters(reward_step=-0.05, max_steps=4)
    seen = [env.step(np.zeros(2, np.int32))[1].tolist() for _ in range(14)]

    assert seen[:10] == [[0, 0]] * 10
    assert np.allclose(seen[10:], -0.05)
    assert env.episodes()["episode_length"].tolist() == [10, 10, 4, 4]
    assert env.parameters["max_steps"] == 4
    assert env.parameters["reward_step"] == -0.05


def test_worlds_with_different_sets_of_parameters_run_side_by_side(rollout_hash, actions_of):
    env = OceanEnv("squared", 64)
    env.reset(0)
    for limit in (31, 17, 9, 5):
        for step in range(6):
            env.step(actions_of(env, step))
        env.set_parameters(max_steps=limit)
    assert env._native.get_parts()[1] > 1
    for step in range(40):
        env.step(actions_of(env, step))

    assert env._native.get_parts()[1] == 1
    assert env.episodes()["episode_length"][-20:].max() <= 5


def test_parameters_of_arrays_of_worlds_change_too():
    env = OceanEnv("cartpole", 64, continuous=True)
    env.reset(0)
    env.set_parameters(force=1)
    for _ in range(12):
        env.step(np.ones((64, 1), np.float32))
    lengths = env.episodes()["episode_length"]
    env.step(np.ones((64, 1), np.float32))

    assert lengths.max() <= 12
    for _ in range(40):
        env.step(np.ones((64, 1), np.float32))
    assert env.episodes()["episode_length"].min() > lengths.max()


def test_parameters_that_change_shapes_are_refused(squared):
    with pytest.raises(ValueError, match=r"size.*would change observation_shape"):
        squared.set_parameters(size=13)
    with pytest.raises(TypeError, match=r"sizes=3\. Did you mean size"):
        squared.set_parameters(sizes=3)
    assert squared.parameters["size"] == 11


def test_checks_between_parameters_name_the_env():
    with pytest.raises(ValueError, match=r"ocean-squared: size must be odd; got size=10\. Use 9 or 11\."):
        OceanEnv("squared", size=10)


def test_max_steps_0_is_the_envs_own_limit_and_minus_1_none():
    assert OceanEnv("squared").parameters["max_steps"] == 33
    assert OceanEnv("squared", size=21).parameters["max_steps"] == 63
    assert OceanEnv("squared", max_steps=7).parameters["max_steps"] == 7
    assert OceanEnv("squared", max_steps=-1).parameters["max_steps"] == 2**31 - 1


def test_end_and_limit_on_one_step_set_both_flags():
    env = OceanEnv("squared", 1, size=3, num_targets=8, max_steps=2)
    env.reset(0)
    env.step([1])
    env.step([1])

    assert (env.terminals[0], env.truncations[0]) == (True, True)


@pytest.mark.parametrize("first_world", [-1, 2**63, 0.5, None])
def test_a_bad_first_world_is_refused_and_changes_nothing(squared, first_world, rollout_hash):
    twin = OceanEnv("squared", 4)
    twin.reset(seed=1)
    with pytest.raises((ValueError, TypeError), match=r"first_world must be an integer in \[0, 9223372036854775807\]"):
        squared.reset(2, first_world)

    assert rollout_hash(squared, 20) == rollout_hash(twin, 20)


@pytest.mark.parametrize("name", [3, None, 1.5, b"squared"])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(TypeError, match="name must be that of a native environment, or the path of a C file; got"):
        OceanEnv(name)


def test_an_env_cannot_be_pickled_or_copied(squared):
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"ocean-squared must stay in its process.*get_state and set_state"):
            attempt(squared)


def test_a_forked_process_goes_on_alone(squared, rollout_hash):
    twin = OceanEnv("squared", 4)
    twin.reset(seed=1)
    child = os.fork()
    if child == 0:
        squared.step(np.ones(4, np.int32))
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert status == 0
    assert rollout_hash(squared, 20) == rollout_hash(twin, 20)


def test_use_before_reset_is_refused():
    env = OceanEnv("squared")
    for call in (lambda: env.step([0]), env.finish_step, env.get_state):
        with pytest.raises(RuntimeError, match="squared must be reset before this call"):
            call()


def test_use_after_close_is_refused(squared):
    capsule, state = squared.step_capsule(), squared.get_state()
    squared.close()
    squared.close()
    calls = [
        lambda: squared.step(np.zeros(4, np.int32)),
        squared.reset,
        squared.finish_step,
        squared.step_capsule,
        squared.get_state,
        lambda: squared.set_state(state),
        lambda: squared.set_parameters(max_steps=3),
        lambda: squared.parameters,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="squared must be open; it was closed"):
            call()
    del capsule


def test_a_capsule_keeps_the_worlds_alive(squared):
    native = squared._native
    count = sys.getrefcount(native)
    capsule = squared.step_capsule()

    assert sys.getrefcount(native) == count + 1
    del capsule
    gc.collect()
    assert sys.getrefcount(native) == count


def test_another_thread_cannot_rebind_or_step_during_a_step():
    env = OceanEnv("breakout", 20_000)
    env.reset(0)
    buffers = Buffers.allocate(env.single_observation_space, env.single_action_space, env.num_agents)
    stop, refused = threading.Event(), {}

    def step_on():
        actions = np.zeros(env.num_agents, np.int32)
        while not stop.is_set():
            try:
                env._native.step(actions)
            except RuntimeError:
                continue

    thread = threading.Thread(target=step_on)
    thread.start()
    deadline = time.monotonic() + 30
    while len(refused) < 2 and time.monotonic() < deadline:
        for name, call in (("bind", lambda: env.set_buffers(buffers)), ("step", lambda: env.step(env.actions))):
            try:
                call()
            except RuntimeError as error:
                refused[name] = str(error)
    stop.set()
    thread.join()

    assert set(refused) == {"bind", "step"}
    assert all("while a step or reset of it runs on another thread" in message for message in refused.values())


def test_buffers_that_do_not_fit_are_refused(squared):
    other = Buffers.allocate(squared.single_observation_space, squared.single_action_space, 5)
    with pytest.raises(ValueError, match="observations"):
        squared.set_buffers(other)
    good = Buffers.allocate(squared.single_observation_space, squared.single_action_space, 4)
    good.rewards = np.zeros(8, np.float32)[::2]
    with pytest.raises(ValueError, match=r"contiguous|rewards"):
        squared.set_buffers(good)

    squared.step(np.zeros(4, np.int32))


def test_a_dict_of_arrays_is_a_buffer(rollout_hash):
    buffers = Buffers.allocate(OceanEnv("squared").single_observation_space, OceanEnv("squared").single_action_space, 4)
    arrays = {
        name: buffers[name] for name in ("observations", "actions", "rewards", "terminals", "truncations", "masks")
    }
    env, twin = OceanEnv("squared", 4, buf=arrays), OceanEnv("squared", 4)
    env.reset(1)
    twin.reset(1)

    assert env.observations is arrays["observations"]
    assert rollout_hash(env, 50) == rollout_hash(twin, 50)


def test_records_that_nobody_drains_are_bounded():
    env = OceanEnv("squared", 1, max_steps=1)
    env.reset(0)
    actions = np.zeros(1, np.int32)
    step = env._native.step
    for _ in range((1 << 20) + 5):
        step(actions)
    records = env.episodes()

    assert env._native.num_dropped == 1 << 19
    assert len(records) == (1 << 19) + 5
    assert records["step"][-1] == (1 << 20) + 5


def test_each_env_has_a_class_with_its_documentation():
    from puffer_ocean import Squared

    env = Squared(3, size=5, max_steps=9)
    env.reset(0)

    assert issubclass(Squared, OceanEnv)
    assert env.single_observation_space.shape == (25,)
    assert "size: side of the board, odd (int in [3, 99], default 11)" in Squared.__doc__
    assert "out_rate" in Squared.__doc__
    assert pickle.loads(pickle.dumps(Squared)) is Squared
    assert {"Squared", "Memory", "Cartpole", "PySquared", "OceanEnv"} <= set(dir(puffer_ocean))
    with pytest.raises(AttributeError, match="no attribute 'Triangle'"):
        puffer_ocean.Triangle  # noqa: B018


def test_specs_carry_the_tables():
    squared = next(each for each in env_specs() if each.id == "ocean-squared")
    size = next(parameter for parameter in squared.parameters if parameter.name == "size")

    assert (size.type, size.default, size.low, size.high) == (int, 11, 3, 99)
    assert squared.batched
    assert {each.id for each in env_specs()} >= {"ocean-squared", "ocean-memory", "ocean-cartpole", "ocean-pysquared"}
    assert spec("ocean-squared") == squared == pickle.loads(pickle.dumps(squared))


def test_a_native_env_needs_a_reset_with_a_seed_first():
    env = OceanEnv("squared", 2)
    with pytest.raises(ValueError, match="seed must be an integer at the first reset"):
        env._native.reset(None, 0)
    with pytest.raises(ValueError, match="num_worlds must be at least 1"):
        NativeEnv(env._table, 0, env._native.newest_params, 68)


def test_importing_the_package_imports_no_torch_and_no_window():
    program = "import sys, puffer_ocean; print(sorted({'torch', 'pygame', 'puffer_vector'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
