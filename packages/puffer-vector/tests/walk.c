/* A foreign native env: worlds whose counter runs to a random length. It knows nothing of puffer_vector but the struct. */
#include <stdint.h>

typedef struct { uint32_t abi_version, struct_size; void *ctx; int64_t num_worlds, rows_per_world, slice_multiple;
                 void (*step)(void *, int64_t, int64_t); } Capsule;
typedef struct { float *observations; int32_t *actions; float *rewards; uint8_t *terminals; float *finals;
                 uint64_t *streams; int64_t *lengths; double *ended; int64_t spin; } Walk;

void walk_step(void *context, int64_t first, int64_t last) {
    Walk *walk = context;
    for (int64_t w = first; w < last; w++) {
        for (volatile int64_t i = 0; i < walk->spin; i++) {}
        walk->streams[w] = walk->streams[w] * 6364136223846793005u + 1442695040888963407u;
        walk->lengths[w] += 1;
        float seen = (float)(walk->streams[w] >> 40);
        walk->rewards[w] = (float)walk->actions[w];
        walk->terminals[w] = (walk->streams[w] >> 33) % 7 == 0;
        walk->ended[w] = walk->terminals[w] ? (double)walk->lengths[w] : 0;
        if (walk->terminals[w]) walk->finals[w] = seen, walk->lengths[w] = 0;
        walk->observations[w] = walk->terminals[w] ? 0 : seen;
    }
}
