"""Workers that do not come up, and what the errors say; the fork server; forks of the caller."""

import os
import subprocess
import sys

import numpy as np
import pytest

import puffer_spaces
import puffer_vector

BACKENDS = [("serial", None), ("threads", 2), ("processes", 2)]


@pytest.mark.parametrize(("backend", "workers"), BACKENDS)
def test_what_is_not_installed_or_not_registered_is_said_as_it_is(backend, workers):
    def foreign():
        return type("Foreign", (), {"reset": print, "step": print})()

    def unknown():
        return puffer_spaces.make_env("no-such-env")

    with pytest.raises(puffer_spaces.MissingAdapter, match="pip install"):
        puffer_vector.make(foreign, 2, backend, workers)
    with pytest.raises(puffer_spaces.UnknownEnvError, match="no-such-env"):
        puffer_vector.make(unknown, 2, backend, workers)


def test_errors_of_calls_bring_the_traceback_of_the_worker(envs):
    class OddError(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    class Blank(envs.Counter):
        def render(self):
            raise LookupError("no picture") if self.number == 0 else OddError("a", "b")

    creators = [lambda n=n, buf=None: Blank(n, buf=buf) for n in range(2)]
    with puffer_vector.make(creators, 2, "processes", 2) as vector:
        vector.reset(seed=0)
        for world, error, text in ((0, LookupError, "no picture"), (1, RuntimeError, "OddError: a and b")):
            with pytest.raises(error, match=text) as caught:
                vector.render(world)
            assert "Traceback in the worker" in caught.value.__notes__[0]
            assert "in render" in caught.value.__notes__[0]
        vector.step(np.zeros(2, int))


SCRIPT = """
import os, signal, sys
from multiprocessing import forkserver
import gymnasium as gym, numpy as np
from puffer_spaces import PufferEnv
import puffer_vector

class Env(PufferEnv):
    def __init__(self, buf=None):
        self.single_observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.num_agents = 1
        super().__init__(buf)
    def reset(self, seed=None):
        return self.observations, []
    def step(self, actions):
        return self.observations, self.rewards, self.terminals, self.truncations, []

def kill_server():
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)

def lose_servers(restart):
    for _ in range(2):
        vector = puffer_vector.make(Env, 2, "processes", 2, context="forkserver", restart_failed=restart)
        vector.reset(seed=0)
        kill_server()
        try:
            while not vector.step(np.zeros(2, int))[3].any():
                pass
            print("replaced")
        except puffer_vector.WorkerError as error:
            print(error.reason)
        vector.close()
        kill_server()

def fork():
    vector = puffer_vector.make(Env, 2, "processes", 2)
    vector.reset(seed=0)
    child = os.fork()
    if not child:
        try:
            vector.step(np.zeros(2, int))
        except puffer_vector.ClosedError:
            sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    vector.step(np.zeros(2, int))

if __name__ == "__main__":
    eval(sys.argv[1])
"""


def output_of(tmp_path, call):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(path), call], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="kills a fork server")
def test_the_end_of_the_fork_server_is_named_and_a_new_one_is_started(tmp_path):
    *ended, first, second = output_of(tmp_path, "lose_servers(False), lose_servers(True)")

    assert len(ended) == 2
    for line in ended:
        assert line.startswith("its process ended with its fork server")
        assert line.endswith("make starts a new one")
    assert (first, second) == ("replaced", "replaced")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_the_caller_ends_in_silence(tmp_path):
    assert output_of(tmp_path, "fork()") == ["3"]
