"""Odd ends: workers that nobody waits for, closing at any time and from anywhere, and forks of the caller."""

import os
import threading
import time

import numpy as np
import pytest

import puffer_vector
from puffer_vector import ClosedError, WorkerError

BACKENDS = [("serial", None), ("threads", 2), ("processes", 2)]


def failing(envs, index, count=4, **kwargs):
    """Creators of which the one at `index` fails."""
    return [lambda n=n, buf=None: envs.Counter(n, buf=buf, **(kwargs if n == index else {})) for n in range(count)]


def zeros(vector):
    return np.zeros(vector.agents_per_batch, int)


def step_often(vector, times):
    for _ in range(times):
        vector.step(zeros(vector))
        vector.episodes()


def serve(vector, limit_s):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        vector.recv()
        vector.send(zeros(vector))
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("backend", "how", "timeout_s", "text"),
    [
        ("processes", "exit", None, "exit code 7"),
        ("processes", "sleep", 0.3, r"timeout_s=0\.3"),
        ("threads", "pause", 0.3, r"timeout_s=0\.3"),
    ],
)
def test_a_worker_that_fails_while_others_serve_every_batch_is_noticed(envs, backend, how, timeout_s, text):
    release = threading.Event()

    class Pausing(envs.Counter):
        def fail(self):
            release.wait()

    creators = failing(envs, 1, fails_at=2, how=how)
    if how == "pause":
        creators[1] = lambda buf=None: Pausing(1, fails_at=2, buf=buf)
    vector = puffer_vector.make(creators, 4, backend, 4, batch_size=1, order="first_come", timeout_s=timeout_s)
    vector.async_reset(0)
    with pytest.raises(WorkerError, match=text):
        serve(vector, 20)
    release.set()


@pytest.mark.parametrize("where", ["thread in step", "close"])
def test_workers_that_do_not_end_by_themselves_are_ended_together(envs, where):
    class Staying(envs.Counter):
        def step(self, actions):
            if where == "thread in step":
                threading.Thread(target=time.sleep, args=(600,)).start()
            return super().step(actions)

        def close(self):
            if where == "close" and self.count:
                time.sleep(600)

    vector = puffer_vector.make([lambda buf=None: Staying(buf=buf)] * 6, 6, "processes", 6)
    vector.reset(seed=0)
    vector.step(zeros(vector))
    start = time.monotonic()
    vector.close()

    assert time.monotonic() - start < 4.5


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_a_new_env_that_cannot_be_reset_ends_the_restarts(envs, backend, workers, tmp_path):
    class Broken(envs.Counter):
        def reset(self, seed=None):
            if (tmp_path / "failed").exists():
                raise LookupError("boom in the second reset")
            return super().reset(seed)

        def fail(self):
            (tmp_path / "failed").touch()
            super().fail()

    with puffer_vector.make(
        lambda buf=None: Broken(fails_at=2, buf=buf), 2, backend, workers, restart_failed=True
    ) as vector:
        vector.reset(seed=0)
        with pytest.raises(WorkerError, match="reset of a new <lambda> raised LookupError: boom in the second reset"):
            step_often(vector, 4)
        assert vector.is_closed


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_an_exception_in_episodes_arrives_with_its_env(envs, backend, workers):
    class Broken(envs.Counter):
        def episodes(self):
            raise LookupError("boom in episodes")

    creators = [envs.Counter, lambda buf=None: Broken(1, length=2, buf=buf)]
    vector = puffer_vector.make(creators, 2, backend, workers)
    vector.reset(seed=0)
    with pytest.raises(WorkerError, match="episodes of <lambda> raised LookupError: boom in episodes") as caught:
        step_often(vector, 3)
    assert caught.value.world == 1
    assert vector.is_closed


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_every_env_is_closed_though_one_raises(envs, backend):
    closed = []

    class Noting(envs.Counter):
        def close(self):
            closed.append(self.number)
            if self.number == 1:
                raise LookupError("boom in close")

    creators = [lambda n=n, buf=None: Noting(n, buf=buf) for n in range(4)]
    vector = puffer_vector.make(creators, 4, backend, None if backend == "serial" else 2)
    closed.clear()
    with pytest.raises(LookupError, match="boom in close"):
        vector.close()
    vector.close()

    assert sorted(closed) == [0, 1, 2, 3]


def test_a_report_that_cannot_be_sent_says_why(envs):
    def telling(buf=None):
        env = envs.Counter(buf=buf)
        env.metadata = {"lock": threading.Lock()}
        return env

    with pytest.raises(WorkerError, match=r"cannot pickle '_thread\.lock' object"):
        puffer_vector.make(telling, 2, "processes", 2)


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_closing_in_another_thread_ends_a_step(envs, backend, workers):
    vector = puffer_vector.make(lambda buf=None: envs.Counter(delay_s=0.3, buf=buf), 2, backend, workers)
    vector.reset(seed=0)
    closing = threading.Timer(0.1, vector.close)
    closing.start()
    with pytest.raises((ClosedError, WorkerError)):
        step_often(vector, 5)
    closing.join()
    assert vector.is_closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["native", "threads", "processes"])
def test_a_fork_of_the_caller_leaves_the_workers_alone(envs, native, kind):
    if kind == "native":
        vector = puffer_vector.make(native, 256, "threads", 2)
    else:
        vector = puffer_vector.make(envs.Counter, 2, kind, 2)
    vector.reset(seed=0)
    vector.step(zeros(vector))
    child = os.fork()
    if child == 0:
        try:
            vector.step(zeros(vector))
        except ClosedError as error:
            vector.close()
            del vector
            os._exit(5 if "fork" in str(error) else 6)
        os._exit(7)
    deadline = time.monotonic() + 10
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.02)
    if not ended[0]:
        os.kill(child, 9)
        ended = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(ended[1]) == 5
    vector.step(zeros(vector))
    vector.close()


def test_flags_are_those_that_the_envs_set(envs):
    ends = {0: [3, 7, 8], 1: [5, 6]}

    class Ending(envs.Counter):
        def step(self, actions):
            result = super().step(actions)
            self.terminals[:] = self.count in ends[self.number]
            return result

    for backend, workers in BACKENDS:
        creators = [lambda n=n, buf=None: Ending(n, buf=buf) for n in range(2)]
        with puffer_vector.make(creators, 2, backend, workers) as vector:
            vector.reset(seed=0)
            seen = np.stack([vector.step(zeros(vector))[2].copy() for _ in range(16)])
        found = {env: (np.flatnonzero(seen[:, env]) + 1).tolist() for env in ends}
        assert found == ends


def test_a_vector_env_of_ones_own_may_be_reset_and_step_alone():
    class Own(puffer_vector.VectorEnv):
        def __init__(self):
            super().__init__()

        def reset(self, seed=None, options=None):
            return np.zeros(1), []

        def step(self, actions):
            return np.zeros(1), actions, actions, actions, []

    with Own() as vector:
        assert vector.reset()[1] == vector.step(np.zeros(1))[4] == []
        assert not vector.is_closed
        with pytest.raises(NotImplementedError):
            vector.recv()
