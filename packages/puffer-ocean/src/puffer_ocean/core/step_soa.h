/* Part of ocean_impl.h: the step of a struct of arrays, in passes over blocks of worlds. */

enum { OC_BLOCK = 512 }; /* worlds whose rows and fields stay in the first-level cache between the passes */

static void oc_step_block(oc_vec *vec, const worlds *view, int64_t first, int64_t last, const params *p) {
    oc_rows rows = {
        .observations = oc_row_obs(vec, 0),
        .actions = (const OC_ACT_T *)(void *)vec->actions,
        .rewards = vec->rewards,
        .statuses = vec->statuses,
    };
    env_step(view, p, &rows, first, last);
    double *returns = vec->returns;
    uint32_t *lengths = vec->lengths;
    uint8_t *statuses = vec->statuses;
    const float *rewards = vec->rewards;
    const uint32_t limit = (uint32_t)p->max_steps;
    OC_INDEPENDENT
    for (int64_t world = first; world < last; world++) {
        returns[world] += (double)rewards[world];
    }
    OC_INDEPENDENT
    for (int64_t world = first; world < last; world++) {
        lengths[world]++;
        statuses[world] |= lengths[world] >= limit ? OC_TRUNCATED : OC_RUNNING;
    }
    memset(vec->terminals + first, 0, (size_t)(last - first));
    memset(vec->truncations + first, 0, (size_t)(last - first));
    for (int64_t world = first; world < last; world += 8) {
        uint64_t ended = oc_first_eight(statuses + world, last - world);
        while (ended) {
            int i = oc_first_set_byte(ended);
            oc_end_world(vec, world + i, p, statuses[world + i]);
            ended &= ~(0xFFull << (8 * i));
        }
    }
}

static void oc_step_with(oc_vec *vec, int64_t first, int64_t last, const params *p) {
    worlds view;
    (void)oc_view(vec->states, vec->num_worlds, &view);
    for (int64_t block = first; block < last; block += OC_BLOCK) {
        oc_step_block(vec, &view, block, last - block < OC_BLOCK ? last : block + OC_BLOCK, p);
    }
}
