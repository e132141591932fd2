/* Agents that die, come back and end their world when their actions say so: for tests of the framework. */
#define OC_ENV flock
#define OC_DOC "Agents that do what a test tells them"
#define OC_OBS_T float
#define OC_MULTI
#define OC_PARAMS(P)                                                                                                   \
    P(int, num_agents, 3, 1, 16, "agents of a world")                                                                  \
    P(float, reward, 0.5, 0, 1, "reward of each step")                                                                 \
    P(bool, overflow, false, 0, 1, "write behind the last row of a world")
#define OC_EXTRAS(K) K(number)
#define OC_VERSION 7
#define OC_HAS_BOUNDS
#define OC_HAS_ACTION_MASK
#include "ocean.h"

enum { STAY, DIE, LEAVE, WAKE_ALL, END_WORLD, DIE_AND_RETURN, NUM_ACTIONS };

enum { AGE, NUMBER, DRAW, LENGTH };

typedef struct {
    oc_rng rng;
    int num_agents;
    float ages[]; /* steps of each agent's life */
} flock;

static void env_spec(const params *p, oc_spec *spec) {
    *spec = (oc_spec){
        .agents = p->num_agents,
        .obs_shape = {LENGTH},
        .obs_high = 1000,
        .act_sizes = {NUM_ACTIONS},
        .extra_bytes = p->num_agents * (int64_t)sizeof(float),
    };
}

static void env_bounds(const params *p, double *low, double *high) {
    (void)low;
    high[NUMBER] = p->num_agents;
    high[DRAW] = 1;
}

static void observe(flock *e, const oc_io *io, int agent) {
    float *obs = oc_obs(io, agent);
    obs[AGE] = e->ages[agent];
    obs[NUMBER] = (float)agent + 1;
    obs[DRAW] = oc_unit(&e->rng);
}

static void env_reset(flock *e, const params *p, oc_io *io) {
    e->num_agents = p->num_agents;
    for (int agent = 0; agent < io->agents; agent++) {
        observe(e, io, agent);
    }
}

static int env_step(flock *e, const params *p, oc_io *io) {
    int status = OC_RUNNING;
    bool wakes = false;
    for (int agent = 0; agent < io->agents; agent++) {
        if (!oc_is_alive(io, agent)) {
            continue;
        }
        int action = oc_action(io, agent)[0];
        e->ages[agent]++;
        observe(e, io, agent);
        io->rewards[agent] += p->reward;
        wakes |= action == WAKE_ALL;
        if (action == DIE || action == DIE_AND_RETURN) {
            oc_end(io, agent, OC_TERMINATED);
        } else if (action == LEAVE) {
            oc_end(io, agent, OC_TRUNCATED);
        } else if (action == END_WORLD) {
            status = OC_TERMINATED;
        }
        if (action == DIE_AND_RETURN) {
            oc_revive(io, agent);
            e->ages[agent] = 0;
            observe(e, io, agent);
        }
    }
    for (int agent = 0; wakes && agent < io->agents; agent++) {
        if (!io->alive[agent]) {
            oc_revive(io, agent);
            e->ages[agent] = 0;
            observe(e, io, agent);
        }
    }
    if (p->overflow) {
        oc_obs(io, io->agents - 1)[LENGTH] = 1;
    }
    return status;
}

static void env_metrics(const flock *e, const params *p, const oc_ending *ending, double *metrics) {
    (void)p;
    metrics[1] = (double)e->ages[ending->agent] == (double)ending->episode_length;
    metrics[2] = ending->agent + 1;
}

/* Waking makes sense only when all are awake but this one: any rule will do. */
static void env_action_mask(const flock *e, const params *p, int agent, uint8_t *mask) {
    (void)p;
    mask[WAKE_ALL] = agent == 0;
    mask[DIE] = e->ages[agent] > 0;
}

#include "ocean_impl.h"
