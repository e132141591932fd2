"""Long runs and many repetitions: nothing grows with them, and more workers do more work."""

import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

import puffer_vector

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

BACKENDS = [("serial", None), ("threads", 2), ("processes", 2)]


@pytest.fixture
def used():
    """What this process and all that it started hold, in all."""
    psutil = pytest.importorskip("psutil")
    this = psutil.Process()

    def measure():
        found = SimpleNamespace(processes=0, descriptors=0, threads=0, maps=0, resident_mb=0.0, cpu_s=0.0)
        for process in [this, *this.children(recursive=True)]:
            found.processes += 1
            found.descriptors += process.num_fds()
            found.threads += process.num_threads()
            found.maps += len(process.memory_maps(grouped=False))
            found.resident_mb += process.memory_info().rss / 2**20
            found.cpu_s += sum(process.cpu_times()[:2])
        return found

    return measure


def growth(before, after):
    return {name: getattr(after, name) - value for name, value in vars(before).items()}


def step_often(vector, times):
    actions = np.zeros((vector.agents_per_batch, *vector.single_action_space.shape), np.int32)
    for _ in range(times):
        vector.step(actions)


@pytest.mark.parametrize(("kind", "backend"), [("walk", "threads"), ("walk", "processes"), ("native", "threads")])
def test_a_thousand_vector_envs_one_after_the_other_leave_nothing(envs, native, used, kind, backend):
    env, num_envs = {"walk": (envs.Walk, 4), "native": (native, 256)}[kind]

    def open_and_close(times):
        for _ in range(times):
            with puffer_vector.make(env, num_envs, backend, 2) as vector:
                vector.reset(seed=0)
                step_often(vector, 3)
                vector.episodes()
        return used()

    before = open_and_close(50)
    grown = growth(before, open_and_close(1000))

    assert max(grown["processes"], grown["descriptors"], grown["threads"]) <= 0
    assert grown["maps"] < 50
    assert grown["resident_mb"] < 8


def test_a_hundred_lost_workers_leave_nothing(envs, used):
    env = lambda buf=None: envs.Counter(fails_at=2, how="exit", buf=buf)  # noqa: E731
    with puffer_vector.make([env, envs.Counter], 2, "processes", 2, restart_failed=True) as vector:
        vector.reset(seed=0)
        step_often(vector, 20)
        before = used()
        step_often(vector, 200)
        grown = growth(before, used())

    assert max(grown["processes"], grown["descriptors"], grown["threads"]) <= 0
    assert grown["resident_mb"] < 8


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_two_hundred_thousand_steps_with_infos_take_no_more_memory(envs, used, backend, workers):
    class Telling(envs.Counter):
        def step(self, actions):
            return (*super().step(actions)[:4], [{"count": self.count, "text": "x" * 100}])

    with puffer_vector.make(lambda buf=None: Telling(length=7, buf=buf), 2, backend, workers) as vector:
        vector.reset(seed=0)
        step_often(vector, 10_000)
        before = used()
        step_often(vector, 200_000)
        grown = growth(before, used())

    assert grown["resident_mb"] < 20
    assert max(grown["processes"], grown["descriptors"], grown["threads"]) <= 0


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_idle_workers_use_no_cpu(envs, used, backend, workers):
    with puffer_vector.make(envs.Walk, 4, backend, workers) as vector:
        vector.reset(seed=0)
        step_often(vector, 1000)
        time.sleep(0.1)
        before = used()
        time.sleep(10)
        grown = growth(before, used())

    assert grown["cpu_s"] < 0.2


def steps_per_s(vector, times):
    """Return the highest rate of five runs."""
    vector.reset(seed=0)
    step_often(vector, times)
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        step_often(vector, times)
        rates.append(times * vector.num_envs / (time.perf_counter() - start))
    return max(rates)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_two_processes_step_a_costly_env_at_least_one_and_a_half_times_as_fast(envs):
    class Costly(envs.Counter):
        def step(self, actions):
            end = time.thread_time() + 0.001
            while time.thread_time() < end:
                pass
            return super().step(actions)

    env = lambda buf=None: Costly(buf=buf)  # noqa: E731
    with puffer_vector.make(env, 4) as serial, puffer_vector.make(env, 4, "processes", 2) as processes:
        assert steps_per_s(processes, 100) > 1.5 * steps_per_s(serial, 100)


def test_a_native_env_without_work_steps_half_a_million_times_a_second(native):
    with puffer_vector.make(native, 64) as vector:
        assert steps_per_s(vector, 5_000) > 500_000
