#include "vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t on_lines(int64_t bytes) {
    return (bytes + OC_LINE - 1) / OC_LINE * OC_LINE;
}

static void *allocate(int64_t bytes) {
    size_t size = (size_t)on_lines(bytes > 0 ? bytes : 1);
    void *memory = aligned_alloc(OC_LINE, size);
    if (memory) {
        memset(memory, 0, size);
    }
    return memory;
}

static void set_block(oc_vec *vec, unsigned char *block) {
    int64_t worlds = vec->num_worlds, rows = vec->num_rows;
    unsigned char *at = block;
#define OC_PLACE(member, bytes)                                                                                        \
    vec->member = (void *)at;                                                                                          \
    at += on_lines(bytes);
    OC_PLACE(streams, worlds * (int64_t)sizeof *vec->streams)
    OC_PLACE(episodes, worlds * (int64_t)sizeof *vec->episodes)
    OC_PLACE(ticks, worlds * (int64_t)sizeof *vec->ticks)
    OC_PLACE(generations, worlds * (int64_t)sizeof *vec->generations)
    OC_PLACE(returns, rows * (int64_t)sizeof *vec->returns)
    OC_PLACE(lengths, rows * (int64_t)sizeof *vec->lengths)
    OC_PLACE(alive, rows)
    OC_PLACE(states, vec->state_stride ? worlds * vec->state_stride : vec->env->state_bytes(vec))
#undef OC_PLACE
    vec->block = block;
    vec->block_bytes = at - block;
}

int oc_open(oc_vec *vec, const oc_env *env, int64_t num_worlds, const void *params, const oc_spec *spec) {
    memset(vec, 0, sizeof *vec);
    vec->env = env;
    vec->spec = *spec;
    vec->agents = spec->agents;
    vec->num_worlds = num_worlds;
    vec->num_rows = num_worlds * vec->agents;
    vec->obs_bytes = oc_observation_size(spec) * oc_item_bytes(env->obs_dtype);
    vec->act_bytes = oc_action_size(spec) * (int64_t)sizeof(oc_act);
    vec->action_mask_bytes = oc_action_mask_size(env, spec);
    if (!env->is_soa) {
        vec->state_stride = (env->state_bytes(vec) + 7) / 8 * 8;
    }
    set_block(vec, NULL);
    vec->ending_numbers = 4 + env->num_extras;
    vec->params_stride = ((int64_t)env->params_bytes + 15) / 16 * 16;
    vec->statuses = allocate(vec->num_rows);
    vec->endings = allocate(vec->num_rows * vec->ending_numbers * (int64_t)sizeof(double));
    unsigned char *block = allocate(vec->block_bytes);
    if (!block || !vec->statuses || !vec->endings || oc_add_params(vec, params)) {
        free(block);
        vec->block = NULL;
        oc_close(vec);
        return -1;
    }
    set_block(vec, block);
    return 0;
}

void oc_close(oc_vec *vec) {
    vec->is_ready = false;
    free(vec->block);
    free(vec->statuses);
    free(vec->endings);
    free(vec->params);
    vec->block = NULL;
    vec->statuses = NULL;
    vec->endings = NULL;
    vec->params = NULL;
}

static int reserve_params(oc_vec *vec, uint32_t num_generations) {
    if (num_generations <= vec->params_capacity) {
        return 0;
    }
    uint32_t capacity = num_generations > 2 * vec->params_capacity ? num_generations : 2 * vec->params_capacity;
    unsigned char *larger = realloc(vec->params, (size_t)capacity * (size_t)vec->params_stride);
    if (!larger) {
        return -1;
    }
    vec->params = larger;
    vec->params_capacity = capacity;
    return 0;
}

int oc_set_params(oc_vec *vec, const void *params, uint32_t num_generations) {
    if (reserve_params(vec, num_generations)) {
        return -1;
    }
    memcpy(vec->params, params, (size_t)num_generations * (size_t)vec->params_stride);
    vec->num_generations = num_generations;
    return 0;
}

int oc_add_params(oc_vec *vec, const void *params) {
    if (reserve_params(vec, vec->num_generations + 1)) {
        return -1;
    }
    unsigned char *newest = vec->params + (int64_t)vec->num_generations * vec->params_stride;
    memset(newest, 0, (size_t)vec->params_stride);
    memcpy(newest, params, vec->env->params_bytes);
    vec->num_generations++;
    return 0;
}

/* Once every world uses the newest set of parameters, it is the only one. */
static void drop_old_params(oc_vec *vec) {
    uint32_t newest = vec->num_generations - 1;
    for (int64_t world = 0; world < vec->num_worlds; world++) {
        if (vec->generations[world] != newest) {
            return;
        }
    }
    memmove(vec->params, vec->params + (int64_t)newest * vec->params_stride, (size_t)vec->params_stride);
    memset(vec->generations, 0, (size_t)vec->num_worlds * sizeof *vec->generations);
    vec->num_generations = 1;
}

void oc_seed(oc_vec *vec, uint64_t seed, uint64_t first_world) {
    for (int64_t world = 0; world < vec->num_worlds; world++) {
        vec->streams[world] = oc_hash2(seed, first_world + (uint64_t)world);
        vec->episodes[world] = 0;
    }
    vec->num_steps = 0;
}

bool oc_acquire(oc_vec *vec) {
    int32_t idle = 0;
    return __atomic_compare_exchange_n(&vec->num_running, &idle, OC_ACQUIRED, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

void oc_release(oc_vec *vec) {
    __atomic_sub_fetch(&vec->num_running, OC_ACQUIRED, __ATOMIC_RELEASE);
}

void oc_restart(oc_vec *vec, bool next_episodes) {
    size_t rows = (size_t)vec->num_rows;
    for (int64_t world = 0; next_episodes && world < vec->num_worlds; world++) {
        vec->episodes[world]++;
    }
    memset(vec->rewards, 0, rows * sizeof *vec->rewards);
    memset(vec->terminals, 0, rows);
    memset(vec->truncations, 0, rows);
    vec->env->reset(vec, 0, vec->num_worlds);
    if (vec->num_generations > 1) {
        drop_old_params(vec);
    }
    vec->num_sliced = 0;
    vec->illegal_number = 0;
    vec->is_ready = true;
}

#if defined(PUFFER_DEBUG)
/* 1 + index in actions of the first discrete action of an agent that acts which is out of its range, or 0. */
static int64_t find_illegal(const oc_vec *vec, int64_t first, int64_t last) {
    const int32_t *actions = (const int32_t *)(const void *)vec->actions;
    const int64_t heads = oc_action_size(&vec->spec);
    for (int64_t i = first * vec->agents * heads; vec->spec.act_kind != OC_BOX && i < last * vec->agents * heads; i++) {
        if (vec->alive[i / heads] && (actions[i] < 0 || actions[i] >= vec->spec.act_sizes[i % heads])) {
            return 1 + i;
        }
    }
    return 0;
}
#endif

/* A debug build steps no world of a range in which an action is illegal; finish_step reports it. */
static void step_worlds(oc_vec *vec, int64_t first, int64_t last) {
#if defined(PUFFER_DEBUG)
    int64_t illegal = find_illegal(vec, first, last);
    if (illegal) {
        __atomic_store_n(&vec->illegal_number, illegal, __ATOMIC_RELAXED);
        return;
    }
#endif
    vec->env->step(vec, first, last);
}

void oc_step_slice(void *ctx, int64_t first, int64_t last) {
    oc_vec *vec = ctx;
    int32_t num_running = __atomic_add_fetch(&vec->num_running, 1, __ATOMIC_ACQUIRE);
    if (num_running > 0 && vec->is_ready && 0 <= first && first < last && last <= vec->num_worlds) {
        step_worlds(vec, first, last);
        __atomic_add_fetch(&vec->num_sliced, last - first, __ATOMIC_RELAXED);
    }
    __atomic_sub_fetch(&vec->num_running, 1, __ATOMIC_RELEASE);
}

bool oc_is_busy(const oc_vec *vec) {
    return __atomic_load_n(&vec->num_running, __ATOMIC_ACQUIRE) != 0;
}

int oc_reserve_records(oc_records *records, int64_t num_lines) {
    if (num_lines <= records->capacity) {
        return 0;
    }
    int64_t capacity = num_lines > 2 * records->capacity ? num_lines : 2 * records->capacity;
    unsigned char *larger = realloc(records->lines, (size_t)(capacity * records->line_bytes));
    if (!larger) {
        return -1;
    }
    records->lines = larger;
    records->capacity = capacity;
    return 0;
}

static int make_room(oc_records *records) {
    if (records->num_lines < records->max_lines) {
        return oc_reserve_records(records, records->num_lines + 1);
    }
    int64_t kept = records->num_lines / 2;
    int64_t dropped = records->num_lines - kept;
    memmove(records->lines, records->lines + dropped * records->line_bytes, (size_t)(kept * records->line_bytes));
    records->num_lines = kept;
    records->num_dropped += dropped;
    return 0;
}

static unsigned char *write_number(unsigned char *at, const void *number, size_t bytes) {
    memcpy(at, number, bytes);
    return at + bytes;
}

static int append_record(const oc_vec *vec, int64_t row, oc_records *records) {
    if (make_room(records)) {
        return -1;
    }
    const double *ending = vec->endings + row * vec->ending_numbers;
    int64_t world = vec->agents == 1 ? row : row / vec->agents, length = (int64_t)ending[1];
    int32_t agent = (int32_t)(row - world * vec->agents);
    unsigned char *at = records->lines + records->num_lines * records->line_bytes;
    at = write_number(at, &vec->num_steps, sizeof vec->num_steps);
    at = write_number(at, &world, sizeof world);
    at = write_number(at, &agent, sizeof agent);
    at = write_number(at, &ending[0], sizeof(double));
    at = write_number(at, &length, sizeof length);
    (void)write_number(at, &ending[2], (size_t)(vec->ending_numbers - 2) * sizeof(double));
    records->num_lines++;
    return 0;
}

/* Count a step of all worlds and append the records of the episodes that ended. */
static enum oc_outcome finish_whole_step(oc_vec *vec, oc_records *records) {
    if (vec->illegal_number) {
        return OC_ILLEGAL_ACTION;
    }
    vec->num_steps++;
    bool any_ended = false;
    for (int64_t row = 0; row < vec->num_rows; row += 8) {
        uint64_t ended = oc_first_eight(vec->terminals + row, vec->num_rows - row) |
                         oc_first_eight(vec->truncations + row, vec->num_rows - row);
        while (ended) {
            if (append_record(vec, row + oc_first_set_byte(ended), records)) {
                return OC_NO_MEMORY;
            }
            ended &= ended - 1; /* a flag is 1 in its byte */
            any_ended = true;
        }
    }
    if (any_ended && vec->num_generations > 1) {
        drop_old_params(vec);
    }
    return OC_DONE;
}

enum oc_outcome oc_finish_step(oc_vec *vec, oc_records *records) {
    if (vec->num_sliced != vec->num_worlds) {
        return OC_WORLDS_LEFT;
    }
    vec->num_sliced = 0;
    return finish_whole_step(vec, records);
}

enum oc_outcome oc_step_all(oc_vec *vec, oc_records *records) {
    if (!oc_acquire(vec)) {
        return OC_BUSY;
    }
    enum oc_outcome outcome = OC_WORLDS_LEFT;
    if (!vec->num_sliced) {
        step_worlds(vec, 0, vec->num_worlds);
        outcome = finish_whole_step(vec, records);
    }
    oc_release(vec);
    return outcome;
}

static double element(const oc_vec *vec, int64_t row, int64_t index) {
    const unsigned char *at = vec->observations + row * vec->obs_bytes + index * oc_item_bytes(vec->env->obs_dtype);
    switch (vec->env->obs_dtype) {
    case OC_U8:
        return *at;
    case OC_I8:
        return *(const int8_t *)at;
    case OC_I16:
        return *(const int16_t *)(const void *)at;
    case OC_I32:
        return *(const int32_t *)(const void *)at;
    default:
        return (double)*(const float *)(const void *)at;
    }
}

/* Squares of the observation, a line an agent: dark is the smallest value of the picture, bright the largest. */
static void draw_observation(const oc_vec *vec, int64_t world, oc_canvas *canvas) {
    int64_t size = oc_observation_size(&vec->spec), first = world * vec->agents;
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < vec->agents * size; i++) {
        low = fmin(low, element(vec, first + i / size, i % size));
        high = fmax(high, element(vec, first + i / size, i % size));
    }
    float width = (float)canvas->width / (float)size, height = (float)canvas->height / (float)vec->agents;
    for (int64_t i = 0; i < vec->agents * size; i++) {
        double share = high > low ? (element(vec, first + i / size, i % size) - low) / (high - low) : 0;
        uint32_t gray = (uint32_t)(24 + 207 * share);
        oc_rect(canvas, (float)(i % size) * width, (float)(i / size) * height, width, height, gray * 0x010101u);
    }
}

void oc_draw_world(const oc_vec *vec, int64_t world, oc_canvas *canvas) {
    oc_clear(canvas, 0x000000);
    if (vec->env->draw) {
        vec->env->draw(vec, world, canvas);
    } else {
        draw_observation(vec, world, canvas);
    }
}
