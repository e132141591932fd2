"""What happens when envs raise, hang or kill their worker: an error in the env's own words, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import cloudpickle
import numpy as np
import pytest

import puffer_vector
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
    from puffer_spaces import world_seed

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


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("exit", r"exit code 7"),
        ("segfault", r"exit code -11 \(SIGSEGV\)"),
        ("SystemExit", r"SystemExit\(3\)"),
    ],
)
def test_a_worker_that_dies_is_reported_with_the_world_it_stepped(envs, how, text):
    vector = puffer_vector.make(failing(envs, 1, fails_at=5, how=how), 4, "processes", 2)
    start = time.monotonic()
    with pytest.raises(WorkerError, match=text) as caught:
        step_until_error(vector)

    assert time.monotonic() - start < 5
    assert (caught.value.worker_index, caught.value.world, caught.value.step) == (0, 1, 5)


def test_a_killed_worker_is_noticed(envs):
    vector = puffer_vector.make(envs.Counter, 2, "processes", 2)
    vector.reset(seed=0)
    os.kill(vector._processes[1].pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"exit code -9 \(SIGKILL\)"):
        step_often(vector, 100)


def test_a_sleeping_worker_is_killed_after_the_timeout(envs):
    vector = puffer_vector.make(failing(envs, 2, fails_at=3, how="sleep"), 4, "processes", 2, timeout_s=0.5)
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"did not answer within timeout_s=0\.5 and was killed"):
        step_until_error(vector)
    assert time.monotonic() - start < 5


def test_a_stuck_thread_gives_an_error_and_is_left_alone(envs, native):
    import threading

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


@pytest.mark.parametrize("size", [10, 10_000_000])
def test_infos_of_any_size_arrive_and_unpicklable_ones_are_an_error(envs, size):
    class Telling(envs.Counter):
        def step(self, actions):
            info = {"data": bytes(size)} if self.count < 3 else {"lock": __import__("threading").Lock()}
            return (*super().step(actions)[:4], [info])

    vector = puffer_vector.make(lambda buf=None: Telling(buf=buf), 2, "processes", 2)
    vector.reset(seed=0)
    for _ in range(3):
        infos = vector.step(np.zeros(2, int))[4]
        assert [len(info["data"]) for info in infos] == [size, size]
    with pytest.raises(WorkerError, match="must be picklable"):
        vector.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("how", "backend", "kwargs"),
    [
        ("raise", "serial", {}),
        ("raise", "threads", {"num_workers": 2}),
        ("raise", "processes", {"num_workers": 2}),
        ("exit", "processes", {"num_workers": 2}),
        ("sleep", "processes", {"num_workers": 2, "timeout_s": 0.5}),
    ],
)
def test_a_failed_env_is_replaced_and_its_rows_say_so(envs, how, backend, kwargs):
    creators = [lambda n=n, buf=None: envs.Counter(n, fails_at=4 if n else None, how=how, buf=buf) for n in range(2)]
    with puffer_vector.make(creators, 2, backend, restart_failed=True, **kwargs) as vector:
        vector.reset(seed=0)
        seen = []
        for step in range(1, 7):
            _, rewards, terminals, truncations, infos = vector.step(np.full(2, step))
            seen.append((rewards[1], bool(terminals[1]), bool(truncations[1]), bool(vector.invalid[1]), len(infos)))
            if infos:
                assert infos[0]["restarted"]
                assert infos[0]["agent_index"] == 1
            assert rewards[0] == step
            assert not vector.invalid[0]

    assert seen[2] == (3, False, False, False, 0)
    assert seen[3] == (0, False, True, True, 1)
    assert seen[4] == (5, False, False, False, 0)


def test_an_env_that_fails_each_time_is_given_up(envs):
    creators = [envs.Counter, lambda buf=None: envs.Counter(fails_at=1, buf=buf)]
    with puffer_vector.make(creators, 2, restart_failed=True) as vector:
        vector.reset(seed=0)
        with pytest.raises(WorkerError, match="replaced 3 times"):
            step_often(vector, 10)


def test_a_creator_that_cannot_be_pickled_says_so(envs):
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match="must be picklable for processes"):
        puffer_vector.make(lambda buf=None: (lock, envs.Counter(buf=buf))[1], 2, "processes", 2)


def test_errors_survive_pickling():
    error = WorkerError("it failed", 1, world=2, seed=3, step=4, remote_traceback="text", flight_record="file")

    assert vars(cloudpickle.loads(cloudpickle.dumps(error))) == vars(error)


SCRIPT = """
import os, signal, sys, time
import gymnasium as gym, numpy as np
from puffer_spaces import PufferEnv
import puffer_vector

class Env(PufferEnv):
    def __init__(self, sleep_s=0.0, buf=None):
        self.single_observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.num_agents, self.sleep_s = 1, sleep_s
        super().__init__(buf)
    def reset(self, seed=None):
        return self.observations, []
    def step(self, actions):
        time.sleep(self.sleep_s)
        return self.observations, self.rewards, self.terminals, self.truncations, []

def main(context, end, sleep_s):
    received = []
    if end == "go on":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: received.append(number))
    vector = puffer_vector.make(Env, 2, "processes", 2, context=context, sleep_s=sleep_s)
    vector.reset(seed=0)
    print(*[process.pid for process in vector._processes], flush=True)
    if end == "raise":
        raise RuntimeError("the script fails")
    if end == "hang":
        vector.step(np.zeros(2, int))
    if end == "wait":
        time.sleep(60)
    if end == "go on":
        while not received:
            time.sleep(0.01)
        time.sleep(0.3)
        assert all(process.is_alive() for process in vector._processes)
        vector.step(np.zeros(2, int))
        print("stepped", flush=True)
"""


def run_script(tmp_path, call, guarded=True):
    guard = 'if __name__ == "__main__":\n    ' if guarded else ""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT) + f"\n{guard}{call}\n")
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def assert_gone(pids, limit_s=5.0):
    deadline = time.monotonic() + limit_s
    while any(os.path.exists(f"/proc/{pid}") and not is_zombie(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its script"
        time.sleep(0.05)


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("context", "end", "code"),
    [("forkserver", "raise", 1), ("spawn", "raise", 1), ("fork", "raise", 1), ("forkserver", "return", 0)],
)
def test_a_script_that_ends_without_close_leaves_no_worker(tmp_path, context, end, code):
    script = run_script(tmp_path, f"main({context!r}, {end!r}, 0.0)")
    out, err = script.communicate(timeout=30)

    assert script.returncode == code, err
    assert ("the script fails" in err) == (end == "raise")
    assert "resource_tracker" not in err
    assert_gone([int(pid) for pid in out.split()])


@pytest.mark.parametrize(
    ("context", "sent"),
    [
        ("forkserver", signal.SIGKILL),
        ("spawn", signal.SIGKILL),
        ("fork", signal.SIGKILL),
        ("forkserver", signal.SIGTERM),
    ],
)
def test_workers_end_when_their_parent_is_killed(tmp_path, context, sent):
    script = run_script(tmp_path, f"main({context!r}, 'hang', 60.0)")
    pids = [int(pid) for pid in script.stdout.readline().split()]
    time.sleep(0.2)
    os.kill(script.pid, sent)
    script.communicate(timeout=30)

    assert_gone(pids)


@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_to_the_whole_group_is_the_callers_alone(tmp_path, context, sent):
    script = run_script(tmp_path, f"main({context!r}, 'go on', 0.0)")
    pids = [int(pid) for pid in script.stdout.readline().split()]
    for process in (script.pid, *pids):
        os.kill(process, 0)
    os.killpg(script.pid, sent)
    out, err = script.communicate(timeout=30)

    assert (script.returncode, out) == (0, "stepped\n"), err
    assert_gone(pids)


def test_an_interrupt_of_the_whole_group_ends_a_step_that_hangs(tmp_path):
    script = run_script(tmp_path, "main(None, 'hang', 60.0)")
    pids = [int(pid) for pid in script.stdout.readline().split()]
    time.sleep(0.3)
    start = time.monotonic()
    os.killpg(script.pid, signal.SIGINT)
    _, err = script.communicate(timeout=30)

    assert time.monotonic() - start < 5
    assert "KeyboardInterrupt" in err
    assert script.returncode != 0
    assert_gone(pids)


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_a_script_without_a_guard_fails_with_a_sentence_that_names_it(tmp_path, context):
    script = run_script(tmp_path, f"main({context!r}, 'return', 0.0)", guarded=False)
    _, err = script.communicate(timeout=30)

    assert script.returncode == 1
    assert 'if __name__ == "__main__":' in err


def test_many_vector_envs_in_one_process_leave_nothing(envs):
    for _ in range(8):
        with puffer_vector.make(envs.Counter, 2, "processes", 2) as vector:
            vector.reset(seed=0)
            vector.step(np.zeros(2, int))


def test_forgotten_vector_envs_close_themselves(envs):
    vector = puffer_vector.make(envs.Counter, 2, "processes", 2)
    vector.reset(seed=0)
    del vector
