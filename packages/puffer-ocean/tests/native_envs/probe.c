/* The inline functions of the core as a library for ctypes. */
#include "capsule.h"
#include "numeric.h"
#include "rng.h"

uint64_t probe_mix(uint64_t z) {
    return oc_mix(z);
}

uint64_t probe_hash2(uint64_t a, uint64_t b) {
    return oc_hash2(a, b);
}

uint64_t probe_hash3(uint64_t a, uint64_t b, uint64_t c) {
    return oc_hash3(a, b, c);
}

void probe_sincos(const float *angles, float *sines, float *cosines, int count) {
    for (int i = 0; i < count; i++) {
        oc_sincos(angles[i], &sines[i], &cosines[i]);
    }
}

void probe_bits(uint64_t stream, uint32_t *out, int count) {
    oc_rng rng = oc_rng_of_stream(stream);
    for (int i = 0; i < count; i++) {
        out[i] = oc_bits(&rng);
    }
}

void probe_below(uint64_t stream, uint32_t n, uint32_t *out, int count) {
    oc_rng rng = oc_rng_of_stream(stream);
    for (int i = 0; i < count; i++) {
        out[i] = oc_below(&rng, n);
    }
}

void probe_shuffle(uint64_t stream, int *items, int count) {
    oc_rng rng = oc_rng_of_stream(stream);
    oc_shuffle(&rng, items, count);
}

int probe_int(uint64_t stream, int low, int high) {
    oc_rng rng = oc_rng_of_stream(stream);
    return oc_int(&rng, low, high);
}

float probe_uniform(uint64_t stream, float low, float high) {
    oc_rng rng = oc_rng_of_stream(stream);
    return oc_uniform(&rng, low, high);
}
