"""The C core as Cython sees it: the parts of its headers that _native.pyx uses."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "capsule.h":
    ctypedef struct puffer_step_v1:
        uint32_t abi_version, struct_size
        void *ctx
        int64_t num_worlds, rows_per_world, slice_multiple
        void (*step)(void *ctx, int64_t first_world, int64_t last_world) noexcept nogil

cdef extern from "canvas.h":
    ctypedef struct oc_canvas:
        int width, height
        uint8_t *pixels

cdef extern from "table.h":
    const uint32_t OC_ABI_VERSION
    enum: OC_SLICE_MULTIPLE, OC_MAX_DIMS, OC_MAX_HEADS
    enum: OC_BOX
    ctypedef struct oc_spec:
        int agents
        int obs_shape[4]
        int act_kind
        int act_sizes[16]
        double act_low, act_high
        int width, height, fps
    ctypedef struct oc_param:
        const char *name
        int type
        size_t offset
        double value, low, high
        const char *doc
    ctypedef struct oc_message:
        char text[256]
    ctypedef struct oc_env:
        uint32_t abi_version
        int version
        const char *name
        const char *doc
        const oc_param *params
        int num_params
        size_t params_bytes
        const char *const *extras
        int num_extras
        int obs_dtype
    ctypedef struct oc_vec:
        int64_t num_worlds, num_rows, agents, obs_bytes, act_bytes, action_mask_bytes
        unsigned char *observations
        unsigned char *actions
        unsigned char *final_observations
        float *rewards
        uint8_t *terminals
        uint8_t *truncations
        uint8_t *masks
        uint8_t *action_mask
        unsigned char *block
        int64_t block_bytes
        uint32_t *episodes
        uint32_t *generations
        int64_t state_stride
        unsigned char *params
        int64_t params_stride
        uint32_t num_generations
        oc_spec spec
        int64_t num_steps, num_sliced, illegal_number
        bint is_ready

cdef extern from "spec.h":
    int oc_resolve(const oc_env *env, void *params, oc_spec *spec, oc_message *message)
    void oc_observation_bounds(const oc_env *env, const void *params, const oc_spec *spec, double *low, double *high)
    int64_t oc_observation_size(const oc_spec *spec)
    int64_t oc_action_mask_size(const oc_env *env, const oc_spec *spec)

cdef extern from "vec.h":
    ctypedef struct oc_records:
        unsigned char *lines
        int64_t line_bytes, num_lines, capacity, max_lines, num_dropped
    int oc_open(oc_vec *vec, const oc_env *env, int64_t num_worlds, const void *params, const oc_spec *spec)
    void oc_close(oc_vec *vec)
    int oc_add_params(oc_vec *vec, const void *params)
    int oc_set_params(oc_vec *vec, const void *params, uint32_t num_generations)
    void oc_seed(oc_vec *vec, uint64_t seed, uint64_t first_world)
    void oc_restart(oc_vec *vec, bint next_episodes) nogil
    void oc_step_slice(void *vec, int64_t first, int64_t last) noexcept nogil
    bint oc_acquire(oc_vec *vec)
    void oc_release(oc_vec *vec)
    bint oc_is_busy(const oc_vec *vec)
    enum oc_outcome: OC_DONE, OC_NO_MEMORY, OC_BUSY, OC_WORLDS_LEFT
    oc_outcome oc_step_all(oc_vec *vec, oc_records *records) nogil
    oc_outcome oc_finish_step(oc_vec *vec, oc_records *records)
    int oc_reserve_records(oc_records *records, int64_t num_lines)
    void oc_draw_world(const oc_vec *vec, int64_t world, oc_canvas *canvas)

cdef extern from "registry.h":
    int oc_num_envs()
    const oc_env *oc_env_at(int index)
