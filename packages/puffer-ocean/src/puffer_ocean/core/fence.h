/* Part of ocean_impl.h: fences around the rows and the state of the world that an env's code is working on. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

/* In a sanitizer build an env that leaves its own rows or state is caught even inside a batch: what lies around them
 * within the slice is poisoned while its code runs. */
static inline void oc_fence(bool is_up, const void *base, int64_t first, int64_t world, int64_t last, int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    const unsigned char *row = (const unsigned char *)base + world * bytes;
    int64_t before = (world - first) * bytes < 256 ? (world - first) * bytes : 256;
    int64_t after = (last - world - 1) * bytes < 256 ? (last - world - 1) * bytes : 256;
    if (is_up) {
        __asan_poison_memory_region(row - before, (size_t)before);
        __asan_poison_memory_region(row + bytes, (size_t)after);
    } else {
        __asan_unpoison_memory_region(row - before, (size_t)(before + bytes + after));
    }
#else
    (void)is_up, (void)base, (void)first, (void)world, (void)last, (void)bytes;
#endif
}

static inline void oc_fences(bool is_up, const oc_vec *vec, int64_t first, int64_t world, int64_t last) {
    oc_fence(is_up, vec->observations, first, world, last, vec->agents * vec->obs_bytes);
    oc_fence(is_up, vec->actions, first, world, last, vec->agents * vec->act_bytes);
    oc_fence(is_up, vec->states, first, world, last, vec->state_stride);
    oc_fence(is_up, vec->rewards, first, world, last, vec->agents * (int64_t)sizeof(float));
}
