"""What a script leaves that ends, is interrupted or killed while it has workers: none of them, and no shared memory."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
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
    assert err.splitlines()[-1:] == (["RuntimeError: the script fails"] if end == "raise" else [])
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

    assert script.communicate(timeout=30) == ("", "")
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
