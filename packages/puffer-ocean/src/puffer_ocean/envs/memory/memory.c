/* Repeat the digits that were shown before a pause: a policy without memory stays at chance.
 *
 * An episode of length + delay + length steps: each digit is shown once, then nothing, then the digits are asked for. */
#define OC_ENV memory
#define OC_DOC "Repeat binary digits that were shown before a pause"
#define OC_OBS_T float
#define OC_PARAMS(P)                                                                                                   \
    P(int, length, 2, 1, 32, "digits to remember")                                                                     \
    P(int, delay, 2, 0, 256, "steps between the last digit shown and the first one asked for")
#define OC_EXTRAS(K) K(first_digit_acc)
#define OC_HAS_DRAW
#include "ocean.h"

typedef struct {
    oc_rng rng;
    uint32_t digits;  /* bit i: the i-th digit */
    uint32_t answers; /* bit i: the i-th answer was right */
    int step;         /* actions taken */
} memory;

static void env_spec(const params *p, oc_spec *spec) {
    (void)p;
    *spec = (oc_spec){
        .obs_shape = {2},
        .obs_low = -1,
        .obs_high = 1,
        .act_sizes = {2},
        .width = 320,
        .height = 160,
        .fps = 2,
    };
}

/* What is seen before action `step`: the digit or -1, and whether an answer is asked for. */
static void observe(const memory *e, const params *p, float *obs) {
    int first_recall = p->length + p->delay;
    obs[0] = e->step < p->length ? (float)(e->digits >> e->step & 1u) : -1.0f;
    obs[1] = e->step >= first_recall && e->step < first_recall + p->length ? 1.0f : 0.0f;
}

static void env_reset(memory *e, const params *p, float *obs) {
    e->digits = oc_bits(&e->rng);
    observe(e, p, obs);
}

static int env_step(memory *e, const params *p, const int32_t *act, float *obs, float *reward) {
    int asked = e->step - p->length - p->delay;
    e->step++;
    if (asked >= 0 && oc_discrete(act[0], 2, -1) == (int)(e->digits >> asked & 1u)) {
        e->answers |= 1u << asked;
        *reward = 1.0f / (float)p->length;
    }
    observe(e, p, obs);
    return asked == p->length - 1 ? OC_TERMINATED : OC_RUNNING;
}

static void env_metrics(const memory *e, const params *p, const oc_ending *ending, double *metrics) {
    (void)ending;
    int right = 0;
    for (int i = 0; i < p->length; i++) {
        right += (int)(e->answers >> i & 1u);
    }
    metrics[0] = (double)right / p->length;
    metrics[1] = right == p->length;
    metrics[2] = e->answers & 1u;
}

static void env_draw(const memory *e, const params *p, oc_canvas *canvas) {
    int first_recall = p->length + p->delay;
    oc_clear(canvas, 0x10141c);
    if (e->step < p->length) {
        oc_text(canvas, 20, 20, 2, 0xa0a8b8, "digit %d of %d", e->step + 1, p->length);
        oc_text(canvas, 140, 60, 10, 0xffd060, "%u", e->digits >> e->step & 1u);
    } else if (e->step < first_recall) {
        oc_text(canvas, 20, 20, 2, 0xa0a8b8, "wait %d", first_recall - e->step);
    } else {
        oc_text(canvas, 20, 20, 2, 0xa0a8b8, "recall %d of %d", e->step - first_recall + 1, p->length);
        oc_text(canvas, 140, 60, 10, 0x60d0ff, "?");
    }
    for (int i = 0; i < e->step - first_recall; i++) {
        oc_rect(canvas, (float)(20 + 9 * i), 140, 7, 7, e->answers >> i & 1u ? 0x50d070 : 0xe05050);
    }
}

#include "ocean_impl.h"
