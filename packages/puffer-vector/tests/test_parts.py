"""The small modules: CPUs, shared memory, infos, snapshots, sharing, creators."""

import functools
import os

import numpy as np
import pytest
from gymnasium import spaces

import puffer_spaces
import puffer_vector
from puffer_spaces import EnvSpec
from puffer_vector import cpus
from puffer_vector._actions import any_set
from puffer_vector.creators import Instance, resolve_creators
from puffer_vector.infos import indexed_infos
from puffer_vector.memory import SharedMemory, _create
from puffer_vector.sharing import Sharing
from puffer_vector.snapshots import pack, pack_bytes, unpack, unpack_bytes


def test_available_cpus_are_those_of_the_affinity_mask():
    assert 1 <= cpus.available_cpus() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"job/cpu.max": "50000 100000", "cpu.max": "200000 100000"}, 0.5),
        ({"cpu.cfs_quota_us": "300000", "cpu.cfs_period_us": "100000"}, 3.0),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_cgroup_quota_is_read(tmp_path, files, quota):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    membership = tmp_path / "cgroup"
    membership.write_text("0::/job/deeper\n")

    assert cpus._cgroup_quota(tmp_path, membership) == quota


@pytest.mark.parametrize("use_memfd", [True, False])
def test_shared_memory_is_seen_through_its_descriptor_and_has_no_name(use_memfd):
    first = SharedMemory(100, _create(100, use_memfd))
    second = SharedMemory(100, os.dup(first.fd))
    first.close_fd()
    second.close_fd()
    first.close_fd()
    first.bytes[3] = 7

    assert second.bytes[3] == 7
    assert second.bytes.sum() == 7


def test_infos_get_the_row_of_their_agent():
    assert indexed_infos([{}, {"a": 1}, {}], 3, 10) == [{"a": 1, "agent_index": 11}]
    assert indexed_infos({"mean": 2.0}, 3, 10) == [{"mean": 2.0, "agent_index": 10}]
    assert indexed_infos([{"a": 1, "agent_index": 2}], 3, 10) == [{"a": 1, "agent_index": 12}]
    assert indexed_infos([{"a": 1}, {"b": 2}], 3, 10) == [{"a": 1, "agent_index": 10}, {"b": 2, "agent_index": 10}]


def test_snapshots_hold_plain_values_and_arrays_and_nothing_else():
    header = {"infos": [{"a": np.float32(0.5), "b": np.arange(3), "c": "x", "d": None, "e": np.bool_(True)}]}
    found, arrays = unpack(pack(header, {"x": np.arange(4)}))

    assert arrays["x"].tolist() == [0, 1, 2, 3]
    info = found["infos"][0]
    assert info["b"].tolist() == [0, 1, 2]
    assert (info["a"], info["c"], info["d"], info["e"]) == (0.5, "x", None, True)
    with pytest.raises(TypeError, match="must hold plain values"):
        pack({"infos": [{"a": object()}]}, {})
    with pytest.raises(ValueError, match="must be what get_state returned"):
        unpack(b"PK\x03\x04 broken")
    parts = [b"", b"abc", b"d"]
    assert unpack_bytes(*pack_bytes(parts)) == parts


def test_any_set_looks_at_its_rows_only():
    flags = np.array([False, False, True, False])

    assert any_set(flags, 0, 4)
    assert not any_set(flags, 0, 2)
    assert not any_set(flags, 3, 4)
    assert not any_set(flags, 4, 4)


def test_sharing_follows_the_faster_way_and_looks_again():
    sharing = Sharing()
    costs = {False: 100e-6, True: 60e-6}
    choices = []
    for number in range(2000):
        if number == 1000:
            costs = {False: 100e-6, True: 500e-6}
        choices.append(sharing.choose())
        sharing.measured(choices[-1], costs[choices[-1]])

    assert sum(choices[100:1000]) > 850
    assert sum(choices[1300:]) < 50
    assert not choices[0]


def test_creators_are_batched_only_if_they_take_num_envs_themselves(envs):
    def takes_any(**kwargs):
        return envs.Walk(**kwargs)

    assert resolve_creators(envs.Walk, 4, None, None, {})[0].batched
    assert len(resolve_creators(envs.Walk, 4, None, None, {})) == 1
    assert len(resolve_creators(envs.Walk, 4, None, {"num_envs": 2}, {})) == 4
    assert len(resolve_creators(envs.Walk, 4, [2], None, {})) == 4
    assert len(resolve_creators(functools.partial(envs.Walk, num_envs=2), 4, None, None, {})) == 4
    assert resolve_creators(functools.partial(envs.Walk, agents=2), 4, None, None, {})[0].batched
    assert len(resolve_creators(takes_any, 4, None, None, {})) == 4
    assert resolve_creators(EnvSpec("suite-walk", envs.Walk, batched=True), 4, None, None, {})[0].batched
    assert isinstance(resolve_creators(envs.Walk(), 1, None, None, {})[0], Instance)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3, 2, None, None, {}), TypeError, "env must be a registered id"),
        (([int], 2, None, None, {}), ValueError, "num_envs must be the number of env creators"),
        (([int, int], 2, [[]], None, {}), ValueError, "env_args must have one entry"),
        (([int, int], 2, None, [{}], {}), ValueError, "env_kwargs must have one entry"),
        (("suite-nothing", 2, None, None, {}), ValueError, "environment id must be a registered one"),
    ],
)
def test_what_is_no_creator_is_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        resolve_creators(*arguments)


def test_lists_of_creators_arguments_and_keywords_as_in_pufferlib(envs):
    with puffer_vector.make(
        [envs.Counter, envs.Counter],
        env_args=[[1], [2]],
        env_kwargs=[{"length": 5}, {"length": 6}],
        backend=puffer_vector.Serial,
        num_workers="auto",
        batch_size="auto",
        zero_copy=True,
        overwork=True,
        seed=0,
    ) as vector:
        observations, _ = vector.reset()
        assert observations[:, 0].tolist() == [1, 2]
        assert [env.length for env in vector._workers[0].envs] == [5, 6]
        assert vector.agent_per_batch == 2


@pytest.mark.parametrize("backend", ["PufferEnv", "native", "Serial"])
def test_names_of_pufferlib_backends(envs, backend):
    with puffer_vector.make(envs.Counter, backend=backend) as vector:
        assert type(vector).__name__ == "SerialVector"


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"backend": "gpu"}, ValueError, 'backend must be one of "serial", "threads", "processes"'),
        ({"num_envs": [1]}, TypeError, "num_envs must be an integer.*Arguments of the env itself go to env_args="),
        ({"num_envs": True}, TypeError, "num_envs must be an integer; got True"),
        ({"batch_size": "half"}, TypeError, "batch_size must be an integer; got 'half'"),
        ({"first_world": -1}, ValueError, "first_world must be at least 0"),
        ({"timeout_s": 0}, ValueError, "timeout_s must be positive"),
        ({"timeout_s": "5"}, TypeError, "timeout_s must be a number of seconds.*got '5'"),
        ({"mode": ["sync"]}, ValueError, r'mode must be one of "sync", "async"; got \[.sync'),
        ({"order": 1}, ValueError, 'order must be one of "fixed", "first_come"; got 1'),
        ({"context": "thread"}, ValueError, "context must be"),
        ({"copy": "no"}, TypeError, "copy must be True or False; got 'no'"),
        ({"env_args": "ab"}, TypeError, "env_args must be a list.*got 'ab'"),
        ({"env_kwargs": 5}, TypeError, "env_kwargs must be a dict.*got 5"),
        ({"env_kwargs": {1: 2}}, TypeError, "env_kwargs must be a dict"),
        ({"flight_record": True}, TypeError, "flight_record must be the path of a folder"),
        ({"flight_record": __file__}, ValueError, "flight_record must be a folder that can be written to"),
        ({"colour": 3}, TypeError, r"Counter\(number=0, .* got an unexpected keyword argument 'colour'"),
        ({"num_worker": 3}, TypeError, "Did you mean num_workers= of make"),
    ],
)
def test_wrong_arguments_of_make_are_refused_before_any_worker_starts(envs, kwargs, error, text):
    with pytest.raises(error, match=text):
        puffer_vector.make(
            envs.Counter, backend="processes" if "backend" not in kwargs else kwargs.pop("backend"), **kwargs
        )


@pytest.mark.parametrize("value", [5, [1, 2], "ab"])
def test_arguments_of_several_creators_are_lists(envs, value):
    for name in ("env_args", "env_kwargs"):
        with pytest.raises((TypeError, ValueError), match=f"{name} must"):
            puffer_vector.make([envs.Counter] * 3, **{name: value})


def test_integers_of_numpy_are_integers(envs):
    sizes = {"num_envs": 4, "num_workers": 2, "batch_size": 2, "envs_per_worker": 2, "first_world": 7, "seed": 1}
    with puffer_vector.make(envs.Counter, backend="threads", **{k: np.int64(v) for k, v in sizes.items()}) as vector:
        vector.async_reset(np.uint32(3))
        vector.recv()
        assert (vector.num_envs, vector.batch_size, vector.world_ids.tolist()) == (4, 2, [7, 8])
    with puffer_vector.make(envs.Walk, np.int8(2), env_kwargs={"num_envs": np.int64(3)}) as vector:
        assert vector.num_envs == 6


def test_seed_serves_the_next_reset_that_is_given_none(envs):
    with puffer_vector.Serial(env_creator=envs.Counter, num_envs=2) as vector:
        vector.seed(42)
        seeded = vector.reset()[0].copy()
        vector.reset(seed=7)

        assert (vector.reset(seed=42)[0] == seeded).all()


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "step must return .*; got None"),
        ((1, 2, 3), "step must return .*; got 3 values"),
        (
            lambda env: (env.observations + 1, env.rewards, env.terminals, env.truncations, []),
            "self.observations in pla",
        ),
        (lambda env: (env.observations, [7], env.terminals, env.truncations, []), "self.rewards in place"),
        (lambda env: (env.observations, [0], [False], None, 7), "infos must be a list of dicts"),
        (lambda env: (env.observations, [0], [False], None, ["end"]), "each info must be a dict; got 'end'"),
        (lambda env: (env.observations, [0], [False], None, [{"agent_index": 1}]), "from 0 to 0; got 1"),
    ],
)
def test_what_a_step_returns_is_checked(envs, result, text):
    class Odd(envs.Counter):
        def step(self, actions):
            super().step(actions)
            self.rewards[:] = 0
            return result(self) if callable(result) else result

    with puffer_vector.make(lambda buf=None: Odd(buf=buf), 2) as vector:
        vector.reset(seed=0)
        with pytest.raises(puffer_vector.WorkerError, match=text):
            vector.step(np.zeros(2, int))


def test_copies_of_what_is_in_the_rows_are_fine(envs):
    class Copying(envs.Counter):
        def step(self, actions):
            observations, rewards, *flags, infos = super().step(actions)
            self.observations[:, 2] = np.nan
            return observations.copy(), rewards.astype(np.float64), *(flag.tolist() for flag in flags), infos

    with puffer_vector.make(lambda buf=None: Copying(buf=buf), 2) as vector:
        vector.reset(seed=0)
        for _ in range(5):
            assert vector.step(np.ones(2, int))[1].tolist() == [1, 1]


def test_creators_may_come_from_a_generator_and_vector_envs_stay_where_they_are(envs):
    import copy
    import pickle

    with puffer_vector.make(envs.Counter for _ in range(3)) as vector:
        assert vector.num_envs == 3
        for carry in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="neither copied nor pickled"):
                carry(vector)
    with pytest.raises(ValueError, match="env must be a creator, or a list of at least one"):
        puffer_vector.make([])


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,), np.float64),
        spaces.Box(-1, 1, (), np.float32),
        spaces.MultiDiscrete([2, 3]),
        spaces.Discrete(4),
    ],
)
def test_observations_of_no_dimension_and_actions_of_each_kind(backend, space):
    class Plain(puffer_spaces.PufferEnv):
        def __init__(self, buf=None):
            self.single_observation_space = spaces.Box(-9, 9, (), np.float64)
            self.single_action_space = space
            self.num_agents = 1
            super().__init__(buf)

        def reset(self, seed=None):
            return self.observations, []

        def step(self, actions):
            self.observations[:] = np.sum(actions, dtype=np.float64)
            return self.observations, self.rewards, self.terminals, self.truncations, []

    with puffer_vector.make(Plain, 2, backend, None if backend == "serial" else 2) as vector:
        vector.reset(seed=0)
        vector.action_space.seed(0)
        actions = vector.action_space.sample()
        assert vector.step(actions)[0] == pytest.approx(actions.reshape(2, -1).sum(1, dtype=np.float64))
