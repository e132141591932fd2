"""Batches smaller than the whole: whose rows they are, in which order they come, and what an interrupt leaves."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import puffer_vector


class SignalError(Exception):
    """Raised by the signal handler of a test."""


def creators(envs, num_envs, max_delay_s=0.0):
    delays = np.random.default_rng(0).uniform(0, max_delay_s, num_envs)
    return [
        lambda n=n, delay=delay, buf=None: envs.Counter(n, delay_s=delay, buf=buf) for n, delay in enumerate(delays)
    ]


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize(("order", "batch"), [("fixed", 4), ("first_come", 4), ("first_come", 3)])
def test_ids_belong_to_rows_and_every_env_is_served_in_its_own_time(envs, backend, order, batch):
    with puffer_vector.make(creators(envs, 8, 0.003), 8, backend, 8, batch, order=order) as vector:
        vector.async_reset(0)
        counts = np.full(8, -1)
        sent = np.full(8, -1)
        for round_number in range(200):
            observations, *_, agent_ids, _ = vector.recv()
            numbers, steps, actions = observations.T.astype(int)
            assert numbers.tolist() == agent_ids.tolist() == vector.world_ids.tolist()
            assert steps.tolist() == (counts[numbers] + 1).tolist()
            assert actions.tolist() == sent[numbers].tolist()
            counts[numbers] += 1
            sent[numbers] = (round_number + numbers) % 1000
            vector.send(sent[numbers])
        vector.drain()

    assert counts.min() > 20
    assert counts.sum() == 200 * batch - 8


def test_batches_come_in_turn_in_fixed_order(envs):
    with puffer_vector.make(creators(envs, 6, 0.002), 6, "threads", 6, 2) as vector:
        vector.async_reset(0)
        seen = []
        for _ in range(9):
            seen.append(vector.recv()[5].tolist())
            vector.send(np.zeros(2, int))

    assert seen == [[0, 1], [2, 3], [4, 5]] * 3


def test_rows_of_other_batches_stay_while_one_is_worked_on(envs):
    with puffer_vector.make(creators(envs, 4), 4, "processes", 2, 2) as vector:
        vector.async_reset(0)
        observations = vector.recv()[0]
        vector.send(np.zeros(2, int))
        second = vector.recv()[0]
        vector.drain()

        assert second[:, 1].tolist() == [0, 0]
        assert observations[:, 1].tolist() == [1, 1]
        vector.send(np.zeros(2, int))
        assert vector.recv()[0] is observations


def test_surplus_envs_and_envs_per_worker(envs):
    with puffer_vector.make(
        envs.Counter, 4, "threads", surplus_envs=4, envs_per_worker=2, order="first_come"
    ) as vector:
        assert (vector.num_envs, vector.batch_size, vector.num_workers) == (8, 4, 4)
        vector.reset(seed=0)
        for _ in range(20):
            vector.step(np.zeros(4, int))


def test_a_reset_in_between_starts_all_envs_again(envs):
    with puffer_vector.make(creators(envs, 4, 0.002), 4, "processes", 4, 2) as vector:
        vector.reset(seed=0)
        for _ in range(5):
            vector.step(np.zeros(2, int))
        observations, _ = vector.reset(seed=0)
        assert observations[:, 1].tolist() == [0, 0]
        vector.send(np.zeros(2, int))
        assert vector.recv()[0][:, 1].tolist() == [0, 0]


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_an_interrupt_while_waiting_loses_no_result(envs, native, backend):
    def interrupt(*_):
        raise SignalError

    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        if backend == "processes":
            env = lambda buf=None: envs.Counter(delay_s=0.4, buf=buf)  # noqa: E731
            vector = puffer_vector.make(env, 2, backend, 2)
        else:
            vector = puffer_vector.make(native, 256, backend, 2, timeout_s=60.0, spin=4_000_000)
        with vector:
            vector.reset(seed=0)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            start = time.monotonic()
            with pytest.raises(SignalError):
                vector.step(np.ones(vector.agents_per_batch, int))
            assert time.monotonic() - start < 5
            assert (vector.recv()[1] == 1).all()
            vector.step(np.zeros(vector.agents_per_batch, int))
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_a_worker_process_gives_numerical_libraries_one_thread(envs, monkeypatch):
    class Telling(envs.Counter):
        def step(self, actions):
            return (*super().step(actions)[:4], [{"threads": os.environ.get("OMP_NUM_THREADS")}])

    def threads_of_a_worker():
        with puffer_vector.make(lambda buf=None: Telling(buf=buf), 1, "processes", context="spawn") as vector:
            vector.reset(seed=0)
            return vector.step(np.zeros(1, int))[4][0]["threads"]

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_of_a_worker() == "1"
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_of_a_worker() == "3"


def test_forgotten_threads_end(envs):
    vector = puffer_vector.make(creators(envs, 4), 4, "threads", 2)
    vector.reset(seed=0)
    del vector
