"""Creators of every kind, from the script itself, under every way to start processes."""

import subprocess
import sys

import pytest

SCRIPT = """
import functools, os, sys, threading
import gymnasium as gym, numpy as np
from puffer_spaces import PufferEnv
import puffer_vector

class Env(PufferEnv):
    def __init__(self, number=0, buf=None):
        self.single_observation_space = gym.spaces.Box(-1, 1000, (1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.num_agents, self.number = 1, number
        super().__init__(buf)
    def reset(self, seed=None):
        self.observations[:] = self.number
        return self.observations, []
    def step(self, actions):
        self.observations[:] = self.number
        return self.observations, self.rewards, self.terminals, self.truncations, [{"pid": os.getpid()}]

class Roaming(Env):
    def step(self, actions):
        os.chdir("/")
        threading.Thread(target=int).start()
        return super().step(actions)

def build(buf=None):
    return Env(4, buf=buf)

def resident_kb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4

def main(context):
    number = 3
    creators = [Env, lambda buf=None: Env(1, buf=buf), functools.partial(Env, 2), lambda: Env(number), build, Roaming]
    with puffer_vector.make(creators, 6, "processes", 2, context=context) as vector:
        observations, _ = vector.reset(seed=0)
        assert observations[:, 0].tolist() == [0, 1, 2, 3, 4, 0], observations
        infos = vector.step(np.zeros(6, int))[4]
        assert [info["agent_index"] for info in infos] == list(range(6))
        assert len({info["pid"] for info in infos} | {os.getpid()}) == 3
        for repetition in range(2):
            start = resident_kb()
            for _ in range(1500):
                vector.step(np.zeros(6, int))
        assert resident_kb() - start < 4000, "memory grows with each step"
    print("all is well")

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")
@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_creators_of_the_script_reach_the_workers_and_infos_do_not_pile_up(tmp_path, context):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(path), context], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "all is well\n"
    assert done.stderr == ""
