/* Break a wall of bricks with a ball that must not pass the paddle.
 *
 * The ball is a square. A frame of 1/60 s moves the paddle, then follows the ball through all of its hits, earliest
 * first. Positions are doubles in pixels, velocities in pixels per frame: a plain-Python reference in the test repeats
 * whole games and compares them for equality. */
#define OC_ENV breakout
#define OC_DOC "Break two walls of bricks with five balls"
#define OC_OBS_T float
#define OC_ACT_T oc_act
#define OC_PARAMS(P)                                                                                                  \
    P(bool, puffer3, false, 0, 1, "PufferLib 3.0's ball, lives, launch, bounce, scaling and reward, see the README")  \
    P(bool, continuous, false, 0, 1, "one action in [-1, 1], the paddle's speed, instead of stay, left, right")       \
    P(int, frame_skip, 4, 1, 16, "frames a step; rewards are summed")                                                 \
    P(int, lives, 0, 0, 100, "balls an episode; 0: 5, or 6 with puffer3")                                             \
    P(float, ball_size, 0, 0, 48, "side of the ball, pixels; 0: 16, or 32 with puffer3")                              \
    P(float, launch_jitter, -1, -1, 0.5, "a ball starts within this angle of 55 degrees, radians; "                   \
                                         "-1: 0.1, or 0 with puffer3")                                                \
    P(float, paddle_width, 62, 8, 288, "pixels")                                                                      \
    P(int, brick_rows, 6, 1, 8, "rows of the wall")                                                                   \
    P(int, brick_cols, 18, 1, 32, "columns of the wall, which is 576 pixels wide")                                    \
    P(int, brick_height, 12, 4, 12, "pixels")                                                                         \
    P(float, sticky, 0, 0, 0.25, "probability that a frame repeats the action of the frame before it")                \
    P(int, idle_frames, 3000, 1, 1000000, "frames without a brick hit after which the episode is truncated")
#define OC_EXTRAS(K) K(bricks) K(paddle_hits) K(walls_cleared)
#define OC_HAS_DRAW
#include "ocean.h"

#include "bricks.h"

enum {
    FIELD_WIDTH = 576,
    FIELD_HEIGHT = 330,
    WALL_TOP = 50,
    PADDLE_TOP = 312,
    PADDLE_HEIGHT = 8,
    NUM_WALLS = 2,
    MAX_FRAMES = 30000,
    MAX_ROWS = 8,
    FRAMES_PER_SECOND = 60,
    PADDLE_SPEED = 620, /* pixels a second, as the three speeds of the ball */
    SLOW = 256,
    FASTER = 64, /* added after each fourth hit of the paddle */
    FAST = 448,
    FIRST_BRICK = 10, /* index in the observation */
};

static const float LAUNCH_ANGLE = OC_PI / 3.25f; /* to the vertical */

typedef struct {
    oc_rng rng;
    flight ball;
    double paddle_x;          /* left end */
    float last_action;        /* -1 .. 1: the paddle's speed in the frame before this one */
    int32_t speed;            /* of the ball after its next bounce off the paddle */
    int32_t score, max_score; /* points */
    int32_t idle;             /* frames since the last brick hit */
    int32_t bricks, paddle_hits;
    int16_t standing, walls_cleared;
    int16_t lives, round_hits; /* balls left, with the one in play; paddle hits of this ball */
    uint8_t is_fired, is_narrow;
    uint32_t wall[MAX_ROWS]; /* bit c of row r: that brick stands */
} breakout;

static double ball_size(const params *p) {
    return p->ball_size > 0 ? (double)p->ball_size : (p->puffer3 ? 32 : 16);
}

static int num_lives(const params *p) {
    return p->lives > 0 ? p->lives : (p->puffer3 ? 6 : 5);
}

static double paddle_width(const breakout *e, const params *p) {
    return (double)p->paddle_width * (e->is_narrow ? 0.5 : 1);
}

static grid wall_of(const breakout *e, const params *p) {
    return (grid){
        .top = WALL_TOP,
        .width = (double)FIELD_WIDTH / p->brick_cols,
        .height = p->brick_height,
        .rows = p->brick_rows,
        .cols = p->brick_cols,
        .standing = e->wall,
    };
}

static double wall_bottom(const params *p) {
    return WALL_TOP + p->brick_rows * p->brick_height;
}

/* 7, 4 and 1 points from the top third of the wall to the lowest. */
static int brick_points(int row, const params *p) {
    return 7 - 3 * (row * 3 / p->brick_rows);
}

static int max_score(const params *p) {
    int points = 0;
    for (int row = 0; row < p->brick_rows; row++) {
        points += brick_points(row, p) * p->brick_cols;
    }
    return NUM_WALLS * points;
}

static void env_spec(const params *p, oc_spec *spec) {
    spec->obs_shape[0] = FIRST_BRICK + p->brick_rows * p->brick_cols;
    spec->obs_low = -1;
    spec->obs_high = 1;
    spec->act_kind = p->continuous ? OC_BOX : OC_DISCRETE;
    spec->act_sizes[0] = p->continuous ? 1 : 3;
    spec->max_steps = (MAX_FRAMES + p->frame_skip - 1) / p->frame_skip;
    spec->width = FIELD_WIDTH;
    spec->height = FIELD_HEIGHT;
    spec->fps = FRAMES_PER_SECOND / p->frame_skip;
}

static void build_wall(breakout *e, const params *p) {
    e->standing = (int16_t)(p->brick_rows * p->brick_cols);
    for (int row = 0; row < p->brick_rows; row++) {
        e->wall[row] = (uint32_t)((1ull << p->brick_cols) - 1);
    }
}

/* The next ball waits in mid-field, or just below a tall wall, and the paddle in the middle. */
static void begin_round(breakout *e, const params *p) {
    e->is_fired = 0;
    e->is_narrow = 0;
    e->round_hits = 0;
    e->speed = SLOW;
    e->paddle_x = (FIELD_WIDTH - (double)p->paddle_width) / 2;
    e->ball.x = (FIELD_WIDTH - ball_size(p)) / 2;
    e->ball.y = larger(FIELD_HEIGHT / 2 - 30, wall_bottom(p) + 8);
    e->ball.vx = 0;
    e->ball.vy = 0;
}

/* The bricks' part of an observation is kept up to date where bricks change: rows persist between steps. */
static void write_observation(const breakout *e, const params *p, float *obs) {
    const float velocity_scale = p->puffer3 ? 1.0f / 512 : 1.0f / 8;
    obs[0] = (float)(e->paddle_x / FIELD_WIDTH);
    obs[1] = (float)PADDLE_TOP / FIELD_HEIGHT;
    obs[2] = (float)(e->ball.x / FIELD_WIDTH);
    obs[3] = (float)(e->ball.y / FIELD_HEIGHT);
    obs[4] = (float)e->ball.vx * velocity_scale;
    obs[5] = (float)e->ball.vy * velocity_scale;
    obs[6] = p->puffer3 ? 0.2f * (float)e->is_fired : (float)e->is_fired;
    obs[7] = (float)e->score / (float)e->max_score;
    obs[8] = (float)(e->lives - p->puffer3) / (float)oc_clamp_int(num_lives(p) - p->puffer3, 1, 100);
    obs[9] = e->is_narrow ? 0.5f : 1.0f;
}

static void env_reset(breakout *e, const params *p, float *obs) {
    e->lives = (int16_t)num_lives(p);
    e->max_score = max_score(p);
    build_wall(e, p);
    begin_round(e, p);
    write_observation(e, p, obs);
}

/* Send the ball off at an angle to the vertical; direction 1 is down, -1 up. */
static void send_ball(breakout *e, float angle, double direction) {
    float sine, cosine;
    oc_sincos(angle, &sine, &cosine);
    double speed = (double)e->speed / FRAMES_PER_SECOND;
    e->ball.vx = (double)sine * speed;
    e->ball.vy = (double)cosine * speed * direction;
}

static void launch(breakout *e, const params *p) {
    float jitter = p->launch_jitter >= 0 ? p->launch_jitter : (p->puffer3 ? 0 : 0.1f);
    float side = oc_below(&e->rng, 2) ? 1 : -1;
    e->is_fired = 1;
    send_ball(e, side * (LAUNCH_ANGLE + oc_uniform(&e->rng, -jitter, jitter)), 1);
}

static bool is_over_paddle(const breakout *e, const params *p, double time) {
    double x = e->ball.x + e->ball.vx * time;
    return x + ball_size(p) > e->paddle_x && x < e->paddle_x + paddle_width(e, p);
}

/* The first thing that happens to the ball within `limit` frames; of several at once the first in the order of
 * event_kind. */
static event find_event(const breakout *e, const params *p, double limit) {
    const flight *f = &e->ball;
    const double size = ball_size(p), y = f->y + f->vy * limit;
    event next = {NOTHING, limit, 0, 0};
    if (smaller(f->y, y) < wall_bottom(p) && larger(f->y, y) + size > WALL_TOP) {
        grid wall = wall_of(e, p);
        next = find_brick(&wall, f, size, limit);
    }
    if (f->vx < 0 || f->vx > 0) {
        double time = ((f->vx < 0 ? 0 : FIELD_WIDTH - size) - f->x) / f->vx;
        next = time < next.time ? (event){SIDE_WALL, time, 0, 0} : next;
    }
    if (f->vy < 0) {
        double time = -f->y / f->vy;
        return time < next.time ? (event){BACK_WALL, time, 0, 0} : next;
    }
    double to_paddle = (PADDLE_TOP - size - f->y) / f->vy;
    if (to_paddle >= 0 && to_paddle < next.time && is_over_paddle(e, p, to_paddle)) {
        return (event){PADDLE, to_paddle, 0, 0};
    }
    double to_floor = (PADDLE_TOP + PADDLE_HEIGHT - f->y) / f->vy;
    return to_floor < next.time ? (event){FLOOR, to_floor, 0, 0} : next;
}

static void break_brick(breakout *e, const params *p, int row, int col, float *obs) {
    e->wall[row] &= ~(1u << col);
    obs[FIRST_BRICK + row * p->brick_cols + col] = 1;
    e->score += brick_points(row, p);
    e->bricks++;
    e->standing--;
    e->walls_cleared = (int16_t)(e->walls_cleared + (e->standing == 0));
    e->idle = 0;
    if (2 * row < p->brick_rows) {
        e->speed = FAST;
    }
}

/* The angle to the vertical is linear in the place where the ball's centre meets the paddle: 45 degrees at its ends.
 * With puffer3 the line goes on beyond the ends, where a large ball still touches, up to 80 degrees. */
static void hit_paddle(breakout *e, const params *p, float *obs) {
    double place = (e->ball.x + ball_size(p) / 2 - e->paddle_x) / paddle_width(e, p) - 0.5;
    float limit = p->puffer3 ? OC_PI / 2.25f : OC_PI / 4;
    e->ball.y = PADDLE_TOP - ball_size(p);
    send_ball(e, oc_clamp((float)place * (OC_PI / 2), -limit, limit), -1);
    e->paddle_hits++;
    e->round_hits++;
    if (e->round_hits % 4 == 0 && e->speed < FAST) {
        e->speed += FASTER;
    }
    if (e->standing == 0) {
        build_wall(e, p);
        memset(obs + FIRST_BRICK, 0, sizeof(float) * (size_t)(p->brick_rows * p->brick_cols));
    }
}

/* The ball has reached the brick of an event: it is reflected there, and the brick breaks. */
static void hit_brick(breakout *e, const params *p, event hit, float *obs) {
    const grid wall = wall_of(e, p);
    flight *f = &e->ball;
    if (hit.kind == BRICK_FACE) {
        f->y = wall.top + (f->vy < 0 ? (hit.row + 1) * wall.height : hit.row * wall.height - ball_size(p));
        f->vy = -f->vy;
    } else {
        f->x = f->vx < 0 ? (hit.col + 1) * wall.width : hit.col * wall.width - ball_size(p);
        f->vx = -f->vx;
    }
    break_brick(e, p, hit.row, hit.col, obs);
}

/* Move the ball for one frame, through everything that it hits. */
static void move_ball(breakout *e, const params *p, float *obs) {
    flight *f = &e->ball;
    for (double left = 1; e->walls_cleared < NUM_WALLS;) {
        event next = find_event(e, p, left);
        left -= next.time;
        f->x += f->vx * next.time;
        f->y += f->vy * next.time;
        switch (next.kind) {
        case NOTHING:
            return;
        case BRICK_FACE:
        case BRICK_SIDE:
            hit_brick(e, p, next, obs);
            break;
        case SIDE_WALL:
            f->x = f->vx < 0 ? 0 : FIELD_WIDTH - ball_size(p);
            f->vx = -f->vx;
            break;
        case BACK_WALL:
            f->y = 0;
            f->vy = -f->vy;
            e->is_narrow = 1;
            break;
        case PADDLE:
            hit_paddle(e, p, obs);
            break;
        case FLOOR:
            e->lives--;
            begin_round(e, p);
            return;
        }
    }
}

/* Whether the ball meets nothing in this frame, by a test that is cheap and may only err on the safe side. */
static bool is_free(const breakout *e, const params *p) {
    const flight *f = &e->ball;
    const double size = ball_size(p), x = f->x + f->vx, y = f->y + f->vy;
    return x >= 0 && x + size <= FIELD_WIDTH && smaller(f->y, y) >= wall_bottom(p) && y + size <= PADDLE_TOP;
}

static void move_paddle(breakout *e, const params *p, float action) {
    double x = e->paddle_x + (double)action * PADDLE_SPEED / FRAMES_PER_SECOND;
    e->paddle_x = smaller(larger(x, 0), FIELD_WIDTH - paddle_width(e, p));
}

static int env_step(breakout *e, const params *p, const oc_act *act, float *obs, float *reward) {
    static const float directions[3] = {0, -1, 1};
    const float wish = p->continuous ? oc_box(act[0].f, -1, 1) : directions[oc_discrete(act[0].i, 3, 0)];
    const int score = e->score;
    int status = OC_RUNNING;
    for (int frame = 0; frame < p->frame_skip && status == OC_RUNNING; frame++) {
        if (p->sticky <= 0 || !oc_chance(&e->rng, p->sticky)) {
            e->last_action = wish;
        }
        move_paddle(e, p, e->last_action);
        if (!e->is_fired) {
            launch(e, p);
        }
        e->idle++;
        if (is_free(e, p)) {
            e->ball.x += e->ball.vx;
            e->ball.y += e->ball.vy;
        } else {
            move_ball(e, p, obs);
        }
        status = (e->lives == 0 || e->walls_cleared == NUM_WALLS ? OC_TERMINATED : 0) |
                 (e->idle >= p->idle_frames ? OC_TRUNCATED : 0);
    }
    float points = (float)(e->score - score);
    *reward = oc_clamp(p->puffer3 ? points : points / 7, 0, 1);
    write_observation(e, p, obs);
    return status;
}

static void env_draw(const breakout *e, const params *p, oc_canvas *canvas) {
    static const uint32_t colors[MAX_ROWS] = {0xC84848, 0xC66C3A, 0xB47A30, 0xA2A22A,
                                              0x48A048, 0x4248C8, 0x7A42B4, 0xA04890};
    const float width = (float)FIELD_WIDTH / (float)p->brick_cols, height = (float)p->brick_height;
    oc_clear(canvas, 0x101018);
    for (int row = 0; row < p->brick_rows; row++) {
        for (int col = 0; col < p->brick_cols; col++) {
            if (e->wall[row] >> col & 1) {
                oc_rect(canvas, (float)col * width, WALL_TOP + (float)row * height, width - 1, height - 1, colors[row]);
            }
        }
    }
    oc_rect(canvas, (float)e->paddle_x, PADDLE_TOP, (float)paddle_width(e, p), PADDLE_HEIGHT, 0xE0E0E0);
    oc_rect(canvas, (float)e->ball.x, (float)e->ball.y, (float)ball_size(p), (float)ball_size(p), 0xF0D060);
    oc_text(canvas, 8, 8, 2, 0xE0E0E0, "SCORE %d", (int)e->score);
    oc_text(canvas, FIELD_WIDTH - 8 - 8 * 2 * OC_TEXT_WIDTH, 8, 2, 0xE0E0E0, "LIVES %2d", (int)e->lives);
}

static void env_metrics(const breakout *e, const params *p, const oc_ending *ending, double *metrics) {
    (void)p, (void)ending;
    metrics[0] = e->score;
    metrics[1] = (double)e->score / e->max_score;
    metrics[2] = e->bricks;
    metrics[3] = e->paddle_hits;
    metrics[4] = e->walls_cleared;
}

#include "ocean_impl.h"
