"""What all tests of the native environments share: their names, actions without NumPy's generators, and rollouts."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

CORE = Path(__file__).parents[1] / "src" / "puffer_ocean" / "core"
NATIVE_ENVS = Path(__file__).parent / "native_envs"


def mixed(counters: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser of uint64 counters."""
    z = counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def make_actions(env, step, first_row=0):
    """Random actions of a step, a function of (step, row of the run, head) alone."""
    rows = np.arange(first_row, first_row + env.num_agents, dtype=np.uint64)
    heads = int(np.prod(env.actions.shape[1:], dtype=int))
    keys = (np.uint64(step + 1) << np.uint64(40)) + (rows[:, None] << np.uint64(8)) + np.arange(heads, dtype=np.uint64)
    words = (mixed(keys) >> np.uint64(33)).astype(np.int64).reshape(env.actions.shape)
    if env.actions.dtype == np.float32:
        low, high = env.single_action_space.low, env.single_action_space.high
        return (low + (high - low) * (words * 2.0**-31)).astype(np.float32)
    sizes = getattr(env.single_action_space, "nvec", None)
    return (words % (env.single_action_space.n if sizes is None else sizes)).astype(np.int32)


def update_with_rows(digest, env, rows=slice(None)):
    """Add what a step wrote to a hash: observations, rewards, flags, masks, and final observations where flagged."""
    ended = (env.terminals | env.truncations)[rows]
    digest.update(env.observations[rows].tobytes())
    digest.update(env.rewards[rows].tobytes())
    digest.update(env.terminals[rows].tobytes())
    digest.update(env.truncations[rows].tobytes())
    digest.update(env.masks[rows].tobytes())
    digest.update(env.final_observations[rows][ended].tobytes())


def hash_rollout(env, num_steps, first_step=0, first_row=0):
    """The hash of num_steps steps with made-up actions and of the records they leave."""
    digest = hashlib.sha256()
    for step in range(first_step, first_step + num_steps):
        env.step(make_actions(env, step, first_row))
        update_with_rows(digest, env)
    digest.update(env.episodes().tobytes())
    return digest.hexdigest()


class StepStruct(ctypes.Structure):
    """puffer_step_v1 of capsule.h."""

    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("struct_size", ctypes.c_uint32),
        ("ctx", ctypes.c_void_p),
        ("num_worlds", ctypes.c_int64),
        ("rows_per_world", ctypes.c_int64),
        ("slice_multiple", ctypes.c_int64),
        ("step", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)),
    )


def struct_of(capsule):
    """What a capsule points to; valid while the capsule is held."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(get(capsule, b"puffer.step.v1"), ctypes.POINTER(StepStruct)).contents


@pytest.fixture(scope="session")
def open_capsule():
    return struct_of


@pytest.fixture(scope="session")
def actions_of():
    return make_actions


@pytest.fixture(scope="session")
def add_rows():
    return update_with_rows


@pytest.fixture(scope="session")
def rollout_hash():
    return hash_rollout


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Compile a C file with the core's headers into a library, loaded by ctypes."""

    def compile_library(source: Path, *args: str) -> ctypes.CDLL:
        library = tmp_path_factory.mktemp("library") / f"{source.stem}.so"
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        command = [*compiler, "-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", f"-I{CORE}"]
        subprocess.run([*command, *args, str(source), "-o", str(library), "-lm"], check=True, env=without_preload())
        return ctypes.CDLL(str(library))

    return compile_library


def without_preload():
    """The environment of a compiler: under a sanitizer this process has libraries preloaded that slow it down."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@pytest.fixture(scope="session")
def probe(compiled):
    return compiled(NATIVE_ENVS / "probe.c")


@pytest.fixture(scope="session")
def flock_path(tmp_path_factory):
    """The path of the test env, compiled into a cache of the tests' own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield NATIVE_ENVS / "flock.c"
    patch.undo()
