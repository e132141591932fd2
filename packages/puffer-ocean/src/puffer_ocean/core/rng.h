/* The random numbers of an environment: PCG32 (XSH-RR 64/32, O'Neill 2014, "PCG: A Family of Simple Fast
 * Space-Efficient Statistically Good Algorithms for Random Number Generation").
 *
 * The framework gives each world a new stream at each episode, so that an episode can be replayed alone and does not
 * depend on how many numbers earlier ones drew. Nothing here reads a clock or any other state. */
#ifndef OC_RNG_H
#define OC_RNG_H

#include "seed.h"

typedef struct {
    uint64_t state;
    uint64_t increment; /* odd: selects the sequence */
} oc_rng;

/* 32 uniform bits. */
static inline uint32_t oc_bits(oc_rng *rng) {
    uint64_t old = rng->state;
    rng->state = old * 6364136223846793005ull + rng->increment;
    uint32_t word = (uint32_t)(((old >> 18) ^ old) >> 27);
    uint32_t rotation = (uint32_t)(old >> 59);
    return (word >> rotation) | (word << ((0u - rotation) & 31u));
}

/* The generator of a stream, a number that `oc_hash3(seed, world, episode)` gives. */
static inline oc_rng oc_rng_of_stream(uint64_t stream) {
    oc_rng rng = {stream, oc_mix(stream ^ OC_GOLDEN_GAMMA) | 1u};
    (void)oc_bits(&rng);
    return rng;
}

/* Uniform in 0 .. n-1, without bias (Lemire 2019, "Fast Random Integer Generation in an Interval"). n = 0 gives 0. */
static inline uint32_t oc_below(oc_rng *rng, uint32_t n) {
    uint64_t product = (uint64_t)oc_bits(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = (0u - n) % n;
        while ((uint32_t)product < threshold) {
            product = (uint64_t)oc_bits(rng) * n;
        }
    }
    return (uint32_t)(product >> 32);
}

/* Uniform integer in low .. high, both included; high >= low. */
static inline int oc_int(oc_rng *rng, int low, int high) {
    return (int)((int64_t)low + (int64_t)oc_below(rng, (uint32_t)((int64_t)high - low + 1)));
}

/* Uniform in [0, 1): a multiple of 2^-24. */
static inline float oc_unit(oc_rng *rng) {
    return (float)(oc_bits(rng) >> 8) * 0x1p-24f;
}

/* Uniform in [low, high). */
static inline float oc_uniform(oc_rng *rng, float low, float high) {
    return low + (high - low) * oc_unit(rng);
}

/* True with a probability, 0 never and 1 always. */
static inline int oc_chance(oc_rng *rng, float probability) {
    return oc_unit(rng) < probability;
}

/* Bring n items into a random order (Fisher and Yates). */
static inline void oc_shuffle(oc_rng *rng, int *items, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)oc_below(rng, (uint32_t)i + 1u);
        int item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

#endif
