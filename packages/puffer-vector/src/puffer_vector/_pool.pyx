# Threads that step native environments through their capsules; native/pool.h has the algorithm.
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free

cdef extern from "native/pool.h" nogil:
    const uint32_t STATE_MASK
    const int64_t SPIN_MAX_NS
    const bint PUFFER_HAS_FUTEX

    ctypedef void (*StepFunction)(void *context, int64_t first_world, int64_t last_world)

    ctypedef struct StepCapsule:
        uint32_t abi_version
        uint32_t struct_size
        void *ctx
        int64_t num_worlds
        int64_t rows_per_world
        int64_t slice_multiple
        StepFunction step

    ctypedef struct PoolTask:
        StepFunction step
        void *context
        int64_t first_world
        int64_t last_world

    ctypedef struct PoolRange:
        uint32_t first
        uint32_t last

    ctypedef struct PoolJob:
        uint32_t done
        uint32_t num_slices
        uint32_t num_wholes
        PoolRange *ranges
        PoolTask *slices
        PoolTask *wholes
        int64_t alone_ns
        int64_t shared_ns

    ctypedef struct SignalWaiter:
        int64_t spin_ns
        bint use_futex
        bint may_spin

    ctypedef struct Pool:
        int num_jobs
        int num_threads
        int caller_helps
        PoolJob *jobs
        SignalWaiter waiter

    bint pool_job_is_done(PoolJob *job)
    bint pool_is_small(Pool *pool, PoolJob *job)
    void pool_submit(Pool *pool, PoolJob *job)
    int pool_wait(Pool *pool, const int32_t *indices, int num_indices, int count, int64_t timeout_ns)
    int pool_run(Pool *pool, int32_t index, int64_t timeout_ns)
    int pool_start(Pool *pool)
    void pool_stop(Pool *pool)

CAPSULE_NAME = "puffer.step.v1"
cdef const char *_CAPSULE_NAME = "puffer.step.v1"


cdef StepCapsule *_opened(object capsule) except NULL:
    if not PyCapsule_IsValid(capsule, _CAPSULE_NAME):
        raise TypeError(f"step_capsule() must return a PyCapsule named {CAPSULE_NAME!r}; got {capsule!r}.")
    cdef StepCapsule *step = <StepCapsule *>PyCapsule_GetPointer(capsule, _CAPSULE_NAME)
    if step.abi_version != 1 or step.struct_size < sizeof(StepCapsule):
        raise ValueError(f"a {CAPSULE_NAME} capsule must have abi_version 1 and struct_size of at least "
                         f"{sizeof(StepCapsule)}; got {step.abi_version} and {step.struct_size}. Rebuild the env.")
    if step.num_worlds < 1 or step.rows_per_world < 1 or step.slice_multiple < 1:
        raise ValueError(f"a {CAPSULE_NAME} capsule must have positive num_worlds, rows_per_world and slice_multiple; "
                         f"got {step.num_worlds}, {step.rows_per_world} and {step.slice_multiple}.")
    return step


def capsule_worlds(capsule):
    """Return (num_worlds, rows_per_world) of a step capsule.

    Raises:
        TypeError: It is no capsule of that name.
        ValueError: It has another version or impossible sizes.
    """
    cdef StepCapsule *step = _opened(capsule)
    return step.num_worlds, step.rows_per_world


cdef class StepPool:
    """A pool of threads beside the calling one, and the jobs they work on.

    Args:
        num_threads: Threads beside the calling one; 0 leaves all work to it.
        num_jobs: Number of jobs, each of which may run at any time.
        spin: Whether idle threads spin for a while before parking.
        caller_helps: Whether the calling thread takes part in the work it waits for.
        use_futex: False to park by sleeping, as on systems without futexes.
    """

    cdef Pool *_pool
    cdef list _capsules
    cdef int _num_sharing
    cdef bint _is_left

    def __cinit__(self, int num_threads, int num_jobs, bint spin=True, bint caller_helps=True,
                  bint use_futex=PUFFER_HAS_FUTEX):
        if num_threads < (not caller_helps):
            raise ValueError(f"num_threads must be at least {int(not caller_helps)}; got {num_threads}.")
        self._pool = <Pool *>calloc(1, sizeof(Pool))
        if self._pool == NULL:
            raise MemoryError
        self._pool.jobs = <PoolJob *>calloc(max(num_jobs, 1), sizeof(PoolJob))
        if self._pool.jobs == NULL:
            raise MemoryError
        for job in range(num_jobs):
            self._pool.jobs[job].ranges = <PoolRange *>calloc(num_threads + caller_helps, sizeof(PoolRange))
            if self._pool.jobs[job].ranges == NULL:
                raise MemoryError
        self._capsules = [()] * num_jobs
        self._pool.num_jobs = num_jobs
        self._pool.num_threads = num_threads
        self._num_sharing = num_threads + caller_helps
        self._pool.caller_helps = caller_helps
        self._is_left = False
        self._pool.waiter.may_spin = spin
        self._pool.waiter.use_futex = use_futex and PUFFER_HAS_FUTEX
        self._pool.waiter.spin_ns = SPIN_MAX_NS
        if pool_start(self._pool):
            pool_stop(self._pool)
            raise OSError(f"cannot start {num_threads} threads")

    def __dealloc__(self):
        if self._pool == NULL or self._is_left:
            return
        with nogil:
            pool_stop(self._pool)
        for job in range(self._pool.num_jobs):
            free(self._pool.jobs[job].ranges)
            free(self._pool.jobs[job].slices)
            free(self._pool.jobs[job].wholes)
        free(self._pool.jobs)
        free(self._pool)

    cdef PoolJob *_job(self, int job) except NULL:
        if job < 0 or job >= self._pool.num_jobs:
            raise IndexError(f"job must be in [0, {self._pool.num_jobs}); got {job}.")
        return self._pool.jobs + job

    def set_job(self, int job, capsules, slices_per_thread=4):
        """Give job `job` its work: one step of the env behind each of `capsules`.

        The capsules are kept alive until the pool is.
        """
        cdef PoolJob *place = self._job(job)
        cdef StepCapsule *step
        cdef int64_t first, size
        total = sum(_opened(capsule).num_worlds for capsule in capsules)
        target = -(-total // (self._num_sharing * slices_per_thread))
        bounds = []
        for capsule in capsules:
            step = _opened(capsule)
            size = -(-target // step.slice_multiple) * step.slice_multiple
            bounds.append([(first, min(first + size, step.num_worlds)) for first in range(0, step.num_worlds, size)])
        num_slices = sum(len(slices) for slices in bounds)
        if num_slices > STATE_MASK:
            raise ValueError(f"a job must have at most {STATE_MASK} slices; got {num_slices}. Use batched envs.")
        free(place.slices)
        free(place.wholes)
        place.num_slices = 0
        place.num_wholes = 0
        place.slices = <PoolTask *>calloc(max(num_slices, 1), sizeof(PoolTask))
        place.wholes = <PoolTask *>calloc(max(len(bounds), 1), sizeof(PoolTask))
        if place.slices == NULL or place.wholes == NULL:
            raise MemoryError
        cdef PoolTask *task = place.slices
        for index, capsule in enumerate(capsules):
            step = _opened(capsule)
            place.wholes[index] = PoolTask(step.step, step.ctx, 0, step.num_worlds)
            for low, high in bounds[index]:
                task[0] = PoolTask(step.step, step.ctx, low, high)
                task += 1
        place.num_wholes = <uint32_t>len(bounds)
        place.alone_ns = 0
        place.shared_ns = 0
        self._capsules[job] = tuple(capsules)
        for thread in range(self._num_sharing):
            place.ranges[thread].first = <uint32_t>(thread * num_slices // self._num_sharing)
            place.ranges[thread].last = <uint32_t>((thread + 1) * num_slices // self._num_sharing)
        place.done = <uint32_t>num_slices
        place.num_slices = <uint32_t>num_slices

    def run(self, int job, double timeout_s):
        """Carry out job `job`, the calling thread taking part.

        Returns:
            False when pool threads were still at it when the time was up; then call `wait`.
        """
        self._job(job)
        cdef int result
        cdef int64_t timeout_ns = <int64_t>(timeout_s * 1e9)
        with nogil:
            result = pool_run(self._pool, job, timeout_ns)
        if result < 0:
            PyErr_CheckSignals()
        return result == 1

    def submit(self, int job):
        """Offer job `job` to the pool's threads and return at once."""
        pool_submit(self._pool, self._job(job))

    def wait(self, const int32_t[::1] jobs not None, int count, double timeout_s):
        """Take part in `jobs` and wait until `count` of them are done.

        Returns:
            False when the time was up first. A Python signal handler may run and raise.
        """
        cdef int result
        cdef int num_jobs = <int>jobs.shape[0]
        cdef int64_t timeout_ns = <int64_t>(timeout_s * 1e9)
        for index in range(num_jobs):
            self._job(jobs[index])
        if num_jobs == 0:
            return True
        with nogil:
            result = pool_wait(self._pool, &jobs[0], num_jobs, count, timeout_ns)
        if result < 0:
            PyErr_CheckSignals()
        return result == 1

    def is_done(self, int job):
        """Return whether job `job` is not running."""
        return pool_job_is_done(self._job(job))

    def close(self):
        """End the threads, which must be idle or about to be. Jobs can still be asked about, and not be run."""
        if not self._is_left:
            with nogil:
                pool_stop(self._pool)

    def leave(self):
        """Give up a thread that is stuck in an env: threads and jobs stay for good, and so must the envs."""
        self._is_left = True

    def is_small(self, int job):
        """Return whether `run` leaves job `job` to the calling thread: it is one slice, or shorter than a hand-over."""
        return pool_is_small(self._pool, self._job(job))

    def times_ns(self, int job):
        """Return the average times of a step of job `job`, alone and shared; 0 where not measured."""
        cdef PoolJob *place = self._job(job)
        return place.alone_ns, place.shared_ns
