/* Part of ocean_impl.h: the step of worlds with several agents. */
#include "fence.h"

static void oc_revive(const oc_io *io, int agent) {
    oc_vec *vec = io->vec;
    int64_t row = io->world * vec->agents + agent;
    int status = io->statuses[agent];
    if ((io->alive[agent] && !status) || status & OC_REVIVED) {
        return;
    }
    if (status) {
        vec->returns[row] += (double)io->rewards[agent];
        vec->lengths[row]++;
        oc_finish_row(vec, io->world, row, oc_params_of(vec, io->world), status);
    }
    memset(oc_obs(io, agent), 0, (size_t)vec->obs_bytes);
    vec->returns[row] = 0;
    vec->lengths[row] = 0;
    vec->alive[row] = 1;
    vec->masks[row] = 1;
    io->statuses[agent] = OC_REVIVED;
}

/* After env_step: count, and finish the rows that ended. Returns whether the world is over. */
static bool oc_settle_world(oc_vec *vec, int64_t world, const params *p, int world_status) {
    int64_t row = world * vec->agents;
    bool is_over = world_status != OC_RUNNING;
    bool any_alive = false;
    for (int64_t end = row + vec->agents; row < end; row++) {
        int status = vec->statuses[row];
        if (status & OC_REVIVED) {
            any_alive = true;
            continue;
        }
        if (!vec->alive[row]) {
            vec->rewards[row] = 0;
            continue;
        }
        vec->returns[row] += (double)vec->rewards[row];
        vec->lengths[row]++;
        status |= world_status;
        if (!status) {
            any_alive = true;
            continue;
        }
        oc_finish_row(vec, world, row, p, status);
        vec->alive[row] = 0;
        vec->masks[row] = 0;
        memset(oc_row_obs(vec, row), 0, (size_t)vec->obs_bytes);
    }
    return is_over || !any_alive;
}

static void oc_step_with(oc_vec *vec, int64_t first, int64_t last, const params *p) {
    int64_t row = first * vec->agents;
    size_t num_rows = (size_t)((last - first) * vec->agents);
    memset(vec->terminals + row, 0, num_rows);
    memset(vec->truncations + row, 0, num_rows);
    memset(vec->statuses + row, 0, num_rows);
    memset(vec->rewards + row, 0, num_rows * sizeof(float));
    const uint32_t limit = (uint32_t)p->max_steps;
    for (int64_t world = first; world < last; world++) {
        oc_io io = oc_io_of(vec, world);
        oc_fences(true, vec, first, world, last);
        int status = env_step(oc_state(vec, world), p, &io);
        oc_fences(false, vec, first, world, last);
        if (++vec->ticks[world] >= limit) {
            status |= OC_TRUNCATED;
        }
        if (oc_settle_world(vec, world, p, status)) {
            vec->episodes[world]++;
            oc_begin(vec, world);
        }
#if defined(OC_HAS_ACTION_MASK)
        else {
            oc_write_action_masks(vec, world, p);
        }
#endif
    }
}
