/* Hashes that turn (seed, world, episode) into a random stream: the same functions as puffer_spaces.seeding.
 *
 * All arithmetic is modulo 2^64. The finaliser and its constants are those of SplitMix64 (Steele, Lea and Flood 2014,
 * "Fast Splittable Pseudorandom Number Generators"). */
#ifndef OC_SEED_H
#define OC_SEED_H

#include <stdint.h>

#define OC_GOLDEN_GAMMA 0x9E3779B97F4A7C15ull

static inline uint64_t oc_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static inline uint64_t oc_hash2(uint64_t a, uint64_t b) {
    return oc_mix(oc_mix(a + OC_GOLDEN_GAMMA) + (b + 1) * OC_GOLDEN_GAMMA);
}

static inline uint64_t oc_hash3(uint64_t a, uint64_t b, uint64_t c) {
    return oc_hash2(oc_hash2(a, b), c);
}

#endif
