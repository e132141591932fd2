"""The pool that steps native envs through their capsules."""

import ctypes

import numpy as np
import pytest

from puffer_vector._pool import StepPool, capsule_worlds


def stepped(native, num_envs, num_steps, step):
    """Return the observations and rewards of `num_steps` steps, each made by step(env)."""
    env = native(num_envs)
    env.reset(seed=5)
    seen = []
    for number in range(num_steps):
        env.actions[:] = (np.arange(num_envs) + number) % 5
        step(env)
        env.finish_step()
        seen.append((env.observations.copy(), env.rewards.copy(), env.terminals.copy()))
    return [np.concatenate(arrays) for arrays in zip(*seen, strict=True)]


@pytest.mark.parametrize("num_threads", [0, 1, 3])
@pytest.mark.parametrize("use_futex", [True, False])
@pytest.mark.parametrize("offered", [True, False])
def test_slices_by_any_thread_give_what_one_call_gives(native, num_threads, use_futex, offered):
    expected = stepped(native, 1000, 30, lambda env: env.step(env.actions))
    pool = StepPool(num_threads, 1, True, True, use_futex)
    job = np.zeros(1, np.int32)

    def step(env):
        if env.num_steps == 0:
            pool.set_job(0, [env.step_capsule()])
        if offered:
            pool.submit(0)
            assert pool.wait(job, 1, 10.0)
        else:
            assert pool.run(0, 10.0)

    found = stepped(native, 1000, 30, step)
    pool.close()
    assert all(np.array_equal(mine, its) for mine, its in zip(expected, found, strict=True))


def test_costly_work_is_shared_and_small_work_is_not(native):
    pool = StepPool(1, 2)
    cheap, costly = native(64), native(4096, spin=200)
    for job, env in enumerate((cheap, costly)):
        env.reset(seed=0)
        pool.set_job(job, [env.step_capsule()])
    for _ in range(300):
        pool.run(0, 10.0)
        pool.run(1, 10.0)
    pool.close()

    assert pool.times_ns(0)[1] == 0
    assert pool.times_ns(1)[1] > 0


def test_many_jobs_at_once_are_all_done(native):
    envs = [native(100 + n) for n in range(5)]
    pool = StepPool(2, 5)
    for job, env in enumerate(envs):
        env.reset(seed=job)
        pool.set_job(job, [env.step_capsule()])
    jobs = np.arange(5, dtype=np.int32)
    for _ in range(200):
        for job in range(5):
            pool.submit(job)
        assert pool.wait(jobs, 1, 10.0)
        assert pool.wait(jobs, 5, 10.0)
        assert all(pool.is_done(job) for job in range(5))
        for env in envs:
            env.finish_step()
    pool.close()

    for job, env in enumerate(envs):
        alone = native(100 + job)
        alone.reset(seed=job)
        for _ in range(200):
            alone.step(alone.actions)
        assert np.array_equal(alone.observations, env.observations)


def test_slices_start_at_multiples_of_what_the_env_asks_for(native):
    starts = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        lambda _context, first, last: starts.append((first, last))
    )
    env = native(1000, slice_multiple=96)
    env.reset(seed=0)
    capsule = env.step_capsule()
    ctypes.memmove(ctypes.addressof(env.capsule_struct) + 40, ctypes.byref(callback), 8)
    pool = StepPool(0, 1)
    pool.set_job(0, [capsule])
    pool.submit(0)
    assert pool.wait(np.zeros(1, np.int32), 1, 1.0)

    assert all(first % 96 == 0 for first, _ in starts)
    assert [first for first, _ in starts[1:]] == [last for _, last in starts[:-1]]
    assert starts[-1][1] == 1000
    assert len(starts) > 1


def test_foreign_and_wrong_capsules_are_refused(native):
    env = native(8)
    env.reset(seed=0)
    assert capsule_worlds(env.step_capsule()) == (8, 1)
    with pytest.raises(TypeError, match=r"PyCapsule named 'puffer\.step\.v1'"):
        capsule_worlds(object())
    env.capsule_struct[0:4] = (2).to_bytes(4, "little")
    with pytest.raises(ValueError, match="abi_version 1"):
        capsule_worlds(env.step_capsule())
    env.capsule_struct[0:4] = (1).to_bytes(4, "little")
    env.capsule_struct[16:24] = bytes(8)
    with pytest.raises(ValueError, match="must have positive num_worlds"):
        capsule_worlds(env.step_capsule())
    with pytest.raises(IndexError, match="job must be in"):
        StepPool(0, 1).run(1, 1.0)
    with pytest.raises(ValueError, match="num_threads must be at least 1"):
        StepPool(0, 1, caller_helps=False)
