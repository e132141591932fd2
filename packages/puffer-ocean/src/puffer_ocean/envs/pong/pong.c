/* Two paddles and a ball, first to 21 points. Our paddle is the right one; a script that follows the ball moves the
 * left one.
 *
 * Positions are pixels, velocities pixels per frame of 1/60 s. With discrete actions all of them are whole numbers. */
#define OC_ENV pong
#define OC_DOC "Win 21 rallies against a paddle that follows the ball"
#define OC_OBS_T float
#define OC_ACT_T oc_act
#define OC_PARAMS(P)                                                                                              \
    P(bool, continuous, false, 0, 1, "one action in [-1, 1], the paddle's speed, instead of still, up, down")     \
    P(int, frame_skip, 8, 1, 16, "frames a step; rewards are summed")                                             \
    P(int, opponent_speed, 8, 1, 13, "pixels a frame; our paddle's is 8")                                         \
    P(float, reward_hit, 0.1, 0, 0.1, "reward for each hit of our paddle")
#define OC_EXTRAS(K) K(rally_frames) K(hits)
#define OC_HAS_DRAW
#include "ocean.h"

#include <math.h>

enum {
    FIELD_WIDTH = 500,
    FIELD_HEIGHT = 640,
    PADDLE_WIDTH = 20, /* drawn outside the field's left and right edges */
    PADDLE_HEIGHT = 70,
    BALL = 32,
    HIGHEST_X = FIELD_WIDTH - BALL,
    HIGHEST_Y = FIELD_HEIGHT - BALL,
    HIGHEST_PADDLE = FIELD_HEIGHT - PADDLE_HEIGHT,
    PADDLE_SPEED = 8,
    BALL_VX = 10,
    HIGHEST_VY = 13,
    SPIN = 3, /* added to vy by a paddle that moves */
    POINTS_TO_WIN = 21,
    MAX_FRAMES = 20000,
    FRAMES_PER_SECOND = 60,
};

typedef struct {
    oc_rng rng;
    float x, y, vx, vy;   /* upper left corner of the ball */
    float paddle, opponent; /* upper ends of the paddles */
    uint16_t points_won, points_lost;
    uint32_t frames, hits;
} pong;

static void env_spec(const params *p, oc_spec *spec) {
    spec->obs_shape[0] = 8;
    spec->obs_low = 0;
    spec->obs_high = 1;
    spec->act_kind = p->continuous ? OC_BOX : OC_DISCRETE;
    spec->act_sizes[0] = p->continuous ? 1 : 3;
    spec->max_steps = (MAX_FRAMES + p->frame_skip - 1) / p->frame_skip;
    spec->width = FIELD_WIDTH + 2 * PADDLE_WIDTH;
    spec->height = FIELD_HEIGHT;
    spec->fps = 1 + (FRAMES_PER_SECOND - 1) / p->frame_skip;
}

static void write_observation(const pong *e, float *obs) {
    obs[0] = e->opponent * (1.0f / HIGHEST_PADDLE);
    obs[1] = e->paddle * (1.0f / HIGHEST_PADDLE);
    obs[2] = e->x * (1.0f / HIGHEST_X);
    obs[3] = e->y * (1.0f / HIGHEST_Y);
    obs[4] = (e->vx + BALL_VX) * (0.5f / BALL_VX);
    obs[5] = (e->vy + HIGHEST_VY) * (0.5f / HIGHEST_VY);
    obs[6] = (float)e->points_won * (1.0f / POINTS_TO_WIN);
    obs[7] = (float)e->points_lost * (1.0f / POINTS_TO_WIN);
}

/* The ball starts near the opponent and flies to our side. */
static void begin_rally(pong *e) {
    e->x = FIELD_WIDTH / 5;
    e->y = HIGHEST_Y / 2;
    e->vx = BALL_VX;
    e->vy = (float)oc_int(&e->rng, -1, 1);
    e->paddle = HIGHEST_PADDLE / 2;
    e->opponent = HIGHEST_PADDLE / 2;
}

static void env_reset(pong *e, const params *p, float *obs) {
    (void)p;
    begin_rally(e);
    write_observation(e, obs);
}

/* Both paddles move for some frames in which the ball flies straight: ours by `own`, the opponent toward the ball's
 * centre by at most `reach`, when the ball is at `ball_y`. */
static void move_paddles(pong *e, float own, float ball_y, float reach) {
    float wish = oc_clamp(ball_y + (BALL - PADDLE_HEIGHT) / 2, 0, HIGHEST_PADDLE);
    e->paddle = oc_clamp(e->paddle + own, 0, HIGHEST_PADDLE);
    e->opponent = oc_clamp(wish, e->opponent - reach, e->opponent + reach);
}

static bool is_hit(const pong *e, float paddle) {
    return e->y + BALL > paddle && e->y < paddle + PADDLE_HEIGHT;
}

/* Our paddle returns the ball and gives it spin in its own direction, -1 .. 1. */
static void return_ball(pong *e, float direction) {
    e->x = 2 * HIGHEST_X - e->x;
    e->vx = -BALL_VX;
    e->vy = oc_clamp(e->vy + SPIN * direction, -HIGHEST_VY, HIGHEST_VY);
    if (fabsf(e->vy) < 0.01f) {
        e->vy = SPIN; /* a ball that flies level would never pass the opponent */
    }
    e->hits++;
}

/* The ball left the field at the side: returned, or a point. Returns the reward. */
static float reach_end(pong *e, const params *p, float direction) {
    bool is_ours = e->x > HIGHEST_X;
    if (is_hit(e, is_ours ? e->paddle : e->opponent)) {
        if (is_ours) {
            return_ball(e, direction);
            return p->reward_hit;
        }
        e->x = -e->x;
        e->vx = BALL_VX;
        return 0;
    }
    e->points_lost += is_ours;
    e->points_won += !is_ours;
    begin_rally(e);
    return is_ours ? -1 : 1;
}

static float step_frame(pong *e, const params *p, float direction) {
    e->frames++;
    move_paddles(e, direction * PADDLE_SPEED, e->y, (float)p->opponent_speed);
    e->x += e->vx;
    e->y += e->vy;
    if (e->y < 0 || e->y > HIGHEST_Y) {
        e->y = e->y < 0 ? -e->y : 2 * HIGHEST_Y - e->y;
        e->vy = -e->vy;
    }
    return e->x < 0 || e->x > HIGHEST_X ? reach_end(e, p, direction) : 0;
}

/* All frames of a step at once, where the ball meets nothing and is not faster than the opponent: then the opponent
 * either still approaches the ball or has caught up with it for good, which ends at the same place as frame by frame.
 * Returns whether it was so. */
static bool skip_frames(pong *e, const params *p, float direction) {
    const float frames = (float)p->frame_skip, speed = (float)p->opponent_speed;
    const float x = e->x + frames * e->vx, y = e->y + frames * e->vy;
    if (x < 0 || x > HIGHEST_X || y < 0 || y > HIGHEST_Y || fabsf(e->vy) > speed) {
        return false;
    }
    move_paddles(e, frames * direction * PADDLE_SPEED, y - e->vy, frames * speed);
    e->x = x;
    e->y = y;
    e->frames += (uint32_t)p->frame_skip;
    return true;
}

static int env_step(pong *e, const params *p, const oc_act *act, float *obs, float *reward) {
    static const float directions[3] = {0, -1, 1};
    const float direction = p->continuous ? oc_box(act[0].f, -1, 1) : directions[oc_discrete(act[0].i, 3, 0)];
    int status = OC_RUNNING;
    if (!skip_frames(e, p, direction)) {
        for (int frame = 0; frame < p->frame_skip && !status; frame++) {
            *reward += step_frame(e, p, direction);
            status = e->points_won == POINTS_TO_WIN || e->points_lost == POINTS_TO_WIN ? OC_TERMINATED : OC_RUNNING;
        }
    }
    write_observation(e, obs);
    return status;
}

static void env_draw(const pong *e, const params *p, oc_canvas *canvas) {
    (void)p;
    oc_clear(canvas, 0x101018);
    for (int y = 0; y < FIELD_HEIGHT; y += 40) {
        oc_rect(canvas, PADDLE_WIDTH + FIELD_WIDTH / 2 - 2, (float)y + 10, 4, 20, 0x505060);
    }
    oc_text(canvas, PADDLE_WIDTH + FIELD_WIDTH / 2 - 84, 16, 4, 0xE08060, "%2d", e->points_lost);
    oc_text(canvas, PADDLE_WIDTH + FIELD_WIDTH / 2 + 36, 16, 4, 0x60C0E0, "%2d", e->points_won);
    oc_rect(canvas, 0, e->opponent, PADDLE_WIDTH, PADDLE_HEIGHT, 0xE08060);
    oc_rect(canvas, PADDLE_WIDTH + FIELD_WIDTH, e->paddle, PADDLE_WIDTH, PADDLE_HEIGHT, 0x60C0E0);
    oc_rect(canvas, PADDLE_WIDTH + e->x, e->y, BALL, BALL, 0xE0E0E0);
}

static void env_metrics(const pong *e, const params *p, const oc_ending *ending, double *metrics) {
    (void)p, (void)ending;
    int points = e->points_won + e->points_lost;
    metrics[0] = e->points_won - e->points_lost;
    metrics[1] = points ? (double)e->points_won / points : 0;
    metrics[2] = (double)e->frames / (points ? points : 1);
    metrics[3] = e->hits;
}

#include "ocean_impl.h"
