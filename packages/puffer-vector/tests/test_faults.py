"""What happens when envs raise, hang or kill their worker: an error in the env's own words, and nothing left behind."""

import os
import signal
import threading
import time
from dataclasses import dataclass

import cloudpickle
import numpy as np
import pytest

import puffer_vector
from puffer_spaces import world_seed
from puffer_vector import WorkerError

BACKENDS = [("serial", None), ("threads", 2), ("processes", 2)]


def failing(envs, index, **kwargs):
    """Four creators, of which the one at `index` fails."""
    return [lambda n=n, buf=None: envs.Counter(n, buf=buf, **(kwargs if n == index else {})) for n in range(4)]


def step_until_error(vector, limit=20):
    vector.reset(seed=3)
    step_often(vector, limit)


def step_often(vector, times):
    for _ in range(times):
        vector.step(np.zeros(vector.agents_per_batch, int))


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_an_exception_in_step_arrives_with_its_type_text_world_seed_and_step(envs, backend, workers):
    vector = puffer_vector.make(failing(envs, 3, fails_at=10), 4, backend, workers)
    with pytest.raises(WorkerError, match="step of <lambda> raised ArithmeticError: boom in step of 3") as caught:
        step_until_error(vector)

    error = caught.value
    assert (error.world, error.step, error.worker_index) == (3, 10, (workers and 1) or 0)
    assert error.seed == world_seed(3, 3)
    assert "in fail" in error.remote_traceback
    assert "in fail" in str(error)
    assert vector.is_closed
    with pytest.raises(puffer_vector.ClosedError, match="boom in step"):
        vector.reset()


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_an_exception_in_reset_arrives(envs, backend, workers):
    with (
        puffer_vector.make(failing(envs, 2, fails_at="reset"), 4, backend, workers) as vector,
        pytest.raises(WorkerError, match="raised KeyError: 'boom in reset'") as caught,
    ):
        vector.reset(seed=0)
    assert caught.value.world == 2


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_an_exception_in_a_constructor_arrives_before_make_returns(envs, backend, workers):
    def broken(buf=None):
        raise LookupError("boom in constructor")

    start = time.monotonic()
    with pytest.raises(WorkerError, match="building broken raised LookupError: boom in constructor"):
        puffer_vector.make([envs.Counter] * 3 + [broken], 4, backend, workers)
    assert time.monotonic() - start < 10


def test_a_slow_constructor_does_not_hide_the_failure_of_another(envs):
    def slow(buf=None):
        time.sleep(8)
        return envs.Counter(buf=buf)

    def broken(buf=None):
        raise LookupError("boom in constructor")

    def dying(buf=None):
        os._exit(5)

    for other, text in ((broken, "boom in constructor"), (dying, "exit code 5 before it was ready")):
        start = time.monotonic()
        with pytest.raises(WorkerError, match=text) as caught:
            puffer_vector.make([slow, other], 2, "processes", 2)
        assert time.monotonic() - start < 6
        assert caught.value.worker_index == 1


@dataclass
class Fault:
    """A way to fail, and what the error about it says; Ray does not tell how an actor ended."""

    env: dict
    text: str
    ray_text: str = ""
    timeout_s: float | None = None

    def creators(self, envs):
        """Two creators, of which the second fails."""
        return [lambda n=n, buf=None: envs.Counter(n, buf=buf, **(self.env if n else {})) for n in range(2)]


LOST = "its actor ended: ActorDiedError"
IN_STEP = {
    "exception in step": Fault({"fails_at": 5}, "step of <lambda> raised ArithmeticError: boom in step of 1"),
    "exit": Fault({"fails_at": 5, "how": "exit"}, "exit code 7", LOST),
    "segfault": Fault({"fails_at": 5, "how": "segfault"}, r"exit code -11 \(SIGSEGV\)", LOST),
    "SIGKILL": Fault({"fails_at": 5, "how": "SIGKILL"}, r"exit code -9 \(SIGKILL\)", LOST),
    "sleep": Fault({"fails_at": 5, "how": "sleep"}, r"within timeout_s=1\.0 and was killed", timeout_s=1.0),
}
FAULTS = {
    **IN_STEP,
    "exception in constructor": Fault({"fails_at": "init"}, "raised LookupError: boom in constructor"),
    "sleep in constructor": Fault({"fails_at": "init", "how": "sleep"}, r"not ready within 1\.0 s", timeout_s=1.0),
    "exception in reset": Fault({"fails_at": "reset"}, "reset of <lambda> raised KeyError: 'boom in reset'"),
    "SystemExit": Fault({"fails_at": 5, "how": "SystemExit"}, r"SystemExit\(3\)"),
    "unpicklable info": Fault({"fails_at": 5, "how": "unpicklable info"}, "must be picklable: cannot pickle"),
}


def each(faults, quick_with_ray):
    """Parametrise over faults with processes, and with Ray, where most are left to the long session."""
    rows = [pytest.param("processes", fault, id=f"processes-{name}") for name, fault in faults.items()]
    for name, fault in faults.items():
        marks = [] if name in quick_with_ray else [pytest.mark.soak]
        rows.append(pytest.param("ray", fault, id=f"ray-{name}", marks=marks))
    return pytest.mark.parametrize(("backend", "fault"), rows)


@each(FAULTS, quick_with_ray=["exception in step", "exit", "sleep"])
def test_a_fault_ends_in_an_error_in_the_words_of_the_worker(envs, backend, fault):
    with pytest.raises(WorkerError, match=(backend == "ray" and fault.ray_text) or fault.text) as caught:
        step_until_error(puffer_vector.make(fault.creators(envs), 2, backend, 2, timeout_s=fault.timeout_s))

    error, when = caught.value, fault.env["fails_at"]
    assert (error.worker_index, error.step) == (1, 5 if when == 5 else 0)
    assert (error.world, error.seed) == ((None, None) if when == "init" else (1, world_seed(3, 1)))
    assert bool(error.remote_traceback) == (fault.ray_text == "" and fault.timeout_s is None)


@each(IN_STEP, quick_with_ray=["exit"])
def test_a_fault_ends_in_a_new_env_where_that_is_asked_for(envs, backend, fault):
    settings = {"restart_failed": True, "timeout_s": fault.timeout_s}
    with puffer_vector.make(fault.creators(envs), 2, backend, 2, **settings) as vector:
        check_restart(vector)


def check_restart(vector):
    """Check the rows of two envs, of which the second fails in its fifth step."""
    vector.reset(seed=0)
    for step in range(1, 8):
        observations, rewards, terminals, truncations, infos = vector.step(np.full(2, step))
        fails = step == 5
        assert rewards.tolist() == [step, 0 if fails else step]
        assert observations[:, 1].tolist() == [step, step if step < 5 else step - 5]
        assert not terminals.any()
        assert truncations.tolist() == vector.invalid.tolist() == [False, fails]
        assert [(info["restarted"], info["agent_index"]) for info in infos] == [(True, 1)] * fails


def test_a_killed_worker_is_noticed(envs):
    vector = puffer_vector.make(envs.Counter, 2, "processes", 2)
    vector.reset(seed=0)
    os.kill(vector._processes[1].pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"exit code -9 \(SIGKILL\)"):
        step_often(vector, 100)


def test_what_would_end_a_thread_is_an_error(envs):
    fault = FAULTS["SystemExit"]
    vector = puffer_vector.make(fault.creators(envs), 2, "threads", 2, timeout_s=60.0)
    with pytest.raises(WorkerError, match=fault.text) as caught:
        step_until_error(vector)
    assert (caught.value.world, caught.value.step) == (1, 5)


def test_a_stuck_thread_gives_an_error_and_is_left_alone(envs, native):
    release = threading.Event()

    class Stuck(envs.Counter):
        def fail(self):
            release.wait()

    creators = [envs.Counter, lambda buf=None: Stuck(fails_at=2, buf=buf)]
    vector = puffer_vector.make(creators, 2, "threads", 2, timeout_s=0.2)
    vector.reset(seed=0)
    with pytest.raises(WorkerError, match=r"within timeout_s=0\.2"):
        step_often(vector, 3)
    assert vector.is_closed
    release.set()

    slow = puffer_vector.make(native, 64, "threads", 2, timeout_s=0.05, spin=20_000_000)
    slow.reset(seed=0)
    with pytest.raises(WorkerError, match=r"within timeout_s=0\.05"):
        slow.step(np.zeros(64, int))


@pytest.mark.parametrize(("backend", "size"), [("processes", 10), ("processes", 10_000_000), ("ray", 10_000_000)])
def test_infos_of_any_size_arrive(envs, backend, size):
    creators = [lambda n=n, buf=None: envs.Counter(n, fails_at=n + 1, how=size, buf=buf) for n in range(2)]
    with puffer_vector.make(creators, 2, backend, 2) as vector:
        vector.reset(seed=0)
        for step in range(4):
            infos = vector.step(np.zeros(2, int))[4]
            assert [(info["agent_index"], len(info["data"])) for info in infos] == [(step, size)] * (step < 2)


@pytest.mark.parametrize(("backend", "workers"), BACKENDS[:2])
def test_an_env_of_this_process_is_replaced_and_need_not_pickle(envs, backend, workers):
    fault = IN_STEP["exception in step"]
    with puffer_vector.make(fault.creators(envs), 2, backend, workers, restart_failed=True) as vector:
        check_restart(vector)

    fault = FAULTS["unpicklable info"]
    with puffer_vector.make(fault.creators(envs), 2, backend, workers) as vector:
        vector.reset(seed=0)
        infos = [vector.step(np.zeros(2, int))[4] for _ in range(6)]
    assert [len(given) for given in infos] == [0, 0, 0, 0, 1, 0]


def test_an_env_that_fails_each_time_is_given_up(envs):
    creators = [envs.Counter, lambda buf=None: envs.Counter(fails_at=1, buf=buf)]
    with puffer_vector.make(creators, 2, restart_failed=True) as vector:
        vector.reset(seed=0)
        with pytest.raises(WorkerError, match="replaced 3 times"):
            step_often(vector, 10)


def test_a_creator_that_cannot_be_pickled_says_so(envs):
    lock = threading.Lock()
    with pytest.raises(TypeError, match="must be picklable for processes"):
        puffer_vector.make(lambda buf=None: (lock, envs.Counter(buf=buf))[1], 2, "processes", 2)


def test_errors_survive_pickling():
    error = WorkerError("it failed", 1, world=2, seed=3, step=4, remote_traceback="text", flight_record="file")

    assert vars(cloudpickle.loads(cloudpickle.dumps(error))) == vars(error)


def test_many_vector_envs_in_one_process_leave_nothing(envs):
    for _ in range(20):
        with puffer_vector.make(envs.Counter, 2, "processes", 2) as vector:
            vector.reset(seed=0)
            vector.step(np.zeros(2, int))


def test_forgotten_vector_envs_close_themselves(envs):
    vector = puffer_vector.make(envs.Counter, 2, "processes", 2)
    vector.reset(seed=0)
    del vector
