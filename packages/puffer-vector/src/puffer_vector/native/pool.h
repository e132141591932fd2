/* Threads that step native environments in slices, without the interpreter's lock.
 *
 * A job is the work of one batch: a list of slices (step function, context, first world, last world). Each thread, the
 * calling one included, begins with a range of its own, the same at every step, because its worlds are still in its
 * core's cache: moving them to another core costs more than stepping them. Whoever is done with its own range takes
 * slices from the far end of the others'. A slice is claimed with one compare-and-swap. Slices write disjoint rows, so
 * who steps which changes no result.
 *
 * Whether a synchronous job is worth sharing is measured, not guessed: both ways are timed, the faster one is taken,
 * and the other is tried again rarely enough to cost at most PROBE_SHARE of the time.
 */
#ifndef PUFFER_POOL_H
#define PUFFER_POOL_H

#include <signal.h>
#include <string.h>

#include "signal.h"

#define PROBE_BURST 6         /* consecutive tries of the other way; the first ones pay for waking the threads */
#define PROBE_SHARE 50        /* the tries take at most 1/50 of the time */
#define PROBE_MIN_CALLS 200
#define ALONE_BELOW_NS 3000   /* work this small is never shared */
#define STATE_BITS 22         /* a range's state word: generation, end, next slice */
#define STATE_MASK ((1u << STATE_BITS) - 1)

typedef void (*StepFunction)(void *context, int64_t first_world, int64_t last_world);

/* What the capsule "puffer.step.v1" points to. */
typedef struct {
    uint32_t abi_version;
    uint32_t struct_size;
    void *ctx;
    int64_t num_worlds;
    int64_t rows_per_world;
    int64_t slice_multiple; /* slices start at multiples of this, so that no two share a cache line */
    StepFunction step;
} StepCapsule;

typedef struct {
    StepFunction step;
    void *context;
    int64_t first_world;
    int64_t last_world;
} PoolTask;

typedef struct {
    uint64_t state; /* generation << 44 | end << 22 | next: the slices that nobody has claimed */
    uint32_t first; /* the range of this thread: slices [first, last) */
    uint32_t last;
    uint64_t pad[6];
} PoolRange;

typedef struct {
    uint32_t done;       /* slices finished */
    uint32_t num_slices;
    PoolRange *ranges;   /* one for each of the pool's threads, then one for the caller if it helps */
    PoolTask *slices;
    PoolTask *wholes;    /* the same work, one entry an env, for the thread that does it alone */
    uint32_t num_wholes;
    uint32_t probe_left;
    uint64_t calls_to_probe;
    int64_t alone_ns;    /* moving averages of the time of a step; 0 when not measured */
    int64_t shared_ns;
    uint64_t pad[7];
} PoolJob;

typedef struct Pool Pool;

typedef struct {
    Pool *pool;
    int index;
    pthread_t handle;
} PoolThread;

struct Pool {
    uint32_t submitted; /* changes when there is new work; idle threads park on it */
    uint32_t parked;    /* idle threads that sleep, or are about to */
    uint32_t stop;
    uint32_t thread_pad[13];
    uint32_t finished; /* changes when a job is done; the caller parks on it */
    uint32_t caller_parked;
    uint32_t caller_pad[14];
    int num_jobs;
    int num_threads;
    int caller_helps; /* 0: the caller must look at the clock, so it may not get stuck in an env */
    PoolJob *jobs;
    PoolThread *threads;
    SignalWaiter waiter; /* the caller's; each thread has its own */
};

static inline int pool_job_is_done(PoolJob *job) { return PUFFER_LOAD(&job->done) == job->num_slices; }

/* Threads that take slices; the caller, if it helps, is the last of them. */
static inline int pool_num_sharing(const Pool *pool) { return pool->num_threads + !!pool->caller_helps; }

/* Claims a slice of a range: its owner from the front, others from the back. Returns its index, or -1. */
static inline int64_t pool_claim(PoolRange *range, int is_owner) {
    uint64_t state = PUFFER_LOAD(&range->state), after;
    uint32_t next, end;
    do {
        next = state & STATE_MASK;
        end = (state >> STATE_BITS) & STATE_MASK;
        if (next >= end) return -1;
        after = is_owner ? state + 1 : state - ((uint64_t)1 << STATE_BITS);
    } while (!__atomic_compare_exchange_n(&range->state, &state, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return is_owner ? next : end - 1;
}

/* Runs one slice of a job as thread `self`. Returns 0 when none was left. */
static inline int pool_run_one(Pool *pool, PoolJob *job, int self) {
    int num_sharing = pool_num_sharing(pool);
    int64_t claimed = pool_claim(job->ranges + self, 1);
    for (int i = 1; claimed < 0 && i < num_sharing; i++) claimed = pool_claim(job->ranges + (self + i) % num_sharing, 0);
    if (claimed < 0) return 0;
    PoolTask task = job->slices[claimed];
    uint32_t num_slices = job->num_slices;
    task.step(task.context, task.first_world, task.last_world);
    if (__atomic_add_fetch(&job->done, 1, __ATOMIC_SEQ_CST) == num_slices) {
        __atomic_add_fetch(&pool->finished, 1, __ATOMIC_SEQ_CST);
        if (PUFFER_EXCHANGE(&pool->caller_parked, 0)) signal_wake(&pool->finished, 1, pool->waiter.use_futex);
    }
    return 1;
}

static inline int pool_run_any(Pool *pool, int self) {
    int ran = 0;
    for (int i = 0; i < pool->num_jobs; i++)
        while (pool_run_one(pool, pool->jobs + i, self)) ran = 1;
    return ran;
}

static void *pool_thread(void *argument) {
    Pool *pool = ((PoolThread *)argument)->pool;
    int self = ((PoolThread *)argument)->index;
    SignalWaiter waiter = {SPIN_MAX_NS, 0, pool->waiter.use_futex, pool->waiter.may_spin};
    while (!PUFFER_LOAD(&pool->stop)) {
        uint32_t seen = PUFFER_LOAD(&pool->submitted);
        if (pool_run_any(pool, self)) continue;
        int64_t start = signal_now_ns(), now = start, sleep_ns = SLEEP_MIN_NS;
        int64_t spin_end = waiter.may_spin ? start + waiter.spin_ns : start;
        while (PUFFER_LOAD(&pool->submitted) == seen && !PUFFER_LOAD(&pool->stop)) {
            if (now < spin_end) {
                for (int i = 0; i < 32 && PUFFER_LOAD(&pool->submitted) == seen; i++) signal_pause();
            } else {
                __atomic_add_fetch(&pool->parked, 1, __ATOMIC_SEQ_CST);
                if (PUFFER_LOAD(&pool->submitted) == seen && !PUFFER_LOAD(&pool->stop))
                    signal_park(&pool->submitted, seen, 1000000000, &sleep_ns, waiter.use_futex);
                __atomic_sub_fetch(&pool->parked, 1, __ATOMIC_SEQ_CST);
            }
            now = signal_now_ns();
        }
        signal_adapt(&waiter, signal_now_ns() - start);
    }
    return NULL;
}

/* Offers a job to the pool's threads. The job's last run must be over. */
static inline void pool_submit(Pool *pool, PoolJob *job) {
    uint64_t generation = (PUFFER_LOAD(&job->ranges[0].state) >> (2 * STATE_BITS)) + 1;
    PUFFER_STORE(&job->done, 0);
    for (int i = 0; i < pool_num_sharing(pool); i++) {
        PoolRange *range = job->ranges + i;
        uint64_t whole = (uint64_t)range->last << STATE_BITS | range->first;
        PUFFER_STORE(&range->state, generation << (2 * STATE_BITS) | whole);
    }
    __atomic_add_fetch(&pool->submitted, 1, __ATOMIC_SEQ_CST);
    uint32_t parked = PUFFER_LOAD(&pool->parked);
    if (parked) {
        uint32_t useful = job->num_slices < parked ? job->num_slices : parked;
        signal_wake(&pool->submitted, (int)useful, pool->waiter.use_futex);
    }
}

static inline int pool_count_done(Pool *pool, const int32_t *indices, int num_indices) {
    int ready = 0;
    for (int i = 0; i < num_indices; i++) ready += pool_job_is_done(pool->jobs + indices[i]);
    return ready;
}

/* Works on the named jobs, if the caller helps, and waits until `count` of them are done: 1, or 0 when the time is up, -1 on a signal. */
static inline int pool_wait(Pool *pool, const int32_t *indices, int num_indices, int count, int64_t timeout_ns) {
    for (int i = 0; i < num_indices && pool->caller_helps; i++) {
        if (pool_count_done(pool, indices, num_indices) >= count) return 1;
        while (pool_run_one(pool, pool->jobs + indices[i], pool->num_threads)) continue;
    }
    SignalWaiter *waiter = &pool->waiter;
    int64_t start = signal_now_ns(), now = start, sleep_ns = SLEEP_MIN_NS;
    int64_t spin_end = waiter->may_spin ? start + waiter->spin_ns : start;
    while (1) {
        uint32_t seen = PUFFER_LOAD(&pool->finished);
        if (pool_count_done(pool, indices, num_indices) >= count) break;
        if (now >= spin_end) {
            if (now - start >= timeout_ns) return 0;
            PUFFER_STORE(&pool->caller_parked, 1);
            int interrupted = 0;
            if (pool_count_done(pool, indices, num_indices) < count)
                interrupted = signal_park(&pool->finished, seen, start + timeout_ns - now, &sleep_ns, waiter->use_futex) < 0;
            PUFFER_STORE(&pool->caller_parked, 0);
            if (interrupted) return -1;
        } else {
            for (int i = 0; i < 32 && PUFFER_LOAD(&pool->finished) == seen; i++) signal_pause();
        }
        now = signal_now_ns();
    }
    signal_adapt(waiter, now - start);
    return 1;
}

/* Follows the usual time of a step: a step during which the thread was interrupted counts little. */
static inline void pool_average(int64_t *average, int64_t sample) {
    int64_t usual = *average;
    if (usual == 0 || sample < usual) *average = usual == 0 ? sample : usual + (sample - usual) / 2;
    else *average = usual + ((sample < 2 * usual ? sample : 2 * usual) - usual) / 8;
}

/* Whether there is nothing to share, or less work than sharing it would cost. */
static inline int pool_is_small(const Pool *pool, const PoolJob *job) {
    if (!pool->caller_helps) return 0;
    return !pool->num_threads || job->num_slices < 2 || (job->alone_ns && job->alone_ns < ALONE_BELOW_NS);
}

/* Whether this run of a job is shared with the pool's threads. */
static inline int pool_shares(Pool *pool, PoolJob *job) {
    if (!pool->caller_helps) return 1;
    if (pool_is_small(pool, job) || !job->alone_ns) return 0;
    int best = job->shared_ns && job->shared_ns < job->alone_ns;
    if (job->probe_left) {
        job->probe_left--;
        return !best;
    }
    if (job->calls_to_probe) {
        job->calls_to_probe--;
        return best;
    }
    int64_t good = best ? job->shared_ns : job->alone_ns;
    int64_t other = best ? job->alone_ns : job->shared_ns ? job->shared_ns : 2 * good;
    int64_t cost = other > good ? other - good : 0;
    uint64_t calls = (uint64_t)(PROBE_BURST * PROBE_SHARE * cost / (good + 1));
    job->calls_to_probe = calls < PROBE_MIN_CALLS ? PROBE_MIN_CALLS : calls;
    job->probe_left = PROBE_BURST;
    return best;
}

/* Runs a job to its end, the calling thread taking part. Returns as pool_wait. */
static inline int pool_run(Pool *pool, int32_t index, int64_t timeout_ns) {
    PoolJob *job = pool->jobs + index;
    int shares = pool_shares(pool, job), result = 1;
    int64_t start = signal_now_ns();
    if (shares) {
        pool_submit(pool, job);
        result = pool_wait(pool, &index, 1, 1, timeout_ns);
    } else {
        for (uint32_t i = 0; i < job->num_wholes; i++) {
            PoolTask task = job->wholes[i];
            task.step(task.context, task.first_world, task.last_world);
        }
    }
    pool_average(shares ? &job->shared_ns : &job->alone_ns, signal_now_ns() - start);
    return result;
}

static inline int pool_start(Pool *pool) {
    sigset_t all, before; /* signals are for the interpreter's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int started = 0;
    pool->threads = calloc((size_t)pool->num_threads + 1, sizeof *pool->threads);
    while (pool->threads && started < pool->num_threads) {
        PoolThread *thread = pool->threads + started;
        thread->pool = pool;
        thread->index = started;
        if (pthread_create(&thread->handle, NULL, pool_thread, thread)) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started == pool->num_threads) return 0;
    pool->num_threads = started; /* those that pool_stop has to join */
    return -1;
}

static inline void pool_stop(Pool *pool) {
    PUFFER_STORE(&pool->stop, 1);
    __atomic_add_fetch(&pool->submitted, 1, __ATOMIC_SEQ_CST);
    signal_wake(&pool->submitted, 1 << 30, pool->waiter.use_futex);
    for (int i = 0; i < pool->num_threads; i++) pthread_join(pool->threads[i].handle, NULL);
    pool->num_threads = 0;
    free(pool->threads);
    pool->threads = NULL;
}

#endif
