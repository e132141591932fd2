/* Part of ocean_impl.h: the step of worlds with one agent. */
#include "fence.h"

static void oc_step_with(oc_vec *vec, int64_t first, int64_t last, const params *p) {
    memset(vec->terminals + first, 0, (size_t)(last - first));
    memset(vec->truncations + first, 0, (size_t)(last - first));
    const uint32_t limit = (uint32_t)p->max_steps;
    const OC_ACT_T *actions = (const OC_ACT_T *)(void *)vec->actions;
    const int64_t act_len = vec->act_bytes / (int64_t)sizeof(OC_ACT_T);
    float *restrict rewards = vec->rewards;
    double *restrict returns = vec->returns;
    uint32_t *restrict lengths = vec->lengths;
    for (int64_t world = first; world < last; world++) {
        float reward = 0;
        oc_fences(true, vec, first, world, last);
        int status = env_step(oc_state(vec, world), p, actions + world * act_len, oc_row_obs(vec, world), &reward);
        oc_fences(false, vec, first, world, last);
        rewards[world] = reward;
        returns[world] += (double)reward;
        if (++lengths[world] >= limit) {
            status |= OC_TRUNCATED;
        }
        if (status) {
            oc_end_world(vec, world, p, status);
        }
#if defined(OC_HAS_ACTION_MASK)
        else {
            oc_write_action_masks(vec, world, p);
        }
#endif
    }
}
