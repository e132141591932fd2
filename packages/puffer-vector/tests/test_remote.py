"""The Ray backend on this machine: the same results, and errors in the env's own words."""

import sys

import numpy as np
import pytest

import puffer_vector
from puffer_vector import WorkerError

pytestmark = [pytest.mark.filterwarnings("ignore:::ray"), pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(autouse=True)
def nothing_left():
    """Ray keeps threads and descriptors of its own for as long as it runs."""


@pytest.fixture(scope="module")
def running_ray():
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=4,
        object_store_memory=100_000_000,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    yield ray
    ray.shutdown()


@pytest.mark.timeout(300)
def test_actors_return_what_serial_returns(running_ray, envs, digest_of):
    expected = digest_of(envs.Walk, num_envs=4, agents=2)

    assert digest_of(envs.Walk, num_envs=4, agents=2, backend="ray", num_workers=2) == expected
    assert digest_of(envs.Walk, num_envs=4, agents=2, backend="ray", num_workers=2, batch_size=2) == expected


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("how", "text"), [("raise", "ArithmeticError: boom in step of 1"), ("exit", "its actor ended")]
)
def test_failures_arrive_and_the_rest_is_ended(running_ray, envs, how, text):
    creators = [lambda n=n, buf=None: envs.Counter(n, fails_at=3 if n else None, how=how, buf=buf) for n in range(2)]
    vector = puffer_vector.make(creators, 2, "ray", 2)
    vector.reset(seed=0)
    with pytest.raises(WorkerError, match=text) as caught:
        step_often(vector)
    assert (caught.value.worker_index, caught.value.world, caught.value.step) == (1, 1, 3)


def step_often(vector, times=10):
    for _ in range(times):
        vector.step(np.zeros(2, int))


@pytest.mark.timeout(300)
def test_a_lost_actor_is_replaced_and_a_snapshot_is_exact(running_ray, envs):
    creators = [lambda n=n, buf=None: envs.Counter(n, fails_at=3 if n else None, how="exit", buf=buf) for n in range(2)]
    with puffer_vector.make(creators, 2, "ray", 2, restart_failed=True) as vector:
        vector.reset(seed=0)
        flags = [vector.step(np.zeros(2, int))[3].tolist() + vector.invalid.tolist() for _ in range(4)]
    assert flags == [[False] * 4] * 2 + [[False, True, False, True]] + [[False] * 4]

    with puffer_vector.make(envs.Walk, 2, "ray", 2) as vector:
        vector.reset(seed=0)
        vector.step(np.ones((2, 2), int))
        state = vector.get_state()
        expected = [vector.step(np.ones((2, 2), int))[0].copy() for _ in range(20)]
        vector.set_state(state)
        found = [vector.step(np.ones((2, 2), int))[0].copy() for _ in range(20)]
    assert np.array_equal(expected, found)


def test_without_ray_the_install_line_is_named(envs, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "puffer_vector.remote", raising=False)
    with pytest.raises(ImportError, match=r'pip install "puffer-vector\[ray\]"'):
        puffer_vector.make(envs.Walk, 2, "ray")
