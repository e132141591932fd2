"""Envs for the tests, a foreign native env that is compiled here, and checks that nothing is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import shutil
import signal
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
from puffer_vector import recent

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pytest_collection_modifyitems(items):
    """Have classes and functions of test modules sent to workers as they are: workers cannot import them.

    What needs Ray comes last, so that it runs for no other test, and may take longer.
    """
    own = [item for item in items if Path(item.path).parent == Path(__file__).parent]
    for module in {item.module for item in own}:
        cloudpickle.register_pickle_by_value(module)
    for item in filter(_needs_ray, own):
        item.add_marker(pytest.mark.timeout(300))
        item.add_marker(pytest.mark.filterwarnings("ignore:::ray"))
        item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
    items.sort(key=lambda item: item in own and _needs_ray(item))


def _needs_ray(item):
    backend = item.callspec.params.get("backend") if hasattr(item, "callspec") else None
    return backend == "ray" or "running_ray" in item.fixturenames


class Walk(PufferEnv):
    """Worlds of random walkers with everything the contract has: ends and departures at random, infos, records."""

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
        self.masks[rows] = True

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
            present = self.masks[rows].copy()
            moves = ((np.asarray(actions)[rows] - 1.5).sum(axis=1) + rng.normal(size=self.agents)) * present
            self.positions[rows] += moves
            self.rewards[rows] = moves
            self.returns[rows] += moves
            self.farthest[rows] = np.maximum(self.farthest[rows], np.abs(self.positions[rows]))
            self.lengths[world] += 1
            self.observations[rows, 0] = self.positions[rows] * present
            draw = rng.random()
            leaving = rows.start + np.flatnonzero(present)
            if draw < 0.15:
                self.end(leaving, self.terminals if draw < 0.1 else self.truncations)
                if self.with_infos:
                    infos.append({"length": int(self.lengths[world]), "agent_index": rows.start})
                self.begin(world)
            elif draw < 0.25 and len(leaving) > 1:
                self.end(leaving[:1], self.terminals)
                self.observations[leaving[0]] = 0
                self.masks[leaving[0]] = False
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def end(self, rows, flags):
        flags[rows] = True
        self.final_observations[rows] = self.observations[rows]
        for row in rows:
            world, agent = divmod(int(row), self.agents)
            result = self.returns[row], self.lengths[world], None, np.nan, self.farthest[row]
            self.records.append(self.num_steps, world, agent, *result)

    def episodes(self):
        return self.records.drain()

    def set_parameters(self, level):
        self.level = level

    def get_state(self):
        parts = (self.rngs, self.positions, self.farthest, self.returns, self.lengths, self.num_steps, self.level)
        return pickle.dumps(parts)

    def set_state(self, state):
        parts = pickle.loads(state)
        self.rngs, self.positions, self.farthest, self.returns, self.lengths, self.num_steps, self.level = parts

    def render(self):
        return np.full((2, 2, 3), self.level, np.uint8)


class Counter(PufferEnv):
    """Agents whose observation is (number of the object, steps, last action); it may fail in many ways."""

    rebinds_buffers = True

    def __init__(self, number=0, length=1000, delay_s=0.0, fails_at=None, how="raise", agents=1, buf=None):
        if fails_at == "init":
            time.sleep(600 if how == "sleep" else 0)
            raise LookupError("boom in constructor")
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
        infos = self.fail() if self.count == self.fails_at else []
        self.observations[:] = [self.number, self.count, actions[0]]
        self.rewards[:] = actions
        self.terminals[:] = self.count == self.length
        if self.count == self.length:
            self.count = 0
        return self.observations, self.rewards, self.terminals, self.truncations, infos or []

    def fail(self):
        if self.how == "raise":
            raise ArithmeticError(f"boom in step of {self.number}")
        if self.how == "exit":
            os._exit(7)
        if self.how == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "segfault":
            ctypes.string_at(0)
        if self.how == "sleep":
            time.sleep(600)
        if self.how == "SystemExit":
            raise SystemExit(3)
        if self.how == "unpicklable info":
            return [{"lock": threading.Lock()}]
        return [{"data": bytes(self.how)}]


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
    return SimpleNamespace(Walk=Walk, Counter=Counter)


@pytest.fixture(scope="session")
def running_ray():
    """Ray, running for as long as a vector env with more workers than CPUs; skips where it is not installed."""
    ray = pytest.importorskip("ray")
    before = _seen_by_all()
    num_workers = puffer_vector.available_cpus() + 1
    with puffer_vector.make(Counter, num_workers, "ray", num_workers):
        yield ray
    assert not ray.is_initialized()
    _assert_gone(_seen_by_all, before)


@pytest.fixture(scope="session", autouse=True)
def fork_server():
    """Start the fork server before descriptors are counted."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["puffer_vector.process_worker"])
    process = context.Process(target=int)
    process.start()
    process.join()


@pytest.fixture(scope="session", autouse=True)
def flight_folder(tmp_path_factory):
    """Have the flight records that nobody asked for among the other files of the tests."""
    recent.FOLDER = str(tmp_path_factory.mktemp("flights"))


@pytest.fixture(autouse=True)
def nothing_left(fork_server, request):
    """Fail a test that leaves a process, living or not, a thread, a shared-memory name or an open descriptor."""
    held = _held
    if _needs_ray(request.node):
        request.getfixturevalue("running_ray")
        held = _actors  # Ray keeps much of its own for as long as it runs
    before = held()
    yield
    _assert_gone(held, before)


def _assert_gone(held, before, limit_s=5.0):
    deadline = time.monotonic() + limit_s
    while left := {kind: names - before[kind] for kind, names in held().items() if names - before[kind]}:
        assert time.monotonic() < deadline, left
        gc.collect()
        time.sleep(0.02)


def _held():
    counts = {"descriptors": len(list(Path("/proc/self/fd").glob("*"))), "threads": threading.active_count()}
    return {**_seen_by_all(), **{kind: set(range(count)) for kind, count in counts.items()}}


def _seen_by_all():
    multiprocessing.active_children()  # which takes leave of those that have ended
    return {"shared memory": set(Path("/dev/shm").glob("*")), "processes": _descendants()}


def _actors():
    return {"actors": {process for process in _descendants() if "RemoteWorker" in process}}


def _descendants():
    """Return ids and commands of the processes that this one started, and those started, as far as /proc tells."""
    found, pending = set(), [os.getpid()]
    while pending:
        for children in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pending += (pids := children.read_text().split())
                found.update(f"{pid} {Path(f'/proc/{pid}/cmdline').read_text()}" for pid in pids)
    return found
