/* What the capsule "puffer.step.v1" points to: how another package's threads step the worlds of a native env.
 *
 * `step` needs no GIL. Slices start at multiples of `slice_multiple`, so that no two touch one cache line; together
 * the slices of one step cover all worlds once, in any order and on any threads. After the last one the caller calls
 * the env's `finish_step()`, with the GIL. The capsule keeps the env alive. */
#ifndef OC_CAPSULE_H
#define OC_CAPSULE_H

#include <stdint.h>

typedef struct {
    uint32_t abi_version; /* 1 */
    uint32_t struct_size; /* sizeof(puffer_step_v1): a longer struct of a later version starts with these fields */
    void *ctx;
    int64_t num_worlds;
    int64_t rows_per_world;
    int64_t slice_multiple;
    void (*step)(void *ctx, int64_t first_world, int64_t last_world); /* worlds first_world .. last_world - 1 */
} puffer_step_v1;

#endif
