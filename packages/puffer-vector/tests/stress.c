/* Many rounds of the pool and of the signals between threads, meant to be built with -fsanitize=thread. */
#include "native/pool.h"

#undef NDEBUG
#include <assert.h>

enum { JOBS = 4, THREADS = 3, SLICES = 8, WORLDS = 1024, ROUNDS = 400, WORKERS = 3 };
static const int64_t LONG_NS = 60000000000;

static int64_t cells[JOBS * WORLDS];
static SignalCaller caller;
static SignalSlot slots[WORKERS];
static int64_t sums[WORKERS];

static void count_steps(void *context, int64_t first, int64_t last) {
    (void)context;
    for (int64_t i = first; i < last; i++) cells[i] += 1;
}

static void stress_pool(int may_spin, int use_futex) {
    PoolJob jobs[JOBS];
    PoolTask slices[JOBS][SLICES], wholes[JOBS];
    PoolRange ranges[JOBS][THREADS + 1];
    const int32_t all[JOBS] = {0, 1, 2, 3};
    memset(jobs, 0, sizeof jobs);
    memset(cells, 0, sizeof cells);
    for (int j = 0; j < JOBS; j++) {
        wholes[j] = (PoolTask){count_steps, NULL, j * WORLDS, (j + 1) * WORLDS};
        for (int s = 0; s < SLICES; s++) {
            int64_t first = j * WORLDS + s * (WORLDS / SLICES);
            slices[j][s] = (PoolTask){count_steps, NULL, first, first + WORLDS / SLICES};
        }
        for (int t = 0; t <= THREADS; t++)
            ranges[j][t] = (PoolRange){.first = t * SLICES / (THREADS + 1), .last = (t + 1) * SLICES / (THREADS + 1)};
        jobs[j].ranges = ranges[j];
        jobs[j].slices = slices[j], jobs[j].wholes = wholes + j;
        jobs[j].num_slices = jobs[j].done = SLICES, jobs[j].num_wholes = 1;
    }
    Pool pool = {.num_jobs = JOBS, .num_threads = THREADS, .caller_helps = 1, .jobs = jobs};
    pool.waiter = (SignalWaiter){.spin_ns = 5000, .use_futex = use_futex, .may_spin = may_spin};
    assert(!pool_start(&pool));
    for (int round = 0; round < ROUNDS; round++) {
        for (int j = 0; j < JOBS; j++) pool_submit(&pool, jobs + j);
        assert(pool_wait(&pool, all, JOBS, 1, LONG_NS) == 1);
        assert(pool_wait(&pool, all, JOBS, JOBS, LONG_NS) == 1);
        for (int j = 0; j < JOBS; j++) assert(pool_run(&pool, j, LONG_NS) == 1);
        for (int i = 0; i < JOBS * WORLDS; i++) assert(cells[i] == 2 * (round + 1));
    }
    pool_stop(&pool);
}

static void *serve(void *argument) {
    int k = (int)(intptr_t)argument;
    SignalWaiter waiter = {.spin_ns = 2000, .use_futex = k != 1, .may_spin = k != 2};
    for (uint32_t last = slots[k].reply, command = 0; command != 9;) {
        if (signal_wait_request(&waiter, slots + k, last, 1000000000) != 1) continue;
        last = slots[k].request;
        command = slots[k].command;
        sums[k] += command;
        slots[k].status = (uint32_t)sums[k];
        signal_finish(&caller, slots + k, last, 1);
    }
    return NULL;
}

static void stress_signals(void) {
    pthread_t threads[WORKERS];
    SignalWaiter waiter = {.spin_ns = 2000, .use_futex = 1, .may_spin = 1};
    const int32_t all[WORKERS] = {0, 1, 2};
    int64_t sum = 0;
    for (int k = 0; k < WORKERS; k++) assert(!pthread_create(threads + k, NULL, serve, (void *)(intptr_t)k));
    for (int round = 1; round < ROUNDS; round++) {
        for (int k = 0; k < WORKERS; k++) signal_post(slots + k, (uint32_t)(round % 7), 1);
        sum += round % 7;
        assert(signal_wait_replies(&waiter, &caller, slots, all, WORKERS, 1 + round % WORKERS, LONG_NS) == 1);
        assert(signal_wait_replies(&waiter, &caller, slots, all, WORKERS, WORKERS, LONG_NS) == 1);
        for (int k = 0; k < WORKERS; k++) assert(sums[k] == sum && slots[k].status == (uint32_t)sum);
        if (round % 50 == 0) usleep(300); /* long enough for the workers to park */
    }
    for (int k = 0; k < WORKERS; k++) signal_post(slots + k, 9, 1);
    for (int k = 0; k < WORKERS; k++) pthread_join(threads[k], NULL);
}

int main(void) {
    stress_pool(1, 1);
    stress_pool(0, 1);
    stress_pool(1, 0);
    stress_signals();
    return 0;
}
