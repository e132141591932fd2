"""The record of the last actions, and its replay in this process."""

import threading

import numpy as np
import pytest

import puffer_vector
from puffer_vector import WorkerError, flight, recent

BACKENDS = [("serial", None), ("threads", 2), ("processes", 2)]


@pytest.fixture
def summing(envs):
    """A creator of walkers of which one fails when the actions it got add up to a limit, so that each one counts."""

    class Summing(envs.Walk):
        def __init__(self, limit=10**9, buf=None):
            super().__init__(buf=buf)
            self.limit, self.total = limit, 0.0

        def step(self, actions):
            self.total = self.total * 0.9 + float(np.sum(actions)) + float(self.observations[0, 0])
            if self.num_steps >= 5 and self.total > self.limit:
                raise ArithmeticError(f"total {self.total!r}")
            return super().step(actions)

        def get_state(self):
            import pickle

            return pickle.dumps((self.total, super().get_state()))

        def set_state(self, state):
            import pickle

            self.total, state = pickle.loads(state)
            super().set_state(state)

    return Summing


def fly(creators, backend, workers, tmp_path, before=lambda vector: vector.reset(seed=3)):
    """Step until the failure and return its message."""
    vector = puffer_vector.make(creators, 4, backend, workers, flight_record=tmp_path)
    before(vector)
    rng = np.random.default_rng(0)
    with pytest.raises(WorkerError) as caught:
        step_often(vector, rng)
    return caught.value


def step_often(vector, rng, times=800):
    for _ in range(times):
        vector.step(rng.integers(0, 3, (vector.agents_per_batch, 2)))


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
@pytest.mark.parametrize("capacity", [1 << 16, 16])
def test_a_failure_happens_again_in_a_replay(summing, backend, workers, capacity, tmp_path, monkeypatch):
    monkeypatch.setattr(flight, "MAX_CAPACITY", capacity)
    creators = [lambda n=n, buf=None: summing(40.0 if n == 2 else 1e9, buf=buf) for n in range(4)]

    error = fly(creators, backend, workers, tmp_path)

    assert "ArithmeticError" in error.reason
    assert error.flight_record in str(error)
    with pytest.raises(WorkerError) as again:
        puffer_vector.replay(error.flight_record)
    assert again.value.reason == error.reason
    assert (again.value.step, again.value.world, again.value.seed) == (error.step, error.world, error.seed)


def test_a_reset_without_a_seed_is_repeated_from_a_snapshot(summing, tmp_path):
    def before(vector):
        vector.reset(seed=3)
        vector.step(np.ones((4, 2), int))
        vector.reset()
        vector.step(np.ones((4, 2), int))
        vector.set_parameters(level=2)

    error = fly([lambda n=n, buf=None: summing(40.0, buf=buf) for n in range(4)], "serial", None, tmp_path, before)

    with pytest.raises(WorkerError) as again:
        puffer_vector.replay(error.flight_record)
    assert again.value.reason == error.reason


def test_a_worker_that_crashes_leaves_its_record(envs, tmp_path):
    creators = [lambda n=n, buf=None: envs.Counter(n, fails_at=7 if n else None, how="exit", buf=buf) for n in range(2)]
    vector = puffer_vector.make(creators, 2, "processes", 2, flight_record=tmp_path)
    vector.reset(seed=0)
    with pytest.raises(WorkerError) as caught:
        step_counters(vector)

    assert puffer_vector.replay(caught.value.flight_record, slot=0) == 7
    assert caught.value.worker_index == 1


def step_counters(vector, times=20):
    for _ in range(times):
        vector.step(np.zeros(2, int))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(recent, "FOLDER", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("batch_size", [4, 2])
def test_processes_keep_a_record_unasked_and_write_it_only_after_a_failure(summing, temporary, batch_size):
    creators = [lambda n=n, buf=None: summing(40.0 if n == 2 else 1e9, buf=buf) for n in range(4)]
    with puffer_vector.make(creators, 4, "processes", 2, batch_size=batch_size) as vector:
        vector.reset(seed=3)
        vector.step(np.ones((batch_size, 2), int))
        vector.close()
    assert list(temporary.iterdir()) == []

    vector = puffer_vector.make(creators, 4, "processes", 2, batch_size=batch_size)
    vector.reset(seed=3)
    rng = np.random.default_rng(0)
    with pytest.raises(WorkerError) as caught:
        step_often(vector, rng)
    error = caught.value
    assert error.flight_record in str(error)
    with pytest.raises(WorkerError) as again:
        puffer_vector.replay(error.flight_record)
    assert (again.value.reason, again.value.step) == (error.reason, error.step)


@pytest.mark.parametrize("what", ["capacity", "parameters", "reset", "size"])
def test_no_record_is_written_that_could_not_be_repeated(envs, temporary, monkeypatch, what):
    monkeypatch.setattr(flight, "MAX_CAPACITY", 6 if what == "capacity" else 100)
    monkeypatch.setattr(recent, "MAX_HEADER_BYTES", 10 if what == "size" else 1 << 20)

    class Breaks(envs.Walk):
        def step(self, actions):
            assert actions[0, 0] != 2
            return super().step(actions)

    vector = puffer_vector.make(lambda buf=None: Breaks(buf=buf), 2, "processes", 2)
    vector.reset(seed=0)
    if what == "parameters":
        vector.set_parameters(level=1)
    if what == "reset":
        vector.reset()
    for _ in range(8):
        vector.step(np.ones((2, 2), int))
    with pytest.raises(WorkerError) as caught:
        vector.step(np.full((2, 2), 2))
    assert caught.value.flight_record is None
    assert list(temporary.iterdir()) == []


def test_what_cannot_be_recorded_is_refused(envs, tmp_path):
    lock = threading.Lock()
    with (
        puffer_vector.make(lambda buf=None: (lock, envs.Walk(buf=buf))[1], flight_record=tmp_path) as vector,
        pytest.raises(TypeError, match="must be picklable for a flight record"),
    ):
        vector.reset(seed=0)


def test_a_ring_that_lost_its_beginning_says_so(envs, tmp_path, monkeypatch):
    monkeypatch.setattr(flight, "MAX_CAPACITY", 4)
    vector = puffer_vector.make(lambda buf=None: envs.Counter(fails_at=9, buf=buf), 2, flight_record=tmp_path)
    vector.reset(seed=0)
    with pytest.raises(WorkerError) as caught:
        step_counters(vector)
    with pytest.raises(ValueError, match="the last 4 of 9 steps of envs without get_state"):
        puffer_vector.replay(caught.value.flight_record)


def test_a_record_that_nobody_needs_is_deleted(envs, tmp_path):
    with puffer_vector.make(envs.Walk, 2, flight_record=tmp_path) as vector:
        vector.reset(seed=0)
        vector.step(np.ones((2, 2), int))
        assert len(list(tmp_path.iterdir())) == 1

    assert list(tmp_path.iterdir()) == []
