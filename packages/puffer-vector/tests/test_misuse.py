"""Calls at the wrong time and wrong actions: the same clear error every time, and the vector env goes on."""

import numpy as np
import pytest

import puffer_vector

BACKENDS = ["serial", "threads", "processes"]


@pytest.fixture(params=BACKENDS)
def vector(request, envs):
    workers = {} if request.param == "serial" else {"num_workers": 2}
    with puffer_vector.make(envs.Walk, num_envs=4, backend=request.param, seed=0, **workers) as vector:
        yield vector


def good_actions(vector):
    return np.ones((vector.agents_per_batch, 2), np.int32)


def test_calls_before_a_reset_say_what_is_missing(vector):
    for call in (vector.recv, lambda: vector.send(good_actions(vector)), lambda: vector.step(good_actions(vector))):
        with pytest.raises(RuntimeError, match="needs a reset first"):
            call()


def test_recv_twice_and_send_twice_raise_and_leave_the_env_usable(vector):
    vector.async_reset(0)
    with pytest.raises(RuntimeError, match="send must answer a batch"):
        vector.send(good_actions(vector))
    vector.recv()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="recv must follow a send"):
            vector.recv()
    vector.send(good_actions(vector))
    with pytest.raises(RuntimeError, match="send must answer a batch"):
        vector.send(good_actions(vector))
    vector.recv()


@pytest.mark.parametrize(
    ("actions", "error", "text"),
    [
        (np.ones((3, 2), np.int32), ValueError, r"shape \(4, 2\).*got \(3, 2\)"),
        (np.ones(4, np.int32), ValueError, r"shape \(4, 2\).*got \(4,\)"),
        (np.ones((4, 2), np.float32), TypeError, "an integer dtype.*got float32"),
        (np.full((4, 2), 3, np.int32), ValueError, r"got 3 at \[0, 0\], where n=3"),
        (np.array([[0, 0], [0, -1], [0, 0], [0, 0]]), ValueError, r"got -1 at \[1, 1\], where n=4"),
        ([[0, 0], [0, 2**40], [0, 0], [0, 0]], ValueError, r"got 1099511627776 at \[1, 1\]"),
        (None, ValueError, "shape"),
    ],
)
def test_wrong_actions_raise_the_same_error_each_time_and_step_no_env(vector, actions, error, text):
    vector.reset(seed=5)
    for _ in range(50):
        with pytest.raises(error, match=text):
            vector.send(actions)
    result = [array.copy() for array in vector.step(good_actions(vector))[:2]]

    vector.reset(seed=5)
    expected = vector.step(good_actions(vector))
    assert all(np.array_equal(mine, its) for mine, its in zip(result, expected, strict=False))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.int32, np.uint64])
def test_any_integer_dtype_and_any_order_in_memory_is_taken(vector, dtype):
    vector.reset(seed=5)
    actions = np.array([[0, 3], [1, 2], [2, 1], [0, 0]])
    expected = [array.copy() for array in vector.step(actions)[:2]]
    vector.reset(seed=5)
    found = vector.step(np.asfortranarray(actions.astype(dtype)))

    assert all(np.array_equal(mine, its) for mine, its in zip(expected, found, strict=False))


def test_a_closed_env_says_so_and_closes_again(envs):
    vector = puffer_vector.make(envs.Walk, num_envs=2)
    vector.reset(seed=0)
    vector.close()
    vector.close()

    assert vector.is_closed
    for call in (vector.reset, vector.recv, vector.drain, lambda: vector.step(good_actions(vector)), vector.get_state):
        with pytest.raises(puffer_vector.ClosedError, match="Make a new one"):
            call()


def test_what_cannot_reach_a_worker_is_refused_and_the_env_goes_on(envs):
    import threading

    with puffer_vector.make(envs.Walk, num_envs=4, backend="processes", num_workers=2) as vector:
        expected = vector.reset(seed=3)[0].copy()
        for _ in range(2):
            with pytest.raises(TypeError, match=r"what set_parameters passes .* must be picklable; got .*lock"):
                vector.set_parameters(level=threading.Lock())
            with pytest.raises(TypeError, match=r"what reset passes .* must be picklable"):
                vector.reset(seed=5, options={"lock": threading.Lock()})
        vector.step(good_actions(vector))
        vector.set_parameters(level=0)
        assert np.array_equal(vector.reset(seed=3)[0], expected)


def test_seeds_must_be_whole_and_not_negative(vector):
    with pytest.raises(ValueError, match="seed must be at least 0"):
        vector.reset(seed=-1)
    with pytest.raises(TypeError, match="seed must be an integer"):
        vector.reset(seed=0.5)
    vector.reset(seed=np.int64(3))


def test_box_actions_are_cast_within_their_kind(envs):
    from gymnasium import spaces

    from puffer_vector.actions import ActionWriter

    target = np.zeros((2, 3), np.float32)
    writer = ActionWriter(target, spaces.Box(-1, 1, (3,), np.float32))
    writer.write(np.full((2, 3), 0.5), 0, 2)
    assert (target == 0.5).all()
    writer.write(np.full((1, 3), 2.0, np.float32), 1, 2)
    assert (target[1] == 2).all()
    with pytest.raises(TypeError, match="actions must have float32"):
        writer.write(np.full((2, 3), 1j), 0, 2)
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        writer.write(np.zeros((3, 2), np.float32), 0, 2)


@pytest.mark.parametrize(("given", "wrong"), [(np.int64, 300), (np.int32, -129), (np.uint8, 200)])
def test_integer_box_actions_never_wrap(given, wrong):
    from gymnasium import spaces

    from puffer_vector.actions import ActionWriter

    target = np.zeros((2, 3), np.int8)
    writer = ActionWriter(target, spaces.Box(-100, 100, (3,), np.int8))
    writer.write(np.full((2, 3), 100, given), 0, 2)
    with pytest.raises(ValueError, match=f"actions must fit in int8; got {wrong}"):
        writer.write(np.full((2, 3), wrong, given), 0, 2)
    assert (target == 100).all()
