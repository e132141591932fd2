/* The last include of an environment's C file: the loops over worlds with the env's own functions compiled into them,
 * and its table, oc_env_<name>. Everything here is static but the table.
 *
 * NOTE [One step of a world]
 * 1. env_step changes the state, adds rewards, writes observations and says what ended.
 * 2. The framework counts returns and lengths and applies the limit of steps.
 * 3. Where an episode ended: flags, the last observation to final_observations, one line of endings.
 * 4. Where a world ended: next episode number, new stream, zeroed state and rows, env_reset (SAME_STEP autoreset).
 * A step touches nothing but the rows and the state of its own worlds, so that slices may run on several threads;
 * records are made from flags and endings afterwards, in finish_step. */
#include <limits.h>
#include <math.h>

#if defined(OC_SOA) && (defined(OC_MULTI) || defined(OC_HAS_ACTION_MASK))
#error "OC_SOA is for environments of one agent without action masks"
#endif

/* Types by pointer, so that one that is not in the list gives this message and not one about _Generic. */
#define OC_OBS_DTYPE                                                                                                   \
    _Generic((OC_OBS_T *)0,                                                                                            \
        uint8_t *: OC_U8,                                                                                              \
        int8_t *: OC_I8,                                                                                               \
        int16_t *: OC_I16,                                                                                             \
        int32_t *: OC_I32,                                                                                             \
        float *: OC_F32,                                                                                               \
        default: -1)
#define OC_ACT_TYPE                                                                                                    \
    _Generic((OC_ACT_T *)0, int32_t *: OC_ACT_INT, float *: OC_ACT_FLOAT, oc_act *: OC_ACT_EITHER, default: -1)
_Static_assert(OC_OBS_DTYPE >= 0, "OC_OBS_T must be uint8_t, int8_t, int16_t, int32_t or float");
_Static_assert(OC_ACT_TYPE >= 0, "OC_ACT_T must be int32_t, float or oc_act");

#define OC_PASTE2(a, b) a##b
#define OC_PASTE(a, b) OC_PASTE2(a, b)
#define OC_QUOTE2(a) #a
#define OC_QUOTE(a) OC_QUOTE2(a)

#if !defined(OC_SOA)
static inline OC_ENV *oc_state(const oc_vec *vec, int64_t world) {
    return (OC_ENV *)(void *)(vec->states + world * vec->state_stride);
}
#endif

static inline OC_OBS_T *oc_row_obs(const oc_vec *vec, int64_t row) {
    return (OC_OBS_T *)(void *)(vec->observations + row * vec->obs_bytes);
}

#if defined(OC_SOA)
/* Where the arrays of a batch lie in its state memory; returns the bytes of all. */
static inline int64_t oc_view(unsigned char *memory, int64_t num_worlds, worlds *view) {
    int64_t at = 0;
#define OC_PLACE(type, name)                                                                                           \
    view->name = (type *)(void *)(memory + at);                                                                        \
    at += (num_worlds * (int64_t)sizeof(type) + OC_LINE - 1) / OC_LINE * OC_LINE;
    OC_PLACE(oc_rng, rng)
    OC_SOA(OC_PLACE)
#undef OC_PLACE
    return at;
}
#endif

#if defined(OC_HAS_ACTION_MASK)
static void oc_write_action_masks(const oc_vec *vec, int64_t world, const params *p) {
    for (int64_t agent = 0; agent < vec->agents; agent++) {
        int64_t row = world * vec->agents + agent;
        uint8_t *mask = vec->action_mask + row * vec->action_mask_bytes;
        memset(mask, 1, (size_t)vec->action_mask_bytes);
        if (vec->alive[row]) {
            env_action_mask(oc_state(vec, world), p, (int)agent, mask);
        }
    }
}
#endif

#if defined(OC_MULTI)
static inline oc_io oc_io_of(oc_vec *vec, int64_t world) {
    int64_t row = world * vec->agents;
    return (oc_io){
        .vec = vec,
        .world = world,
        .agents = (int)vec->agents,
        .observations = oc_row_obs(vec, row),
        .actions = (const OC_ACT_T *)(void *)(vec->actions + row * vec->act_bytes),
        .rewards = vec->rewards + row,
        .alive = vec->alive + row,
        .statuses = vec->statuses + row,
        .obs_len = vec->obs_bytes / (int64_t)sizeof(OC_OBS_T),
        .act_len = vec->act_bytes / (int64_t)sizeof(OC_ACT_T),
    };
}
#endif

/* Begin episode episodes[world] of a world with the newest parameters. */
static void oc_begin(oc_vec *vec, int64_t world) {
    vec->generations[world] = vec->num_generations - 1;
    const params *p = oc_params_of(vec, world);
    oc_rng rng = oc_rng_of_stream(oc_hash2(vec->streams[world], vec->episodes[world]));
    int64_t row = world * vec->agents;
    for (int64_t agent = 0; agent < vec->agents; agent++) {
        vec->returns[row + agent] = 0;
        vec->lengths[row + agent] = 0;
        vec->alive[row + agent] = 1;
        vec->masks[row + agent] = 1;
    }
#if defined(OC_SOA)
    worlds view;
    (void)oc_view(vec->states, vec->num_worlds, &view);
    view.rng[world] = rng;
    env_reset(&view, p, world, oc_row_obs(vec, row));
#else
    vec->ticks[world] = 0;
    memset(oc_row_obs(vec, row), 0, (size_t)(vec->agents * vec->obs_bytes));
    OC_ENV *state = oc_state(vec, world);
    memset(state, 0, (size_t)vec->state_stride);
    state->rng = rng;
#if defined(OC_MULTI)
    oc_io io = oc_io_of(vec, world);
    memset(io.statuses, 0, (size_t)vec->agents);
    env_reset(state, p, &io);
#else
    env_reset(state, p, oc_row_obs(vec, row));
#endif
#endif
#if defined(OC_HAS_ACTION_MASK)
    oc_write_action_masks(vec, world, p);
#endif
}

/* The episode of a row has ended: flags, the last observation, and the numbers of its record. */
static void oc_finish_row(oc_vec *vec, int64_t world, int64_t row, const params *p, int status) {
    vec->terminals[row] = (status & OC_TERMINATED) != 0;
    vec->truncations[row] = (status & OC_TRUNCATED) != 0;
    memcpy(vec->final_observations + row * vec->obs_bytes, oc_row_obs(vec, row), (size_t)vec->obs_bytes);
    double *line = vec->endings + row * vec->ending_numbers;
    oc_ending ending = {
        .episode_return = vec->returns[row],
        .episode_length = vec->lengths[row],
        .agent = (int)(row - world * vec->agents),
        .status = status,
    };
    line[0] = ending.episode_return;
    line[1] = (double)ending.episode_length;
    line[2] = ending.episode_return;
    line[3] = (double)NAN;
    for (int64_t i = 4; i < vec->ending_numbers; i++) {
        line[i] = 0;
    }
#if defined(OC_SOA)
    worlds view;
    (void)oc_view(vec->states, vec->num_worlds, &view);
    env_metrics(&view, p, world, &ending, line + 2);
#else
    env_metrics(oc_state(vec, world), p, &ending, line + 2);
#endif
}

#if !defined(OC_MULTI)
OC_COLD static void oc_end_world(oc_vec *vec, int64_t world, const params *p, int status) {
    oc_finish_row(vec, world, world, p, status);
    vec->episodes[world]++;
    oc_begin(vec, world);
}
#endif

#if defined(OC_SOA)
#include "step_soa.h"
#elif defined(OC_MULTI)
#include "step_multi.h"
#else
#include "step_single.h"
#endif

static void oc_step(oc_vec *vec, int64_t first, int64_t last) {
    if (vec->num_generations == 1) {
        oc_step_with(vec, first, last, (const params *)(void *)vec->params);
        return;
    }
    /* Worlds change their set of parameters one by one, so each may have another. */
    for (int64_t world = first; world < last; world++) {
        oc_step_with(vec, world, world + 1, oc_params_of(vec, world));
    }
}

static void oc_reset(oc_vec *vec, int64_t first, int64_t last) {
    for (int64_t world = first; world < last; world++) {
        oc_begin(vec, world);
    }
}

static void oc_spec_of(const void *p, oc_spec *spec) {
    env_spec(p, spec);
}

static int64_t oc_state_bytes(const oc_vec *vec) {
#if defined(OC_SOA)
    worlds view;
    return oc_view(NULL, vec->num_worlds, &view);
#else
    return (int64_t)sizeof(OC_ENV) + vec->spec.extra_bytes;
#endif
}

#if defined(OC_HAS_CHECK)
static int oc_check(const void *p, oc_message *message) {
    return env_check(p, message);
}
#endif

#if defined(OC_HAS_BOUNDS)
static void oc_bounds(const void *p, double *low, double *high) {
    env_bounds(p, low, high);
}
#endif

#if defined(OC_HAS_DRAW)
static void oc_draw(const oc_vec *vec, int64_t world, oc_canvas *canvas) {
#if defined(OC_SOA)
    worlds view;
    (void)oc_view(vec->states, vec->num_worlds, &view);
    env_draw(&view, oc_params_of(vec, world), world, canvas);
#else
    env_draw(oc_state(vec, world), oc_params_of(vec, world), canvas);
#endif
}
#endif

#define OC_PARAM_ROW(type, name, value, low, high, doc)                                                                \
    {#name,                                                                                                            \
     _Generic(((params *)0)->name, int: OC_INT, float: OC_FLOAT, bool: OC_BOOL),                                       \
     offsetof(params, name),                                                                                           \
     (double)(value),                                                                                                  \
     (double)(low),                                                                                                    \
     (double)(high),                                                                                                   \
     doc},

static const oc_param oc_param_table[] = {
    OC_PARAM_ROW(int, max_steps, 0, -1, INT_MAX,
                 "steps after which an episode is truncated; 0 is the environment's own limit, -1 none")
    OC_PARAMS(OC_PARAM_ROW)
};

#define OC_EXTRA_ROW(name) #name,
static const char *const oc_extra_table[] = {OC_EXTRAS(OC_EXTRA_ROW) NULL};

#if defined(OC_EXPORT_TABLE) /* built as a library of its own */
#define OC_TABLE_VISIBILITY __attribute__((visibility("default")))
#else
#define OC_TABLE_VISIBILITY
#endif

extern const oc_env OC_PASTE(oc_env_, OC_ENV);
OC_TABLE_VISIBILITY const oc_env OC_PASTE(oc_env_, OC_ENV) = {
    .abi_version = OC_ABI_VERSION,
    .version = OC_VERSION,
    .name = OC_QUOTE(OC_ENV),
    .doc = OC_DOC,
    .params = oc_param_table,
    .num_params = (int)(sizeof oc_param_table / sizeof oc_param_table[0]),
    .params_bytes = sizeof(params),
    .extras = oc_extra_table,
    .num_extras = (int)(sizeof oc_extra_table / sizeof oc_extra_table[0]) - 1,
    .obs_dtype = OC_OBS_DTYPE,
    .act_type = OC_ACT_TYPE,
    .spec = oc_spec_of,
    .state_bytes = oc_state_bytes,
    .reset = oc_reset,
    .step = oc_step,
#if defined(OC_HAS_ACTION_MASK)
    .has_action_mask = true,
#endif
#if defined(OC_MULTI)
    .is_multi = true,
#endif
#if defined(OC_SOA)
    .is_soa = true,
#endif
#if defined(OC_HAS_CHECK)
    .check = oc_check,
#endif
#if defined(OC_HAS_BOUNDS)
    .bounds = oc_bounds,
#endif
#if defined(OC_HAS_DRAW)
    .draw = oc_draw,
#endif
};
