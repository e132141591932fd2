/* Catch what falls: a basket below, one fruit at a time. */
#define OC_ENV catch
#define OC_DOC "Catch what falls into a basket that moves left and right"
#define OC_OBS_T float
#define OC_PARAMS(P) /* type name default min max doc */                                                               \
    P(int, width, 9, 3, 99, "cells from left to right")                                                                \
    P(int, height, 8, 2, 99, "cells that a fruit falls")
#include "ocean.h"

typedef struct { /* plain data, no pointers; the first member is the generator */
    oc_rng rng;
    int basket, fruit, row;
} catch;

static void env_spec(const params *p, oc_spec *spec) {
    *spec = (oc_spec){.obs_shape = {3}, .obs_low = 0, .obs_high = 1, .act_sizes = {3}};
    (void)p;
}

static void observe(const catch *e, const params *p, float *obs) {
    obs[0] = (float)e->basket / (float)(p->width - 1);
    obs[1] = (float)e->fruit / (float)(p->width - 1);
    obs[2] = (float)e->row / (float)p->height;
}

static void env_reset(catch *e, const params *p, float *obs) {
    e->basket = p->width / 2;
    e->fruit = oc_int(&e->rng, 0, p->width - 1);
    observe(e, p, obs);
}

static int env_step(catch *e, const params *p, const int32_t *act, float *obs, float *reward) {
    int move = oc_discrete(act[0], 3, 1) - 1; /* left, stay, right; an illegal action is 1, stay */
    e->basket = oc_clamp_int(e->basket + move, 0, p->width - 1);
    e->row++;
    observe(e, p, obs);
    if (e->row < p->height)
        return OC_RUNNING;
    *reward = e->basket == e->fruit ? 1 : 0;
    return OC_TERMINATED;
}

static void env_metrics(const catch *e, const params *p, const oc_ending *ending, double *metrics) {
    (void)p, (void)ending;
    metrics[1] = e->basket == e->fruit; /* perf, in [0, 1]; metrics[0], the score, arrives as the return */
}

#include "ocean_impl.h"
