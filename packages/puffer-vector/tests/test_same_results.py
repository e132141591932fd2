"""The same digest of observations, rewards, flags, infos, final observations and records, however envs are stepped."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import puffer_vector

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


@pytest.mark.parametrize("how", BACKENDS, ids=lambda how: "-".join(str(value) for value in how.values()))
def test_every_backend_returns_what_serial_returns(envs, digest_of, how):
    expected = digest_of(envs.Walk, num_envs=8, agents=2)

    assert digest_of(envs.Walk, num_envs=8, agents=2, **how) == expected


def test_one_object_of_many_worlds_equals_many_objects_of_one(envs, digest_of):
    one = digest_of(envs.Walk, num_envs=6)
    many = digest_of(lambda buf=None: envs.Walk(1, buf=buf), num_envs=6)
    pairs = digest_of(envs.Walk, num_envs=3, env_kwargs={"num_envs": 2})

    assert one == many == pairs


def test_envs_that_cannot_rebind_are_built_again_in_their_rows(envs, digest_of):
    expected = digest_of(envs.Walk, num_envs=4)

    assert digest_of(envs.Walk, num_envs=4, rebinds=False) == expected
    assert digest_of(envs.Walk, num_envs=4, rebinds=False, backend="threads", num_workers=2) == expected
    assert digest_of(envs.Walk, num_envs=4, rebinds=False, backend="processes", num_workers=2) == expected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    objects=st.sampled_from(["one", "each"]),
    num_envs=st.sampled_from([2, 4, 6, 64]),
    backend=st.sampled_from(["serial", "threads", "processes"]),
    workers=st.sampled_from([1, 2]),
    batches=st.sampled_from([1, 2]),
    with_capsule=st.booleans(),
    seed=st.integers(0, 3),
)
def test_drawn_settings_give_the_digest_of_one_serial_object(
    native, digest_of, objects, num_envs, backend, workers, batches, with_capsule, seed
):
    expected = digest_of(native, num_envs=num_envs, seed=seed, num_steps=20)
    how = {"backend": backend, "batch_size": num_envs // batches}
    if backend != "serial":
        how["num_workers"] = max(workers, batches)
    env = native if objects == "one" else lambda with_capsule, buf=None: native(1, with_capsule=with_capsule, buf=buf)

    found = digest_of(env, num_envs=num_envs, seed=seed, num_steps=20, with_capsule=with_capsule, **how)

    assert found == expected


def test_other_seeds_and_no_seed_give_other_worlds(envs, digest_of):
    first = digest_of(envs.Walk, num_envs=4, seed=1)

    assert digest_of(envs.Walk, num_envs=4, seed=2) != first
    assert digest_of(envs.Walk, num_envs=4, seed=None) != digest_of(envs.Walk, num_envs=4, seed=None)


def test_a_vector_env_of_vector_envs_equals_a_flat_one(envs, digest_of):
    def inner(buf=None, seed=None):
        return puffer_vector.make(envs.Walk, num_envs=2, seed=seed, agents=2, backend="threads", num_workers=2)

    expected = digest_of(envs.Walk, num_envs=4, agents=2)

    assert digest_of(inner, num_envs=2) == expected
    assert digest_of(inner, num_envs=2, backend="processes", num_workers=2) == expected
