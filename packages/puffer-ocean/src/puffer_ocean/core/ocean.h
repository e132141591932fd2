/* The first include of an environment's C file, after its OC_ macros. README.md in this folder is the guide. */
#ifndef OC_OCEAN_H
#define OC_OCEAN_H

#include <string.h>

#include "canvas.h"
#include "numeric.h"
#include "rng.h"
#include "table.h"

#ifndef OC_ENV
#error "define OC_ENV, the name of the environment, before including ocean.h"
#endif
#ifndef OC_OBS_T
#error "define OC_OBS_T, the C type of one element of an observation, before including ocean.h"
#endif
#ifndef OC_DOC
#error "define OC_DOC, one sentence that says what the environment is, before including ocean.h"
#endif
#ifndef OC_ACT_T
#define OC_ACT_T int32_t
#endif
#ifndef OC_PARAMS
#define OC_PARAMS(P)
#endif
#ifndef OC_EXTRAS
#define OC_EXTRAS(K)
#endif
#ifndef OC_VERSION
#define OC_VERSION 1
#endif

#define OC_COLD __attribute__((noinline, cold))

/* Before a loop over worlds of a struct of arrays: no turn of it reads what another writes, so it may be vectorised
 * without a test of all pointers. */
#if defined(__clang__)
#define OC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define OC_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define OC_MEMBER(type, name, value, low, high, doc) type name;
typedef struct {
    int max_steps; /* the limit in force: the caller's, or the spec's, or INT_MAX where there is none */
    OC_PARAMS(OC_MEMBER)
} params;

/* A discrete action, or `otherwise` where it is not in 0 .. n-1. */
static inline int oc_discrete(int32_t action, int n, int otherwise) {
    return (uint32_t)action < (uint32_t)n ? action : otherwise;
}

/* A continuous action clipped to low .. high; NaN and infinities count as 0. Free of branches. */
static inline float oc_box(float action, float low, float high) {
    float finite = action - action == 0 ? action : 0.0f;
    return oc_clamp(finite, low, high);
}

#if defined(OC_SOA)
/* One array a field, one element a world; rng[world] is the world's own generator. */
#define OC_FIELD(type, name) type *name;
typedef struct {
    oc_rng *rng;
    OC_SOA(OC_FIELD)
} worlds;

/* The rows of all worlds, one agent each: element 0 of each array belongs to world 0. */
typedef struct {
    OC_OBS_T *observations;
    const OC_ACT_T *actions;
    float *rewards;    /* to be written for each world */
    uint8_t *statuses; /* to be written for each world: OC_RUNNING, OC_TERMINATED or OC_TRUNCATED */
} oc_rows;

#elif defined(OC_MULTI)
/* The rows of one world during env_reset and env_step. The functions below take the agent's row within the world. */
typedef struct {
    oc_vec *vec;
    int64_t world;
    int agents;
    OC_OBS_T *observations;
    const OC_ACT_T *actions;
    float *rewards;           /* zero before a step: add to them */
    uint8_t *alive, *statuses;
    int64_t obs_len, act_len; /* elements of one row */
} oc_io;

enum { OC_REVIVED = 4 }; /* in statuses, beside enum oc_status */

/* The agent's observation: as the last step left it; all zeros in env_reset and for one that died. */
static inline OC_OBS_T *oc_obs(const oc_io *io, int agent) {
    return io->observations + agent * io->obs_len;
}

static inline const OC_ACT_T *oc_action(const oc_io *io, int agent) {
    return io->actions + agent * io->act_len;
}

/* Whether the agent acts in this step: its episode runs and did not end earlier in the step. */
static inline bool oc_is_alive(const oc_io *io, int agent) {
    return io->alive[agent] && !io->statuses[agent];
}

/* The agent's episode ends with this step. Its row is to hold its last observation when env_step returns; then it is
 * zeroed and masked until the world resets or oc_revive is called. For one that is not alive this does nothing. */
static inline void oc_end(const oc_io *io, int agent, int status) {
    if (oc_is_alive(io, agent)) {
        io->statuses[agent] = (uint8_t)status;
    }
}

/* Begin a new episode of an agent that died, in this step or earlier; it acts from the next step on. Before the call
 * the row must hold the last observation and the rewards of the old life; the call zeroes the observation, and the
 * first one of the new life is written there. For an agent that is alive this does nothing. */
OC_MAYBE_UNUSED static void oc_revive(const oc_io *io, int agent);
#endif

#endif
