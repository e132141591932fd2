"""Envs for the tests, a foreign native env that is compiled here, and checks that nothing is left behind."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import multiprocessing
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

import puffer_vector
from puffer_spaces import Episodes, PufferEnv, world_seed

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pytest_collection_modifyitems(items):
    """Have classes and functions of test modules sent to workers as they are: workers cannot import them."""
    for module in {item.module for item in items if Path(item.path).parent == Path(__file__).parent}:
        cloudpickle.register_pickle_by_value(module)


class Walk(PufferEnv):
    """Worlds of random walkers with everything the contract has: episodes of random length, infos, masks, records."""

    has_final_observations = True
    has_state = True
    episode_extras = ("farthest",)

    def __init__(self, num_envs=1, agents=1, infos=True, rebinds=True, level=0, buf=None, seed=None):
        self.single_observation_space = spaces.Box(-1e9, 1e9, (2,), np.float32)
        self.single_action_space = spaces.MultiDiscrete([3, 4])
        self.num_envs, self.agents = num_envs, agents
        self.num_agents = num_envs * agents
        self.rebinds_buffers = rebinds
        self.with_infos, self.level = infos, level
        self.rngs = [np.random.default_rng(0) for _ in range(num_envs)]
        self.positions = np.zeros(self.num_agents)
        self.farthest = np.zeros(self.num_agents)
        self.returns = np.zeros(self.num_agents)
        self.lengths = np.zeros(num_envs, np.int64)
        self.records = Episodes(self.episode_extras)
        self.num_steps = 0
        super().__init__(buf)

    def rows(self, world):
        return slice(world * self.agents, (world + 1) * self.agents)

    def begin(self, world):
        rows = self.rows(world)
        self.positions[rows] = self.rngs[world].normal(size=self.agents)
        self.farthest[rows] = self.returns[rows] = 0
        self.lengths[world] = 0
        self.observations[rows, 0] = self.positions[rows]
        self.observations[rows, 1] = self.level

    def reset(self, seed=None, first_world=0, options=None):
        if seed is not None:
            self.rngs = [np.random.default_rng(world_seed(seed, first_world + w)) for w in range(self.num_envs)]
            self.num_steps = 0
            self.records.clear()
        for world in range(self.num_envs):
            self.begin(world)
        infos = [{"options": options, "agent_index": w * self.agents} for w in range(self.num_envs)] if options else []
        return self.observations, infos

    def step(self, actions):
        self.num_steps += 1
        infos = []
        for world in range(self.num_envs):
            rows, rng = self.rows(world), self.rngs[world]
            moves = (np.asarray(actions)[rows] - 1.5).sum(axis=1) + rng.normal(size=self.agents)
            self.positions[rows] += moves
            self.rewards[rows] = moves
            self.returns[rows] += moves
            self.farthest[rows] = np.maximum(self.farthest[rows], np.abs(self.positions[rows]))
            self.lengths[world] += 1
            self.observations[rows, 0] = self.positions[rows]
            draw = rng.random()
            if draw < 0.15:
                flags = self.terminals if draw < 0.1 else self.truncations
                flags[rows] = True
                self.final_observations[rows] = self.observations[rows]
                for agent in range(self.agents):
                    row = world * self.agents + agent
                    result = self.returns[row], self.lengths[world], None, np.nan, self.farthest[row]
                    self.records.append(self.num_steps, world, agent, *result)
                if self.with_infos:
                    infos.append({"length": int(self.lengths[world]), "agent_index": world * self.agents})
                self.begin(world)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def episodes(self):
        return self.records.drain()

    def set_parameters(self, level):
        self.level = level

    def get_state(self):
        import pickle

        parts = (self.rngs, self.positions, self.farthest, self.returns, self.lengths, self.num_steps, self.level)
        return pickle.dumps(parts)

    def set_state(self, state):
        import pickle

        parts = pickle.loads(state)
        self.rngs, self.positions, self.farthest, self.returns, self.lengths, self.num_steps, self.level = parts

    def render(self):
        return np.full((2, 2, 3), self.level, np.uint8)


class Counter(PufferEnv):
    """One agent whose observation is (first world of the object if it knows it, steps, last action)."""

    rebinds_buffers = True

    def __init__(self, number=0, length=1000, delay_s=0.0, fails_at=None, how="raise", agents=1, buf=None):
        self.single_observation_space = spaces.Box(-1e9, 1e9, (3,), np.float64)
        self.single_action_space = spaces.Discrete(1000)
        self.num_agents = agents
        self.number, self.length, self.delay_s = number, length, delay_s
        self.fails_at, self.how = fails_at, how
        self.count = 0
        super().__init__(buf)

    def reset(self, seed=None):
        if self.fails_at == "reset":
            raise KeyError("boom in reset")
        self.count = 0
        self.observations[:] = [self.number, 0, -1]
        return self.observations, []

    def step(self, actions):
        self.count += 1
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.count == self.fails_at:
            self.fail()
        self.observations[:] = [self.number, self.count, actions[0]]
        self.rewards[:] = actions
        self.terminals[:] = self.count == self.length
        if self.count == self.length:
            self.count = 0
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def fail(self):
        if self.how == "raise":
            raise ArithmeticError(f"boom in step of {self.number}")
        if self.how == "exit":
            os._exit(7)
        if self.how == "segfault":
            ctypes.string_at(0)
        if self.how == "sleep":
            time.sleep(600)
        if self.how == "SystemExit":
            raise SystemExit(3)


class Native(PufferEnv):
    """The compiled env of walk.c behind the capsule."""

    rebinds_buffers = True
    has_final_observations = True
    library = ""

    def __init__(self, num_envs=1, spin=0, slice_multiple=64, with_capsule=True, buf=None):
        self.single_observation_space = spaces.Box(-1e9, 1e9, (), np.float32)
        self.single_action_space = spaces.Discrete(5)
        self.num_envs = self.num_agents = num_envs
        self.spin, self.slice_multiple, self.with_capsule = spin, slice_multiple, with_capsule
        self.dll = ctypes.CDLL(self.library)
        self.streams = np.zeros(num_envs, np.uint64)
        self.lengths = np.zeros(num_envs, np.int64)
        self.ended = np.zeros(num_envs)
        self.records = Episodes()
        self.num_steps = 0
        super().__init__(buf)

    def set_buffers(self, buffers):
        super().set_buffers(buffers)
        self.bind()

    def bind(self):
        b = self.buffers
        arrays = (b.observations, b.actions, b.rewards, b.terminals, b.final_observations)
        pointers = [a.ctypes.data for a in (*arrays, self.streams, self.lengths, self.ended)]
        self.walk = ctypes.create_string_buffer(struct.pack("8Qq", *pointers, self.spin))
        step = ctypes.cast(self.dll.walk_step, ctypes.c_void_p).value
        place = ctypes.addressof(self.walk)
        packed = struct.pack("IIQqqqQ", 1, 48, place, self.num_envs, 1, self.slice_multiple, step)
        self.capsule_struct = ctypes.create_string_buffer(packed)

    def reset(self, seed=None, first_world=0):
        if not hasattr(self, "walk"):
            self.bind()
        if seed is not None:
            self.streams[:] = [world_seed(seed, first_world + w) for w in range(self.num_envs)]
            self.num_steps = 0
            self.records.clear()
        self.lengths[:] = 0
        self.observations[:] = 0
        return self.observations, []

    def step_capsule(self):
        if not self.with_capsule:
            return None
        if not hasattr(self, "walk"):
            self.bind()
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.capsule_struct), b"puffer.step.v1", None)

    def step(self, actions):
        if actions is not self.actions:
            self.actions[:] = actions
        self.dll.walk_step(ctypes.byref(self.walk), ctypes.c_int64(0), ctypes.c_int64(self.num_envs))
        infos = self.finish_step()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def finish_step(self):
        self.num_steps += 1
        for world in np.flatnonzero(self.ended):
            self.records.append(self.num_steps, world, 0, self.ended[world], self.ended[world])
        self.ended[:] = 0
        return []

    def episodes(self):
        return self.records.drain()


def digest(vector, seed=1, num_steps=40):
    """Step a vector env and return a hash of all it returned, in the order of steps and worlds."""
    world_rows = vector.num_agents // vector.num_envs
    counts = np.zeros(vector.num_envs, int)
    log, episodes = {}, []
    vector.async_reset(seed)
    while True:
        observations, rewards, terminals, truncations, infos, agent_ids, masks = vector.recv()
        ended = (terminals | truncations).reshape(-1, *[1] * (observations.ndim - 1))
        finals = np.where(ended, vector.final_observations, 0)
        for position, world in enumerate(vector.world_ids):
            rows = slice(position * world_rows, (position + 1) * world_rows)
            assert agent_ids[rows.start] == world * world_rows
            mine = [info for info in infos if info["agent_index"] // world_rows == world]
            arrays = (observations, rewards, terminals, truncations, masks, finals)
            log[int(counts[world]), int(world)] = b"".join(a[rows].tobytes() for a in arrays) + repr(mine).encode()
        episodes.append(vector.episodes())
        counts[vector.world_ids] += 1
        if counts.min() > num_steps:
            break
        shape = (vector.num_agents, *vector.single_action_space.shape)
        by_step = [np.random.default_rng(step).integers(0, 3, shape) for step in range(counts.max() + 1)]
        vector.send(np.stack([by_step[counts[row // world_rows]][row] for row in agent_ids]))
    records = np.concatenate(episodes)
    records = records[records["step"] <= num_steps]
    records.sort(order=["step", "world", "agent"])
    whole = hashlib.sha256(records.tobytes())
    for key in sorted(key for key in log if key[0] <= num_steps):
        whole.update(log[key])
    return whole.hexdigest()[:16]


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    """The Native env class over the freshly compiled library."""
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) or "cc"
    library = tmp_path_factory.mktemp("walk") / "walk.so"
    source = Path(__file__).with_name("walk.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    Native.library = str(library)
    return Native


@pytest.fixture(scope="session")
def envs():
    """Env classes of the tests."""
    return SimpleNamespace(Walk=Walk, Counter=Counter)


@pytest.fixture(scope="session")
def digest_of():
    """Make a vector env, step it, and return the hash of all it returned."""

    def make_and_digest(env, *, seed=1, num_steps=40, **kwargs):
        with puffer_vector.make(env, **kwargs) as vector:
            return digest(vector, seed, num_steps)

    return make_and_digest


def _descriptors():
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _shared_memory():
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.fixture(scope="session", autouse=True)
def fork_server():
    """Start the fork server before descriptors are counted."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["puffer_vector.process_worker"])
    context.Process(target=int).start()
    for process in multiprocessing.active_children():
        process.join()


@pytest.fixture(autouse=True)
def nothing_left(fork_server):
    """Fail a test that leaves a child process, a thread, a shared-memory name or an open descriptor."""
    descriptors, names, threads = _descriptors(), _shared_memory(), threading.active_count()
    yield
    deadline = time.monotonic() + 3
    while (left := _left_behind(descriptors, names, threads)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    assert not left


def _left_behind(descriptors, names, threads):
    left = [str(process) for process in multiprocessing.active_children()]
    left += [f"{threading.active_count()} threads after {threads}"] if threading.active_count() > threads else []
    left += sorted(_shared_memory() - names)
    left += [f"{_descriptors()} descriptors after {descriptors}"] if _descriptors() > descriptors else []
    return left
