/* Balance a pole on a cart that is pushed left and right.
 *
 * Equations: Barto, Sutton and Anderson 1983, "Neuronlike Adaptive Elements That Can Solve Difficult Learning Control
 * Problems", without friction, with explicit Euler as in Gymnasium's CartPole-v1, whose numbers these are. */
#define OC_ENV cartpole
#define OC_DOC "Balance a pole on a cart"
#define OC_OBS_T float
#define OC_ACT_T oc_act
#define OC_PARAMS(P)                                                                                                   \
    P(bool, continuous, false, 0, 1, "one action in [-1, 1], the share of the force, instead of left, right")          \
    P(float, force, 10, 1, 50, "push on the cart, N")                                                                  \
    P(float, half_length, 0.5, 0.1, 2, "from the joint to the middle of the pole, m")                                  \
    P(float, randomize, 0, 0, 0.5, "masses and length are scaled by 1 -+ this share, anew for each episode")
#define OC_EXTRAS(K) K(x_end) K(angle_end) K(time_end)
#define OC_SOA(F)                                                                                                      \
    F(float, x) F(float, x_dot) F(float, theta) F(float, theta_dot)                                                    \
    F(float, inverse_mass) F(float, pole_mass) F(float, half_length)
#define OC_HAS_DRAW
#include "ocean.h"

static const float GRAVITY = 9.8f;     /* m/s^2 */
static const float CART_MASS = 1.0f;   /* kg */
static const float POLE_MASS = 0.1f;   /* kg */
static const float TIME_STEP = 0.02f;  /* s */
static const float MAX_X = 2.4f;       /* m from the middle of the track */
static const float MAX_THETA = 0.20943951f; /* 12 degrees from upright */
static const float START = 0.05f;      /* each of the four numbers starts within +- this */

static void env_spec(const params *p, oc_spec *spec) {
    *spec = (oc_spec){
        .obs_shape = {4},
        .act_kind = p->continuous ? OC_BOX : OC_DISCRETE,
        .act_sizes = {p->continuous ? 1 : 2},
        .max_steps = 500,
        .width = 480,
        .height = 240,
        .fps = 50,
    };
}

static void env_reset(const worlds *s, const params *p, int64_t world, float *obs) {
    oc_rng *rng = &s->rng[world];
    obs[0] = s->x[world] = oc_uniform(rng, -START, START);
    obs[1] = s->x_dot[world] = oc_uniform(rng, -START, START);
    obs[2] = s->theta[world] = oc_uniform(rng, -START, START);
    obs[3] = s->theta_dot[world] = oc_uniform(rng, -START, START);
    float low = 1 - p->randomize, high = 1 + p->randomize;
    float cart_mass = CART_MASS, pole_mass = POLE_MASS, half_length = p->half_length;
    if (p->randomize > 0) {
        cart_mass *= oc_uniform(rng, low, high);
        pole_mass *= oc_uniform(rng, low, high);
        half_length *= oc_uniform(rng, low, high);
    }
    s->inverse_mass[world] = 1 / (cart_mass + pole_mass);
    s->pole_mass[world] = pole_mass;
    s->half_length[world] = half_length;
}

/* One body for both kinds of action, free of branches, so that the compiler makes it a loop over vectors. */
static inline void step_range(const worlds *s, const params *p, const oc_rows *rows, int64_t first, int64_t last,
                              bool continuous) {
    const int32_t *choices = (const int32_t *)(const void *)rows->actions;
    const float *pushes = (const float *)(const void *)rows->actions;
    float *obs = rows->observations;
    const float max_force = p->force;
    OC_INDEPENDENT
    for (int64_t w = first; w < last; w++) {
        int32_t choice = choices[w]; /* 0 left, 1 right; anything else is no push */
        int32_t sign = (int32_t)(2u * (uint32_t)choice - 1u) & -(int32_t)((uint32_t)choice < 2u);
        float force = max_force * (continuous ? oc_box(pushes[w], -1, 1) : (float)sign);
        float x = s->x[w], x_dot = s->x_dot[w], theta = s->theta[w], theta_dot = s->theta_dot[w];
        float half_length = s->half_length[w], pole_mass = s->pole_mass[w], inverse_mass = s->inverse_mass[w];
        float moment = pole_mass * half_length;
        float sine = oc_sin_small(theta), cosine = oc_cos_small(theta);
        float pull = (force + moment * theta_dot * theta_dot * sine) * inverse_mass;
        float inertia = half_length * (4.0f / 3 - pole_mass * cosine * cosine * inverse_mass);
        float theta_acc = (GRAVITY * sine - cosine * pull) / inertia;
        float x_acc = pull - moment * theta_acc * cosine * inverse_mass;
        obs[4 * w] = s->x[w] = x + TIME_STEP * x_dot;
        obs[4 * w + 1] = s->x_dot[w] = x_dot + TIME_STEP * x_acc;
        obs[4 * w + 2] = s->theta[w] = theta + TIME_STEP * theta_dot;
        obs[4 * w + 3] = s->theta_dot[w] = theta_dot + TIME_STEP * theta_acc;
        rows->rewards[w] = 1;
    }
    OC_INDEPENDENT
    for (int64_t w = first; w < last; w++) {
        float x = s->x[w], theta = s->theta[w];
        bool is_out = (x > MAX_X) | (x < -MAX_X) | (theta > MAX_THETA) | (theta < -MAX_THETA);
        rows->statuses[w] = is_out ? OC_TERMINATED : OC_RUNNING;
    }
}

static void env_step(const worlds *s, const params *p, const oc_rows *rows, int64_t first, int64_t last) {
    if (p->continuous) {
        step_range(s, p, rows, first, last, true);
    } else {
        step_range(s, p, rows, first, last, false);
    }
}

static void env_metrics(const worlds *s, const params *p, int64_t world, const oc_ending *ending, double *metrics) {
    float x = s->x[world], theta = s->theta[world];
    metrics[0] = (double)ending->episode_length;
    metrics[1] = (double)ending->episode_length / p->max_steps;
    metrics[2] = x > MAX_X || x < -MAX_X;
    metrics[3] = theta > MAX_THETA || theta < -MAX_THETA;
    metrics[4] = (ending->status & OC_TRUNCATED) != 0;
}

static void env_draw(const worlds *s, const params *p, int64_t world, oc_canvas *canvas) {
    (void)p;
    const float scale = (float)canvas->width / (2.4f * MAX_X), ground = (float)canvas->height - 40;
    float cart = (float)canvas->width / 2 + scale * s->x[world];
    float length = 2 * s->half_length[world] * scale;
    float sine, cosine;
    oc_sincos(s->theta[world], &sine, &cosine);
    oc_clear(canvas, 0xf4f1ea);
    oc_rect(canvas, 0, ground, (float)canvas->width, 2, 0x404040);
    for (int side = -1; side <= 1; side += 2) {
        oc_rect(canvas, (float)canvas->width / 2 + (float)side * MAX_X * scale - 1, ground - 12, 2, 12, 0xc04040);
    }
    oc_rect(canvas, cart - 25, ground - 26, 50, 26, 0x2f3b52);
    oc_line(canvas, cart, ground - 26, cart + length * sine, ground - 26 - length * cosine, 8, 0xc98d3f);
    oc_circle(canvas, cart, ground - 26, 4, 0x8080c0);
    oc_text(canvas, 10, 10, 2, 0x404040, "x %+.2f  angle %+.1f", (double)s->x[world],
            (double)s->theta[world] * 57.29577951308232);
}

#include "ocean_impl.h"
