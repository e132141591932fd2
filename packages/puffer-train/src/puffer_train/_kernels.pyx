"""Loops of the trainer that are slow as array operations. Callers check shapes; see advantages.py, noise.py."""

from libc.stdint cimport int64_t, uint64_t

cdef uint64_t GOLDEN_GAMMA = 0x9E3779B97F4A7C15U
cdef uint64_t MULTIPLIER_1 = 0xBF58476D1CE4E5B9U
cdef uint64_t MULTIPLIER_2 = 0x94D049BB133111EBU


cdef inline uint64_t mix(uint64_t z) noexcept nogil:
    z = (z ^ (z >> 30)) * MULTIPLIER_1
    z = (z ^ (z >> 27)) * MULTIPLIER_2
    return z ^ (z >> 31)


def fill_uniform(float[:, ::1] out, uint64_t key, const int64_t[::1] steps, const int64_t[::1] rows):
    """Fill out[i, j] with a float32 of [0, 1) that depends on (key, steps[i], rows[i], j) only."""
    cdef Py_ssize_t i, j
    cdef int64_t step = -1
    cdef uint64_t start = mix(key + GOLDEN_GAMMA)
    cdef uint64_t step_key = 0
    cdef uint64_t row_key, bits
    with nogil:
        for i in range(out.shape[0]):
            if i == 0 or steps[i] != step:  # almost always all rows are at the same step
                step = steps[i]
                step_key = mix(mix(start + <uint64_t>(step + 1) * GOLDEN_GAMMA) + GOLDEN_GAMMA)
            row_key = mix(mix(step_key + <uint64_t>(rows[i] + 1) * GOLDEN_GAMMA) + GOLDEN_GAMMA)
            for j in range(out.shape[1]):
                bits = mix(row_key + <uint64_t>(j + 1) * GOLDEN_GAMMA)
                # The upper 24 bits: each is a float32, and none rounds up to 1.
                out[i, j] = <float>(bits >> 40) * <float>(1.0 / 16777216.0)


def estimate_advantages(
    const float[:, ::1] rewards,
    const float[:, ::1] values,
    const float[:, ::1] final_values,
    const unsigned char[:, ::1] terminals,
    const unsigned char[:, ::1] truncations,
    const unsigned char[:, ::1] valid,
    ratios,
    float gamma,
    float gae_lambda,
    float rho_clip,
    float trace_clip,
    float[:, ::1] advantages,
    float[:, ::1] targets,
):
    """Write advantages and value targets; `ratios` is float32 like `rewards`, or None for ratios of 1."""
    cdef const float[:, ::1] importance = rewards if ratios is None else ratios
    cdef bint on_policy = ratios is None
    cdef Py_ssize_t horizon = rewards.shape[1]
    cdef Py_ssize_t s, t
    cdef float delta, trace, ratio, difference
    with nogil:
        for s in range(rewards.shape[0]):
            difference = 0.0
            for t in range(horizon - 1, -1, -1):
                if not valid[s, t]:
                    advantages[s, t] = 0.0
                    targets[s, t] = values[s, t]
                    difference = 0.0
                    continue
                delta = rewards[s, t] - values[s, t]
                trace = 0.0
                if not terminals[s, t]:
                    if truncations[s, t]:
                        delta = delta + gamma * final_values[s, t]
                    else:
                        delta = delta + gamma * values[s, t + 1]
                        trace = gamma * gae_lambda * difference
                advantages[s, t] = delta + trace
                if on_policy:
                    difference = delta + trace
                else:
                    ratio = importance[s, t]
                    difference = min(ratio, rho_clip) * delta + min(ratio, trace_clip) * trace
                targets[s, t] = values[s, t] + difference


def add_moments(
    const float[:, ::1] rows, const unsigned char[::1] valid, const double[::1] mean, double[:, ::1] totals
):
    """Add the valid rows' distances from the mean to totals[0], and their squares to totals[1]."""
    cdef Py_ssize_t i, j
    cdef Py_ssize_t num_columns = rows.shape[1]
    cdef const float *row
    cdef const double *means = &mean[0]
    cdef double *sums = &totals[0, 0]
    cdef double *squares = &totals[1, 0]
    cdef double distance
    with nogil:
        for i in range(rows.shape[0]):
            if valid[i]:
                row = &rows[i, 0]
                for j in range(num_columns):
                    distance = row[j] - means[j]
                    sums[j] += distance
                    squares[j] += distance * distance
