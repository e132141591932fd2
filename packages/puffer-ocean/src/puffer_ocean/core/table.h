/* What an environment's C file tells the framework (oc_env), and a batch of its worlds (oc_vec).
 *
 * Memory of a batch; "snapshot" marks the block that get_state copies, which holds no pointers:
 *
 *     caller's rows   observations actions rewards terminals truncations masks final_observations action_mask
 *     snapshot        streams episodes ticks generations returns lengths alive | states, written by the env
 *     between a step and finish_step: endings, one line of numbers for each row whose episode ended
 *     parameters      one set a generation: a world uses the set that was newest when its episode began */
#ifndef OC_TABLE_H
#define OC_TABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "canvas.h"
#include "rng.h"

#define OC_ABI_VERSION 2u
#define OC_LINE 64          /* bytes of a cache line */
#define OC_SLICE_MULTIPLE 64 /* worlds: even a slice of flags, one byte a row, fills whole cache lines */
#define OC_MAX_DIMS 4
#define OC_MAX_HEADS 16

#define OC_MAYBE_UNUSED __attribute__((unused))

enum oc_status { /* what a step says of a world or an agent; both bits may be set */
    OC_RUNNING = 0,
    OC_TERMINATED = 1, /* the MDP ended: goal, death, game over, a clock that is part of the game */
    OC_TRUNCATED = 2,  /* an outside limit cut the episode */
};

enum oc_dtype { OC_U8, OC_I8, OC_I16, OC_I32, OC_F32 };

enum oc_act_kind {
    OC_DISCRETE,       /* act_sizes = {n}: one int32 in 0 .. n-1 */
    OC_MULTI_DISCRETE, /* act_sizes = {n0, n1, ...}: one int32 a head */
    OC_BOX,            /* act_sizes = {n}: n float32 in act_low .. act_high */
};

/* One number of an action, for environments whose actions are discrete or continuous by a parameter. */
typedef union {
    int32_t i;
    float f;
} oc_act;

enum oc_act_type { OC_ACT_INT, OC_ACT_FLOAT, OC_ACT_EITHER }; /* OC_ACT_T is int32_t, float or oc_act */

/* Shapes and limits of an environment with given parameters. Fields left 0 have the default in brackets. */
typedef struct {
    int agents;                   /* rows of one world [1] */
    int obs_shape[OC_MAX_DIMS];   /* of one row; ends at the first 0 */
    double obs_low, obs_high;     /* of every element [both 0: all that the dtype holds] */
    int act_kind;                 /* [OC_DISCRETE] */
    int act_sizes[OC_MAX_HEADS];  /* ends at the first 0 */
    double act_low, act_high;     /* of OC_BOX [-1, 1] */
    int max_steps;                /* steps after which the framework truncates the episode [never] */
    int64_t extra_bytes;          /* of state behind the struct, for a flexible array member */
    int width, height;            /* pixels of the picture [a generic view of the observation] */
    int fps;                      /* pictures a second at natural speed [30] */
} oc_spec;

enum oc_param_type { OC_INT, OC_FLOAT, OC_BOOL };

typedef struct {
    const char *name;
    int type;
    size_t offset; /* in the params struct */
    double value;  /* default */
    double low, high;
    const char *doc;
} oc_param;

/* Why a set of parameters is refused. */
typedef struct {
    char text[256];
} oc_message;

/* Refuse the parameters, from env_check: `return oc_refuse(message, "size must be odd; got size=%d. ...", p->size);` */
OC_MAYBE_UNUSED OC_PRINTF_LIKE(2, 3) static int oc_refuse(oc_message *message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    return 1;
}

/* An agent's episode that has just ended. */
typedef struct {
    double episode_return;  /* undiscounted sum of its rewards */
    int64_t episode_length; /* steps of this agent */
    int agent;              /* row within the world */
    int status;             /* OC_TERMINATED, OC_TRUNCATED or both */
} oc_ending;

typedef struct oc_vec oc_vec;

/* The table of one environment: everything that the framework knows of it. */
typedef struct {
    uint32_t abi_version;
    int version; /* of the rules: a change of any trajectory raises it */
    const char *name, *doc;
    const oc_param *params;
    int num_params;
    size_t params_bytes;
    const char *const *extras; /* names of the metrics after score and perf */
    int num_extras;
    int obs_dtype, act_type;
    bool has_action_mask, is_multi, is_soa;
    void (*spec)(const void *params, oc_spec *spec);
    int (*check)(const void *params, oc_message *message);                            /* or NULL */
    void (*bounds)(const void *params, double *low, double *high);                    /* or NULL */
    int64_t (*state_bytes)(const oc_vec *vec);                                        /* of a world; is_soa: of all */
    void (*reset)(oc_vec *vec, int64_t first, int64_t last);                          /* begin episodes[world] */
    void (*step)(oc_vec *vec, int64_t first, int64_t last);
    void (*draw)(const oc_vec *vec, int64_t world, oc_canvas *canvas);                /* or NULL */
} oc_env;

struct oc_vec {
    const oc_env *env;
    oc_spec spec;
    int64_t num_worlds, num_rows, agents;
    int64_t obs_bytes, act_bytes, action_mask_bytes; /* of one row */

    unsigned char *observations, *actions, *final_observations; /* rows of the caller */
    float *rewards;
    uint8_t *terminals, *truncations, *masks, *action_mask;

    unsigned char *block; /* the snapshot: what follows, up to states */
    int64_t block_bytes;
    uint64_t *streams;     /* a world: hash2(seed, global number of the world) */
    uint32_t *episodes;    /* a world: number of its present episode */
    uint32_t *ticks;       /* a world: steps of its present episode (only kept with several agents) */
    uint32_t *generations; /* a world: which set of parameters it uses */
    double *returns;       /* a row: rewards of the agent's present episode, summed */
    uint32_t *lengths;     /* a row: steps of the agent's present episode */
    uint8_t *alive;        /* a row: its agent's episode runs */
    unsigned char *states;
    int64_t state_stride; /* bytes from one world's struct to the next; 0 for a struct of arrays */

    uint8_t *statuses;      /* a row, scratch: how its episode ended on this step */
    double *endings;        /* a row: return, length, score, perf, extras; filled where a flag is set */
    int64_t ending_numbers; /* of one row */

    unsigned char *params; /* sets of parameters, the newest last */
    int64_t params_stride;
    uint32_t num_generations, params_capacity;

    int64_t num_steps;        /* calls of step since the last seeded reset */
    int64_t num_sliced;       /* worlds that slices have stepped since the last whole step, changed atomically */
    int64_t illegal_number;   /* debug build, changed atomically: 1 + index in actions of one that is not legal, or 0 */
    int32_t num_running;      /* slices in progress, or OC_ACQUIRED; changed atomically */
    bool is_ready;            /* rows are bound and the worlds were reset */
};

/* Up to 8 bytes as a word whose lowest byte is the first, so that the lowest set bit belongs to the first set byte. */
static inline uint64_t oc_first_eight(const uint8_t *bytes, int64_t count) {
    uint64_t word = 0;
    if (count >= 8) {
        memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        return word;
    }
    for (int64_t i = 0; i < count; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

/* Index of the first set byte of a word that is not 0. */
static inline int oc_first_set_byte(uint64_t word) {
    return __builtin_ctzll(word) / 8;
}

static inline const void *oc_params_of(const oc_vec *vec, int64_t world) {
    return vec->params + (int64_t)vec->generations[world] * vec->params_stride;
}

#endif
