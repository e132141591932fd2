"""The same digest of observations, rewards, flags, infos, final observations and records, however envs are stepped."""

import functools
import hashlib

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import puffer_vector
from puffer_spaces import PufferEnv

BACKENDS = [
    {"backend": "threads", "num_workers": 1},
    {"backend": "threads", "num_workers": 2},
    {"backend": "threads", "num_workers": 2, "timeout_s": 60.0},
    {"backend": "processes", "num_workers": 1},
    {"backend": "processes", "num_workers": 2, "context": "forkserver"},
    {"backend": "processes", "num_workers": 4, "context": "spawn"},
    {"backend": "processes", "num_workers": 2, "context": "fork"},
    {"backend": "serial", "copy": True},
    {"backend": "serial", "batch_size": 2},
    {"backend": "threads", "num_workers": 4, "batch_size": 4},
    {"backend": "processes", "num_workers": 2, "batch_size": 4},
    {"backend": "processes", "num_workers": 2, "mode": "async", "order": "first_come"},
]


def chosen_actions(steps, rows, space):
    """Return discrete actions that depend on nothing but the step and the row."""
    sizes = np.broadcast_to(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n, space.shape)
    keys = (steps * 1_000_003 + rows * 7_919).reshape(-1, *[1] * len(space.shape))
    return ((keys + np.arange(sizes.size).reshape(space.shape)) * 2_654_435_761 >> 20) % sizes


def bytes_of_worlds(arrays, num_worlds):
    """Return all that some arrays of rows hold, world by world."""
    parts = [np.ascontiguousarray(array).reshape(num_worlds, -1).view(np.uint8) for array in arrays]
    return [world.tobytes() for world in np.concatenate(parts, axis=1)]


def digest(env, *, seed=1, num_steps=40, **kwargs):
    """Make a vector env, step it, and return a hash of all it returned in the first steps of each world."""
    with puffer_vector.make(env, **kwargs) as vector:
        worlds, records = hashes_and_records(vector, seed, num_steps)
    records = records[records["step"] <= num_steps]
    records.sort(order=["step", "world", "agent"])
    return hashlib.sha256(b"".join([records.tobytes(), *worlds])).hexdigest()[:16]


def hashes_and_records(vector, seed, num_steps):
    """Step a vector env and return the hash of each world and all episode records."""
    world_rows = vector.num_agents // vector.num_envs
    steps = np.zeros(vector.num_envs, np.int64)
    worlds = [hashlib.sha256() for _ in steps]
    episodes = []
    vector.async_reset(seed)
    while True:
        *arrays, infos, agent_ids, masks = vector.recv()
        ids = vector.world_ids
        assert agent_ids.tolist() == (ids[:, None] * world_rows + np.arange(world_rows)).ravel().tolist()
        ended = (arrays[2] | arrays[3]).reshape(-1, *[1] * (arrays[0].ndim - 1))
        finals = np.where(ended, vector.final_observations, 0)
        told = dict.fromkeys(ids.tolist(), "")
        for info in infos:
            told[info["agent_index"] // world_rows] += repr(info)
        for world, row_bytes in zip(ids.tolist(), bytes_of_worlds([*arrays, masks, finals], len(ids)), strict=True):
            if steps[world] <= num_steps:
                worlds[world].update(row_bytes + told[world].encode())
        episodes.append(vector.episodes())
        steps[ids] += 1
        if steps.min() > num_steps:
            break
        vector.send(chosen_actions(steps[agent_ids // world_rows], agent_ids, vector.single_action_space))
    return [world.digest() for world in worlds], np.concatenate(episodes)


@pytest.mark.parametrize("how", BACKENDS, ids=lambda how: "-".join(str(value) for value in how.values()))
def test_every_backend_returns_what_serial_returns(envs, how):
    expected = digest(envs.Walk, num_envs=8, agents=2)

    assert digest(envs.Walk, num_envs=8, agents=2, **how) == expected


class Nested(PufferEnv):
    """Nested spaces in the short form: the same objects each time, numbers and flags of any type."""

    def __init__(self, buf=None):
        super().__init__(buf)
        place = spaces.Box(-9, 9, (2,), np.float32)
        self.observation_space = spaces.Dict({"place": place, "goal": spaces.Tuple([spaces.Discrete(3), place])})
        self.action_space = spaces.Dict({"turn": spaces.Discrete(3), "jump": spaces.MultiBinary(2)})
        self.place, self.info, self.count = np.zeros(2, np.float32), {}, 0

    def observe(self):
        return {"place": self.place, "goal": (int(self.rng.integers(3)), -self.place)}

    def reset(self, seed=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.place[:], self.count = 0, 0
        return self.observe()

    def step(self, action):
        self.count += 1
        self.place[:] = action["turn"] - 1, action["jump"].sum()
        self.info["count"] = self.count
        reward = self.rng.choice([float, np.float32, np.array, np.atleast_1d])(self.rng.normal())
        done = self.rng.choice([bool, np.bool_, int])(self.rng.random() < 0.2)
        return self.observe(), reward, done, self.count == 9, self.info


@st.composite
def ways(draw, sizes, kinds):
    """Draw a kind of env and how many of its worlds are stepped how."""
    num_envs = draw(st.sampled_from(sizes))
    backend = draw(st.sampled_from(["serial", "threads", "processes"]))
    workers = draw(st.sampled_from([n for n in (1, 2, 3, 4) if num_envs % n == 0]))
    batches = draw(st.sampled_from([n for n in (1, 2, 3, 4) if workers % n == 0]))
    how = {"num_envs": num_envs, "backend": backend, "batch_size": num_envs // batches, "copy": draw(st.booleans())}
    if backend != "serial":
        how |= {"num_workers": workers, "timeout_s": draw(st.sampled_from([None, 60.0]))}
    return draw(st.sampled_from(kinds)), draw(st.booleans()), how


PYTHON, NATIVE = ["walk", "nested"], ["native", "without capsule"]


@pytest.fixture(scope="session")
def check_way(envs, native):
    """Check that what `ways` drew gives the digest of one serial object, or of serial objects of one world."""
    kinds = {"walk": (envs.Walk, {"agents": 2}), "native": (native, {}), "nested": (Nested, {})}
    kinds["without capsule"] = (native, {"with_capsule": False})

    @functools.cache
    def expected(kind, num_envs, seed, num_steps):
        env, kwargs = kinds["native" if kind == "without capsule" else kind]
        return digest(env, num_envs=num_envs, seed=seed, num_steps=num_steps, **kwargs)

    def check(way, seed, num_steps):
        kind, is_one_object, how = way
        env, kwargs = kinds[kind]
        creator = env if is_one_object else lambda buf=None: env(buf=buf, **kwargs)
        given = kwargs if is_one_object else {}
        found = digest(creator, seed=seed, num_steps=num_steps, **how, **given)
        assert found == expected(kind, how["num_envs"], seed, num_steps)

    return check


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(way=ways([12, 64], PYTHON + NATIVE), seed=st.integers(0, 3))
def test_drawn_ways_give_the_digest_of_one_serial_object(check_way, way, seed):
    check_way(way, seed, num_steps=100)


@pytest.mark.soak
@pytest.mark.timeout(900)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(way=ways([12], PYTHON) | ways([12, 64], NATIVE))
def test_ten_thousand_steps_of_drawn_ways_give_the_digest_of_one_serial_object(check_way, way):
    check_way(way, seed=1, num_steps=10_000)


@pytest.mark.parametrize("backend", ["ray"])
@pytest.mark.parametrize(
    ("kind", "is_one_object", "batches"),
    [
        ("walk", False, 2),
        pytest.param("walk", True, 1, marks=pytest.mark.soak),
        pytest.param("native", True, 2, marks=pytest.mark.soak),
        pytest.param("nested", False, 1, marks=pytest.mark.soak),
    ],
)
def test_actors_return_what_serial_returns(check_way, backend, kind, is_one_object, batches):
    how = {"num_envs": 12, "batch_size": 12 // batches, "backend": backend, "num_workers": 2}

    check_way((kind, is_one_object, how), seed=1, num_steps=40)


def test_one_object_of_many_worlds_equals_many_objects_of_one_or_two(envs):
    one = digest(envs.Walk, num_envs=6)
    many = digest(lambda buf=None: envs.Walk(1, buf=buf), num_envs=6)
    pairs = digest(envs.Walk, num_envs=3, env_kwargs={"num_envs": 2})

    assert one == many == pairs


def test_envs_that_cannot_rebind_are_built_again_in_their_rows(envs):
    expected = digest(envs.Walk, num_envs=4)

    assert digest(envs.Walk, num_envs=4, rebinds=False) == expected
    assert digest(envs.Walk, num_envs=4, rebinds=False, backend="threads", num_workers=2) == expected
    assert digest(envs.Walk, num_envs=4, rebinds=False, backend="processes", num_workers=2) == expected


def test_other_seeds_and_no_seed_give_other_worlds(envs):
    first = digest(envs.Walk, num_envs=4, seed=1)

    assert digest(envs.Walk, num_envs=4, seed=2) != first
    assert digest(envs.Walk, num_envs=4, seed=None) != digest(envs.Walk, num_envs=4, seed=None)


def test_a_vector_env_of_vector_envs_equals_a_flat_one(envs):
    def inner(buf=None, seed=None):
        return puffer_vector.make(envs.Walk, num_envs=2, seed=seed, agents=2, backend="threads", num_workers=2)

    expected = digest(envs.Walk, num_envs=4, agents=2)

    assert digest(inner, num_envs=2) == expected
    assert digest(inner, num_envs=2, backend="processes", num_workers=2) == expected
