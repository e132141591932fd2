/* Walk to the target cells of a board, without leaving it. The smallest task with space and delayed reward. */
#define OC_ENV squared
#define OC_DOC "Walk to the target cell of a board without leaving it"
#define OC_OBS_T uint8_t
#define OC_PARAMS(P)                                                                                                   \
    P(int, size, 11, 3, 99, "side of the board, odd")                                                                  \
    P(int, num_targets, 1, 1, 8, "targets; each vanishes when hit and the episode ends with the last")                 \
    P(float, reward_target, 1, 0, 1, "reward for a target")                                                            \
    P(float, reward_out, -1, -1, 0, "reward for leaving the board")                                                    \
    P(float, reward_step, 0, -0.1, 0, "reward for any other step")                                                     \
    P(bool, onehot, false, 0, 1, "observe planes (3, size, size) of empty, agent, target instead of one row of cells")
#define OC_EXTRAS(K) K(out_rate) K(timeout_rate)
#define OC_HAS_CHECK
#define OC_HAS_DRAW
#include "ocean.h"

enum { CELL_EMPTY, CELL_AGENT, CELL_TARGET, NUM_CELL_KINDS };

enum { STAY, DOWN, UP, LEFT, RIGHT, NUM_ACTIONS };

enum { MAX_TARGETS = 8 };

typedef struct {
    oc_rng rng;
    int16_t row, column;
    uint8_t targets_left, targets_hit, is_out;
    int16_t targets[MAX_TARGETS]; /* cells, the first targets_left of them */
} squared;

static void env_spec(const params *p, oc_spec *spec) {
    *spec = (oc_spec){
        .obs_shape = {p->size * p->size},
        .obs_high = CELL_TARGET,
        .act_sizes = {NUM_ACTIONS},
        .max_steps = 3 * p->size,
        .width = 30 * p->size > 330 ? 330 : 30 * p->size,
        .height = 30 * p->size > 330 ? 330 : 30 * p->size,
        .fps = 5,
    };
    if (p->onehot) {
        memcpy(spec->obs_shape, (int[]){NUM_CELL_KINDS, p->size, p->size}, 3 * sizeof(int));
        spec->obs_high = 1;
    }
}

static int env_check(const params *p, oc_message *message) {
    if (p->size % 2 == 0) {
        return oc_refuse(message, "size must be odd; got size=%d. Use %d or %d.", p->size, p->size - 1, p->size + 1);
    }
    return 0;
}

static inline void put_cell(const params *p, uint8_t *obs, int cell, int from, int to) {
    if (p->onehot) {
        int plane = p->size * p->size;
        obs[from * plane + cell] = 0;
        obs[to * plane + cell] = 1;
    } else {
        obs[cell] = (uint8_t)to;
    }
}

static inline int cell_at(const params *p, const uint8_t *obs, int cell) {
    return p->onehot ? (obs[CELL_TARGET * p->size * p->size + cell] ? CELL_TARGET : CELL_EMPTY) : obs[cell];
}

static void env_reset(squared *e, const params *p, uint8_t *obs) {
    int num_cells = p->size * p->size;
    int middle = num_cells / 2;
    if (p->onehot) {
        memset(obs, 1, (size_t)num_cells);
    }
    e->row = e->column = (int16_t)(p->size / 2);
    put_cell(p, obs, middle, CELL_EMPTY, CELL_AGENT);
    while (e->targets_left < p->num_targets) {
        int cell = (int)oc_below(&e->rng, (uint32_t)num_cells - 1);
        cell += cell >= middle;
        if (cell_at(p, obs, cell) != CELL_TARGET) {
            put_cell(p, obs, cell, CELL_EMPTY, CELL_TARGET);
            e->targets[e->targets_left++] = (int16_t)cell;
        }
    }
}

static int env_step(squared *e, const params *p, const int32_t *act, uint8_t *obs, float *reward) {
    static const int8_t ROWS[NUM_ACTIONS] = {[DOWN] = 1, [UP] = -1};
    static const int8_t COLUMNS[NUM_ACTIONS] = {[LEFT] = -1, [RIGHT] = 1};
    int action = oc_discrete(act[0], NUM_ACTIONS, STAY);
    put_cell(p, obs, e->row * p->size + e->column, CELL_AGENT, CELL_EMPTY);
    int row = e->row + ROWS[action], column = e->column + COLUMNS[action];
    if ((unsigned)row >= (unsigned)p->size || (unsigned)column >= (unsigned)p->size) {
        e->is_out = 1;
        *reward = p->reward_out;
        return OC_TERMINATED;
    }
    e->row = (int16_t)row;
    e->column = (int16_t)column;
    int cell = row * p->size + column;
    int found = cell_at(p, obs, cell);
    put_cell(p, obs, cell, found, CELL_AGENT);
    *reward = p->reward_step;
    if (found != CELL_TARGET) {
        return OC_RUNNING;
    }
    *reward = p->reward_target;
    e->targets_hit++;
    e->targets_left--;
    for (int i = 0; i < e->targets_left; i++) {
        if (e->targets[i] == cell) {
            e->targets[i] = e->targets[e->targets_left];
        }
    }
    return e->targets_left ? OC_RUNNING : OC_TERMINATED;
}

static void env_metrics(const squared *e, const params *p, const oc_ending *ending, double *metrics) {
    (void)p;
    metrics[0] = e->targets_hit - e->is_out;
    metrics[1] = e->targets_left == 0;
    metrics[2] = e->is_out;
    metrics[3] = ending->status == OC_TRUNCATED;
}

static void draw_cell(const params *p, int row, int column, uint32_t color, oc_canvas *canvas) {
    float side = (float)canvas->width / (float)p->size;
    float gap = side > 8 ? 1 : 0;
    oc_rect(canvas, (float)column * side + gap, (float)row * side + gap, side - 2 * gap, side - 2 * gap, color);
}

static void env_draw(const squared *e, const params *p, oc_canvas *canvas) {
    oc_clear(canvas, 0x10141c);
    for (int cell = 0; cell < p->size * p->size; cell++) {
        draw_cell(p, cell / p->size, cell % p->size, 0x232a36, canvas);
    }
    for (int i = 0; i < e->targets_left; i++) {
        draw_cell(p, e->targets[i] / p->size, e->targets[i] % p->size, 0xe0503c, canvas);
    }
    if (!e->is_out) {
        draw_cell(p, e->row, e->column, 0x3cc8c0, canvas);
    }
}

#include "ocean_impl.h"
