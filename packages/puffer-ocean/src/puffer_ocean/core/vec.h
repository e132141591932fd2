/* A batch of worlds of one environment: what the binding does with an oc_vec. The loops are in ocean_impl.h. */
#ifndef OC_VEC_H
#define OC_VEC_H

#include "spec.h"

/* Records of finished episodes: packed lines of int64 step, world; int32 agent; float64 episode_return; int64
 * episode_length; float64 score, perf and extras, in the order (step, world, agent). */
typedef struct {
    unsigned char *lines;
    int64_t line_bytes, num_lines, capacity, max_lines;
    int64_t num_dropped; /* the oldest ones, when nobody drains */
} oc_records;

/* Allocate a batch with resolved parameters. Returns 0, or -1 without memory (nothing is held then). */
int oc_open(oc_vec *vec, const oc_env *env, int64_t num_worlds, const void *params, const oc_spec *spec);
void oc_close(oc_vec *vec);

/* A new set of parameters, resolved and of the same shapes, for each world's next episode. -1: no memory. */
int oc_add_params(oc_vec *vec, const void *params);

/* All sets of parameters of a snapshot, params_stride bytes each. -1: no memory, and nothing has changed. */
int oc_set_params(oc_vec *vec, const void *params, uint32_t num_generations);

/* Worlds first_world, first_world + 1, ... of the run with this seed, each before its episode 0. */
void oc_seed(oc_vec *vec, uint64_t seed, uint64_t first_world);

/* Begin an episode in every world: the present numbers, or the next ones. Clears rewards and flags. */
void oc_restart(oc_vec *vec, bool next_episodes);

enum { OC_ACQUIRED = INT32_MIN / 2 }; /* far below 0, however many slices come in vain meanwhile */

/* Take the batch for this thread alone: false while anything else runs on it. Slices that come meanwhile do nothing. */
bool oc_acquire(oc_vec *vec);
void oc_release(oc_vec *vec);
bool oc_is_busy(const oc_vec *vec);

/* Step worlds first .. last-1; the capsule's function. Does nothing unless the batch is ready. */
void oc_step_slice(void *vec, int64_t first, int64_t last);

enum oc_outcome { /* of a step; it was made only if OC_DONE */
    OC_DONE,
    OC_NO_MEMORY,      /* for records */
    OC_BUSY,           /* another step runs */
    OC_WORLDS_LEFT,    /* the slices since the last whole step do not cover each world once: num_sliced */
    OC_ILLEGAL_ACTION, /* only a debug build says so: illegal_number */
};

/* Step all worlds and finish the step. */
enum oc_outcome oc_step_all(oc_vec *vec, oc_records *records);

/* After all slices of a step: count it and append the records of the episodes that ended. */
enum oc_outcome oc_finish_step(oc_vec *vec, oc_records *records);

/* Room for at least this many records. -1: no memory. */
int oc_reserve_records(oc_records *records, int64_t num_lines);

/* Draw a world, with the environment's own function or as squares, one for each element of the observation. */
void oc_draw_world(const oc_vec *vec, int64_t world, oc_canvas *canvas);

#endif
