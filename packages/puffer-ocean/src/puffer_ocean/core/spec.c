#include "spec.h"

#include <limits.h>
#include <math.h>
#include <string.h>

int64_t oc_item_bytes(int dtype) {
    static const int64_t bytes[] = {[OC_U8] = 1, [OC_I8] = 1, [OC_I16] = 2, [OC_I32] = 4, [OC_F32] = 4};
    return bytes[dtype];
}

static int count_sizes(const int *sizes, int limit) {
    int count = 0;
    while (count < limit && sizes[count] > 0) {
        count++;
    }
    return count;
}

int64_t oc_observation_size(const oc_spec *spec) {
    int64_t size = 1;
    for (int i = 0; i < OC_MAX_DIMS && spec->obs_shape[i] > 0; i++) {
        size *= spec->obs_shape[i];
    }
    return size;
}

int64_t oc_action_size(const oc_spec *spec) {
    return spec->act_kind == OC_BOX ? spec->act_sizes[0] : count_sizes(spec->act_sizes, OC_MAX_HEADS);
}

int64_t oc_action_mask_size(const oc_env *env, const oc_spec *spec) {
    int64_t size = 0;
    for (int i = 0; env->has_action_mask && i < OC_MAX_HEADS && spec->act_sizes[i] > 0; i++) {
        size += spec->act_sizes[i];
    }
    return size;
}

static const double DTYPE_LOW[] = {0, INT8_MIN, INT16_MIN, INT32_MIN, -INFINITY};
static const double DTYPE_HIGH[] = {UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INFINITY};

static bool is_small_shape(const oc_spec *spec) {
    int64_t size = 1;
    for (int i = 0; i < OC_MAX_DIMS && spec->obs_shape[i] > 0; i++) {
        size *= spec->obs_shape[i];
        if (size > INT_MAX) {
            return false;
        }
    }
    return true;
}

/* What an author can get wrong in env_spec. Returns 0, or 1 with what it must hold in message. */
static int check_spec(const oc_env *env, const oc_spec *spec, oc_message *message) {
    int heads = count_sizes(spec->act_sizes, OC_MAX_HEADS);
    if (spec->act_kind < OC_DISCRETE || spec->act_kind > OC_BOX) {
        return oc_refuse(message,
                         "env_spec must give act_kind OC_DISCRETE, OC_MULTI_DISCRETE or OC_BOX; got act_kind=%d.",
                         spec->act_kind);
    }
    if (spec->obs_shape[0] < 1 || heads < 1 || (spec->act_kind != OC_MULTI_DISCRETE && heads != 1)) {
        return oc_refuse(message,
                         "env_spec must give obs_shape and act_sizes, one size unless OC_MULTI_DISCRETE; got "
                         "obs_shape={%d, ..} and %d sizes.",
                         spec->obs_shape[0], heads);
    }
    if (!is_small_shape(spec)) {
        return oc_refuse(message, "env_spec must give an obs_shape of less than 2^31 elements; got {%d, %d, ..}.",
                         spec->obs_shape[0], spec->obs_shape[1]);
    }
    if (env->act_type != OC_ACT_EITHER && (env->act_type == OC_ACT_FLOAT) != (spec->act_kind == OC_BOX)) {
        return oc_refuse(message, "%s must have OC_ACT_T %s or oc_act; got %s. Define OC_ACT_T before ocean.h.",
                         spec->act_kind == OC_BOX ? "OC_BOX" : "discrete actions",
                         spec->act_kind == OC_BOX ? "float" : "int32_t",
                         env->act_type == OC_ACT_FLOAT ? "float" : "int32_t");
    }
    if (spec->agents < 0 || (spec->agents > 1 && !env->is_multi)) {
        return oc_refuse(message, "env_spec must give one agent without OC_MULTI; got agents=%d. Define OC_MULTI.",
                         spec->agents);
    }
    if (spec->obs_low > spec->obs_high || spec->obs_low < DTYPE_LOW[env->obs_dtype] ||
        spec->obs_high > DTYPE_HIGH[env->obs_dtype]) {
        return oc_refuse(message, "env_spec must give obs_low below obs_high, both within OC_OBS_T; got %g and %g.",
                         spec->obs_low, spec->obs_high);
    }
    if (spec->act_low > spec->act_high || spec->extra_bytes < 0) {
        return oc_refuse(message,
                         "env_spec must give act_low below act_high and extra_bytes of at least 0; got %g, %g and "
                         "extra_bytes=%lld.",
                         spec->act_low, spec->act_high, (long long)spec->extra_bytes);
    }
    return 0;
}

int oc_resolve(const oc_env *env, void *params, oc_spec *spec, oc_message *message) {
    message->text[0] = 0;
    if (env->check && env->check(params, message)) {
        return -1;
    }
    memset(spec, 0, sizeof *spec);
    env->spec(params, spec);
    if (check_spec(env, spec, message)) {
        return -1;
    }
    spec->agents = spec->agents > 0 ? spec->agents : 1;
    spec->fps = spec->fps > 0 ? spec->fps : 30;
    if (spec->act_low >= spec->act_high) {
        spec->act_low = -1;
        spec->act_high = 1;
    }
    if (spec->obs_low >= spec->obs_high) {
        spec->obs_low = DTYPE_LOW[env->obs_dtype];
        spec->obs_high = DTYPE_HIGH[env->obs_dtype];
    }
    int *max_steps = (int *)params; /* the first member of every params struct */
    if (*max_steps == 0 && spec->max_steps > 0) {
        *max_steps = spec->max_steps;
    }
    if (*max_steps <= 0) {
        *max_steps = INT_MAX;
    }
    return 0;
}

void oc_observation_bounds(const oc_env *env, const void *params, const oc_spec *spec, double *low, double *high) {
    int64_t size = oc_observation_size(spec);
    for (int64_t i = 0; i < size; i++) {
        low[i] = spec->obs_low;
        high[i] = spec->obs_high;
    }
    if (env->bounds) {
        env->bounds(params, low, high);
    }
}
