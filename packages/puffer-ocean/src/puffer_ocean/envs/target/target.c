/* Several agents steer through a plane and collect goals, which jump to another place when they are touched.
 *
 * A heading is a unit vector that is turned by one of nine constant rotations, so that no step needs a sine. Positions
 * are pixels; what observations hold are differences of positions in units of the field's width and height. */
#define OC_ENV target
#define OC_DOC "Steer to goals that jump away when touched, eight agents in one plane"
#define OC_OBS_T float
#define OC_MULTI
#define OC_PARAMS(P)                                                                                                  \
    P(int, num_agents, 8, 1, 64, "agents in the plane")                                                               \
    P(int, num_goals, 4, 1, 64, "goals in the plane")                                                                 \
    P(float, radius, 32, 1, 200, "distance at which an agent touches a goal, pixels")                                 \
    P(float, score_ref, 8, 0.1, 512, "score that counts as perf 1: that of a scripted agent with default parameters")
#define OC_EXTRAS(K) K(steps_per_goal)
#define OC_HAS_DRAW
#include "ocean.h"

#include <math.h>

enum {
    FIELD_WIDTH = 1080,
    FIELD_HEIGHT = 720,
    MAX_STEPS = 512,
    NUM_TURNS = 9,
    NUM_PUSHES = 5,
    HIGHEST_SPEED = 20, /* pixels a step */
    OWN_NUMBERS = 6,    /* of an observation, behind the places of goals and of the other agents */
};

/* cos and sin of (a - 4) / 12 radians, the turn of action a. */
static const double TURN_COS[NUM_TURNS] = {0.9449569463147377, 0.9689124217106447, 0.986143231562925,
                                           0.9965297867005595, 1,                  0.9965297867005595,
                                           0.986143231562925,  0.9689124217106447, 0.9449569463147377};
static const double TURN_SIN[NUM_TURNS] = {-0.3271946967961522,  -0.24740395925452294, -0.16589613269341502,
                                           -0.08323691620031025, 0,                    0.08323691620031025,
                                           0.16589613269341502,  0.24740395925452294,  0.3271946967961522};

typedef struct {
    float x, y;
} place;

typedef struct {
    double x, y;         /* pixels */
    double cosine, sine; /* heading */
    int32_t speed;       /* pixels a step, negative backwards */
    int32_t goals;       /* touched in this episode */
} mover;

/* Behind the agents lie the places of goals and agents, in that order, in units of the field's width and height. */
typedef struct {
    oc_rng rng;
    mover agents[];
} target;

static place *places_of(const target *e, const params *p) {
    return (place *)(void *)(e->agents + p->num_agents);
}

static void env_spec(const params *p, oc_spec *spec) {
    int num_places = p->num_goals + p->num_agents;
    spec->agents = p->num_agents;
    spec->obs_shape[0] = 2 * (num_places - 1) + OWN_NUMBERS;
    spec->obs_low = -1;
    spec->obs_high = 1;
    spec->act_kind = OC_MULTI_DISCRETE;
    spec->act_sizes[0] = NUM_TURNS;
    spec->act_sizes[1] = NUM_PUSHES;
    spec->max_steps = MAX_STEPS;
    spec->extra_bytes = p->num_agents * (int64_t)sizeof(mover) + num_places * (int64_t)sizeof(place);
    spec->width = FIELD_WIDTH / 2;
    spec->height = FIELD_HEIGHT / 2;
}

static place random_place(oc_rng *rng) {
    float x = oc_unit(rng);
    return (place){x, oc_unit(rng)};
}

static place place_of(const mover *agent) {
    return (place){(float)(agent->x / FIELD_WIDTH), (float)(agent->y / FIELD_HEIGHT)};
}

/* The ways to `count` places, written as pairs; returns where they end. */
static float *write_ways(place from, const place *to, int count, float *obs) {
    for (int i = 0; i < count; i++) {
        obs[2 * i] = to[i].x - from.x;
        obs[2 * i + 1] = to[i].y - from.y;
    }
    return obs + 2 * count;
}

static void write_observations(const target *e, const params *p, const oc_io *io) {
    const place *places = places_of(e, p);
    for (int i = 0; i < p->num_agents; i++) {
        const mover *agent = &e->agents[i];
        const int own = p->num_goals + i;
        float *obs = write_ways(places[own], places, own, oc_obs(io, i));
        obs = write_ways(places[own], places + own + 1, p->num_agents - i - 1, obs);
        obs[0] = oc_clamp((float)agent->cosine, -1, 1);
        obs[1] = oc_clamp((float)agent->sine, -1, 1);
        obs[2] = (float)agent->speed * (1.0f / HIGHEST_SPEED);
        obs[3] = io->rewards[i];
        obs[4] = places[own].x;
        obs[5] = places[own].y;
    }
}

static void env_reset(target *e, const params *p, oc_io *io) {
    place *places = places_of(e, p);
    for (int i = 0; i < p->num_goals; i++) {
        places[i] = random_place(&e->rng);
    }
    for (int i = 0; i < p->num_agents; i++) {
        mover *agent = &e->agents[i];
        place start = random_place(&e->rng);
        float cosine, sine;
        oc_sincos(oc_uniform(&e->rng, -OC_PI, OC_PI), &sine, &cosine);
        agent->x = (double)start.x * FIELD_WIDTH;
        agent->y = (double)start.y * FIELD_HEIGHT;
        agent->cosine = (double)cosine;
        agent->sine = (double)sine;
        places[p->num_goals + i] = place_of(agent);
    }
    write_observations(e, p, io);
}

static double clip(double x, double high) {
    return x < 0 ? 0 : (x > high ? high : x);
}

static void move(mover *agent, const int32_t *action) {
    int turn = oc_discrete(action[0], NUM_TURNS, NUM_TURNS / 2);
    int push = oc_discrete(action[1], NUM_PUSHES, NUM_PUSHES / 2) - NUM_PUSHES / 2;
    double cosine = agent->cosine * TURN_COS[turn] - agent->sine * TURN_SIN[turn];
    double sine = agent->sine * TURN_COS[turn] + agent->cosine * TURN_SIN[turn];
    agent->cosine = cosine;
    agent->sine = sine;
    agent->speed = oc_clamp_int(agent->speed + push, -HIGHEST_SPEED, HIGHEST_SPEED);
    agent->x = clip(agent->x + agent->speed * cosine, FIELD_WIDTH);
    agent->y = clip(agent->y + agent->speed * sine, FIELD_HEIGHT);
}

static bool is_touching(const mover *agent, place goal, float radius) {
    double dx = (double)goal.x * FIELD_WIDTH - agent->x, dy = (double)goal.y * FIELD_HEIGHT - agent->y;
    return dx * dx + dy * dy <= (double)radius * (double)radius;
}

/* One of the agents that touch the goal and got none yet in this step, at random; -1 if there is none. */
static int draw_winner(target *e, const params *p, const oc_io *io, place goal) {
    int winner = -1;
    uint32_t num_touching = 0;
    for (int i = 0; i < p->num_agents; i++) {
        if (is_touching(&e->agents[i], goal, p->radius) && io->rewards[i] < 1) {
            num_touching++;
            if (num_touching == 1 || oc_below(&e->rng, num_touching) == 0) {
                winner = i;
            }
        }
    }
    return winner;
}

static int env_step(target *e, const params *p, oc_io *io) {
    place *places = places_of(e, p);
    for (int i = 0; i < p->num_agents; i++) {
        move(&e->agents[i], oc_action(io, i));
        places[p->num_goals + i] = place_of(&e->agents[i]);
    }
    for (int i = 0; i < p->num_goals; i++) {
        int winner = draw_winner(e, p, io, places[i]);
        if (winner >= 0) {
            io->rewards[winner] = 1;
            e->agents[winner].goals++;
            places[i] = random_place(&e->rng);
        }
    }
    write_observations(e, p, io);
    return OC_RUNNING;
}

/* At half the size of the field: goals are circles that an agent's centre has to enter. */
static void env_draw(const target *e, const params *p, oc_canvas *canvas) {
    const place *places = places_of(e, p);
    int goals = 0;
    oc_clear(canvas, 0x101820);
    for (int i = 0; i < p->num_goals; i++) {
        float x = places[i].x * FIELD_WIDTH / 2, y = places[i].y * FIELD_HEIGHT / 2;
        oc_circle(canvas, x, y, p->radius / 2, 0x305838);
        oc_circle(canvas, x, y, 4, 0x60E080);
    }
    for (int i = 0; i < p->num_agents; i++) {
        const mover *agent = &e->agents[i];
        float x = (float)agent->x / 2, y = (float)agent->y / 2;
        float c = (float)agent->cosine, s = (float)agent->sine;
        oc_triangle(canvas, x + 9 * c, y + 9 * s, x - 6 * c - 5 * s, y - 6 * s + 5 * c, x - 6 * c + 5 * s,
                    y - 6 * s - 5 * c, 0xE0C060);
        goals += agent->goals;
    }
    oc_text(canvas, 6, 6, 1, 0xE0E0E0, "GOALS %d", goals);
}

static void env_metrics(const target *e, const params *p, const oc_ending *ending, double *metrics) {
    double goals = e->agents[ending->agent].goals;
    metrics[0] = goals;
    metrics[1] = goals < (double)p->score_ref ? goals / (double)p->score_ref : 1;
    metrics[2] = (double)ending->episode_length / (goals > 1 ? goals : 1);
}

#include "ocean_impl.h"
