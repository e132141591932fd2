/* Requests and replies between one caller and its workers, through memory that threads or processes share.
 *
 *   caller                                   worker k
 *   slot[k].command = STEP
 *   slot[k].request += 1, wake if parked ->  waits until request changes
 *   need = number of replies awaited         ... steps ...
 *   waits until need <= 0                <-  slot[k].reply = request; if it was awaited: need -= 1, wake at 0
 *
 * A waiter spins for a bounded time (only so many that no CPU is wanted twice), then parks: on a futex under Linux, by
 * sleeping for growing times elsewhere. A woken waiter always looks again, so a lost or a spurious wake-up costs time
 * and never an answer. Only the last awaited reply wakes the caller.
 */
#ifndef PUFFER_SIGNAL_H
#define PUFFER_SIGNAL_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#define PUFFER_HAS_FUTEX 1
#else
#define PUFFER_HAS_FUTEX 0
#endif

#define PUFFER_LOAD(place) __atomic_load_n((place), __ATOMIC_SEQ_CST)
#define PUFFER_STORE(place, value) __atomic_store_n((place), (value), __ATOMIC_SEQ_CST)
#define PUFFER_EXCHANGE(place, value) __atomic_exchange_n((place), (value), __ATOMIC_SEQ_CST)

#define SPIN_MAX_NS 100000 /* about twice what waking a parked thread costs */
#define SPIN_MIN_NS 1000
#define PARKS_TO_PROBE 32  /* a waiter that had to park so often in a row tries a long spin again */
#define SLEEP_MIN_NS 20000
#define SLEEP_MAX_NS 2000000

typedef struct {
    uint32_t request;        /* number of the last request */
    uint32_t command;        /* what that request asks for */
    uint32_t parked;         /* 1 while the worker sleeps, or is about to */
    uint32_t caller_pad[13]; /* the worker writes to a cache line of its own */
    uint32_t reply;          /* number of the last request that was carried out */
    uint32_t awaited;        /* 1 while the caller counts on this reply */
    uint32_t status;         /* outcome of that request */
    uint32_t num_records;    /* episode records left in the slot's ring */
    uint64_t message_bytes;  /* length of the slot's message */
    uint64_t progress;       /* env object being stepped, for the report about a worker that died */
    uint32_t worker_pad[8];
} SignalSlot;

typedef struct {
    int32_t need; /* replies the caller still waits for */
    uint32_t pad[15];
} SignalCaller;

typedef struct {
    int64_t spin_ns;  /* how long the next wait spins; adapts between the bounds above */
    int parks;        /* waits since the last long spin that ended in a park */
    int use_futex;
    int may_spin;     /* 0 when threads outnumber CPUs */
} SignalWaiter;

static inline int64_t signal_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void signal_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline void signal_wake(uint32_t *word, int num_threads, int use_futex) {
#if PUFFER_HAS_FUTEX
    if (use_futex) syscall(SYS_futex, word, FUTEX_WAKE, num_threads, NULL, NULL, 0);
#else
    (void)word, (void)num_threads, (void)use_futex;
#endif
}

/* Sleeps while *word is `seen`, at most timeout_ns. Returns -1 when a signal handler ran, else 0. */
static inline int signal_park(uint32_t *word, uint32_t seen, int64_t timeout_ns, int64_t *sleep_ns, int use_futex) {
    if (timeout_ns <= 0) return 0;
#if PUFFER_HAS_FUTEX
    if (use_futex) {
        struct timespec limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        return syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0) == -1 && errno == EINTR ? -1 : 0;
    }
#endif
    (void)use_futex;
    if (PUFFER_LOAD(word) != seen) return 0;
    if (*sleep_ns > timeout_ns) *sleep_ns = timeout_ns;
    struct timespec pause = {*sleep_ns / 1000000000, *sleep_ns % 1000000000};
    int interrupted = nanosleep(&pause, NULL) == -1;
    if (*sleep_ns < SLEEP_MAX_NS) *sleep_ns += *sleep_ns / 2;
    return interrupted ? -1 : 0;
}

/* A wait that was spun through makes the next ones spin for long, whatever it lasted: parking in a rare long wait costs
 * more than the spinning before it. One that ended in a park makes the next spin for half as long. */
static inline void signal_adapt(SignalWaiter *waiter, int64_t waited_ns) {
    if (!waiter->may_spin) return;
    if (waited_ns <= waiter->spin_ns + SPIN_MIN_NS) {
        waiter->parks = 0;
        waiter->spin_ns *= 2;
    } else if (++waiter->parks < PARKS_TO_PROBE) {
        waiter->spin_ns /= 2;
    } else {
        waiter->parks = 0;
        waiter->spin_ns = SPIN_MAX_NS;
    }
    if (waiter->spin_ns > SPIN_MAX_NS) waiter->spin_ns = SPIN_MAX_NS;
    if (waiter->spin_ns < SPIN_MIN_NS) waiter->spin_ns = SPIN_MIN_NS;
}

static inline void signal_post(SignalSlot *slot, uint32_t command, int use_futex) {
    slot->command = command;
    PUFFER_STORE(&slot->request, slot->request + 1);
    if (PUFFER_EXCHANGE(&slot->parked, 0)) signal_wake(&slot->request, 1, use_futex);
}

/* Waits for a request other than `last`. Returns 1 when there is one, 0 when the time is up, -1 when a signal came. */
static inline int signal_wait_request(SignalWaiter *waiter, SignalSlot *slot, uint32_t last, int64_t timeout_ns) {
    if (PUFFER_LOAD(&slot->request) != last) return 1;
    int64_t start = signal_now_ns(), now = start, sleep_ns = SLEEP_MIN_NS;
    int64_t spin_end = waiter->may_spin ? start + waiter->spin_ns : start;
    while (now < spin_end) {
        for (int i = 0; i < 32; i++) {
            if (PUFFER_LOAD(&slot->request) != last) {
                signal_adapt(waiter, signal_now_ns() - start);
                return 1;
            }
            signal_pause();
        }
        now = signal_now_ns();
    }
    while (1) {
        PUFFER_STORE(&slot->parked, 1);
        if (PUFFER_LOAD(&slot->request) != last) break;
        if (now - start >= timeout_ns) {
            PUFFER_STORE(&slot->parked, 0);
            return PUFFER_LOAD(&slot->request) != last;
        }
        int interrupted = signal_park(&slot->request, last, start + timeout_ns - now, &sleep_ns, waiter->use_futex) < 0;
        now = signal_now_ns();
        if (PUFFER_LOAD(&slot->request) != last) break;
        if (interrupted) {
            PUFFER_STORE(&slot->parked, 0);
            return -1;
        }
    }
    PUFFER_STORE(&slot->parked, 0);
    signal_adapt(waiter, now - start);
    return 1;
}

static inline void signal_finish(SignalCaller *caller, SignalSlot *slot, uint32_t request, int use_futex) {
    PUFFER_STORE(&slot->reply, request);
    if (PUFFER_EXCHANGE(&slot->awaited, 0) && __atomic_fetch_sub(&caller->need, 1, __ATOMIC_SEQ_CST) == 1)
        signal_wake((uint32_t *)&caller->need, 1, use_futex);
}

static inline int signal_is_done(SignalSlot *slot) { return PUFFER_LOAD(&slot->reply) == slot->request; }

static inline int signal_count_replies(SignalSlot *slots, const int32_t *indices, int num_indices) {
    int ready = 0;
    for (int i = 0; i < num_indices; i++) ready += signal_is_done(slots + indices[i]);
    return ready;
}

/* One round of signal_wait_replies: a worker may still take back its count for an earlier wait, so that a round may
 * end early, but never late. */
static inline int signal_wait_round(SignalWaiter *waiter, SignalCaller *caller, SignalSlot *slots,
                                    const int32_t *indices, int num_indices, int count, int64_t deadline_ns) {
    PUFFER_STORE(&caller->need, count);
    for (int i = 0; i < num_indices; i++) {
        SignalSlot *slot = slots + indices[i];
        PUFFER_STORE(&slot->awaited, 1);
        if (PUFFER_LOAD(&slot->reply) == slot->request && PUFFER_EXCHANGE(&slot->awaited, 0))
            __atomic_fetch_sub(&caller->need, 1, __ATOMIC_SEQ_CST);
    }
    int64_t start = signal_now_ns(), now = start, sleep_ns = SLEEP_MIN_NS;
    int64_t spin_end = waiter->may_spin ? start + waiter->spin_ns : start;
    int result = 1;
    int32_t need;
    while ((need = PUFFER_LOAD(&caller->need)) > 0) {
        if (now < spin_end) {
            for (int i = 0; i < 32 && PUFFER_LOAD(&caller->need) > 0; i++) signal_pause();
            now = signal_now_ns();
            continue;
        }
        if (now >= deadline_ns) {
            result = 0;
            break;
        }
        int interrupted =
            signal_park((uint32_t *)&caller->need, (uint32_t)need, deadline_ns - now, &sleep_ns, waiter->use_futex) < 0;
        now = signal_now_ns();
        if (interrupted && PUFFER_LOAD(&caller->need) > 0) {
            result = -1;
            break;
        }
    }
    for (int i = 0; i < num_indices; i++) PUFFER_STORE(&slots[indices[i]].awaited, 0);
    if (result == 1) signal_adapt(waiter, now - start);
    return result;
}

/* Waits until `count` of the named slots have replied to their last request. Returns as signal_wait_request. */
static inline int signal_wait_replies(SignalWaiter *waiter, SignalCaller *caller, SignalSlot *slots,
                                      const int32_t *indices, int num_indices, int count, int64_t timeout_ns) {
    int64_t deadline_ns = 0;
    int result = 1;
    while (result == 1 && signal_count_replies(slots, indices, num_indices) < count) {
        if (!deadline_ns) deadline_ns = signal_now_ns() + timeout_ns;
        result = signal_wait_round(waiter, caller, slots, indices, num_indices, count, deadline_ns);
    }
    return result;
}

/* The watchdog: ends this process when its parent is gone, even while the interpreter is stuck in native code. */
typedef struct {
    int sentinel; /* a descriptor that becomes readable when the parent is gone, or -1 */
    pid_t parent; /* process id to compare with getppid(), or 0 */
} Watchdog;

static void *watchdog_run(void *argument) {
    Watchdog watchdog = *(Watchdog *)argument;
    free(argument);
    while (1) {
        struct pollfd descriptor = {watchdog.sentinel, POLLIN, 0};
        int ready = poll(&descriptor, watchdog.sentinel >= 0, 500);
        if (ready > 0 || (watchdog.parent && getppid() != watchdog.parent)) _exit(113);
    }
    return NULL;
}

static inline int watchdog_start(int sentinel, int parent) {
    Watchdog *watchdog = malloc(sizeof *watchdog);
    if (!watchdog) return -1;
    watchdog->sentinel = sentinel;
    watchdog->parent = parent;
    pthread_t thread;
    if (pthread_create(&thread, NULL, watchdog_run, watchdog)) {
        free(watchdog);
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

#endif
