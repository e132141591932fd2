"""Loops of the trainer that are slow as array operations. Callers check shapes; see advantages.py, noise.py,
sampling.py, losses.py, normalization.py, optim_host.py.
"""

from libc.math cimport INFINITY, expf, fabsf, logf, pow, sqrt, sqrtf
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t GOLDEN_GAMMA = 0x9E3779B97F4A7C15U
cdef uint64_t MULTIPLIER_1 = 0xBF58476D1CE4E5B9U
cdef uint64_t MULTIPLIER_2 = 0x94D049BB133111EBU
cdef float MASKED = -1e30  # as puffer_policies has it: of a masked choice, finite, so that 0 times it is 0


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


def hash_range(uint64_t[::1] out, uint64_t key):
    """Fill out[i] with hash2(key, i)."""
    cdef Py_ssize_t i
    cdef uint64_t start = mix(key + GOLDEN_GAMMA)
    with nogil:
        for i in range(out.shape[0]):
            out[i] = mix(start + <uint64_t>(i + 1) * GOLDEN_GAMMA)


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


def sample_categorical(
    const float[:, ::1] logits,
    const float[::1] values,
    const float[:, ::1] noise,
    int[::1] actions,
    float[::1] log_probs,
):
    """Write a choice per row, its distribution inverted at a uniform number, and the choice's log-probability.

    Returns False, with nothing of use written, if a row has NaN or infinity, or nothing but -inf; values count too.
    """
    cdef Py_ssize_t i, j, choice
    cdef Py_ssize_t num_choices = logits.shape[1]
    cdef const float *row
    cdef float top, total, wanted, reached
    cdef bint is_finite = True
    with nogil:
        for i in range(logits.shape[0]):
            row = &logits[i, 0]
            choice = 0
            for j in range(1, num_choices):
                if row[j] > row[choice]:
                    choice = j
            top = row[choice]
            total = 0.0
            for j in range(num_choices):
                total += expf(row[j] - top)
            # NaN in any place makes the total NaN, and so does an infinite top.
            is_finite = total < INFINITY and fabsf(values[i]) < INFINITY
            if not is_finite:
                break
            wanted = noise[i, 0] * total
            reached = 0.0
            for j in range(num_choices):
                reached += expf(row[j] - top)
                if reached > wanted:
                    choice = j
                    break
            actions[i] = <int>choice
            log_probs[i] = row[choice] - top - logf(total)
    return is_finite


def categorical_terms(
    const float[:, ::1] logits,
    const int[::1] choices,
    float[:, ::1] log_table,
    float[::1] log_probs,
    float[::1] entropies,
):
    """Write the log-probabilities of all choices and of those that were made, and the entropies.

    -inf is a choice of probability 0. Returns False, with nothing of use written, if a choice does not exist.
    """
    cdef Py_ssize_t i, j
    cdef Py_ssize_t num_choices = logits.shape[1]
    cdef const float *row
    cdef float *logs
    cdef float top, total, entropy
    cdef bint is_choice = True
    with nogil:
        for i in range(logits.shape[0]):
            is_choice = 0 <= choices[i] < num_choices
            if not is_choice:
                break
            row, logs = &logits[i, 0], &log_table[i, 0]
            top = MASKED
            for j in range(num_choices):
                logs[j] = max(row[j], MASKED)  # NaN stays
                top = max(top, logs[j])
            total = 0.0
            for j in range(num_choices):
                logs[j] -= top
                total += expf(logs[j])
            total = logf(total)
            entropy = 0.0
            for j in range(num_choices):
                logs[j] -= total
                entropy -= expf(logs[j]) * logs[j]
            log_probs[i] = logs[choices[i]]
            entropies[i] = entropy
    return is_choice


def categorical_gradient(
    const float[:, ::1] log_table,
    const int[::1] choices,
    const float[::1] entropies,
    const float[::1] by_log_prob,
    const float[::1] by_entropy,
    float[:, ::1] by_logit,
):
    """Write the gradient by logits from those by log-probability and entropy; see puffer_policies.discrete.CategoricalTerms."""
    cdef Py_ssize_t i, j
    cdef float probability
    with nogil:
        for i in range(log_table.shape[0]):
            for j in range(log_table.shape[1]):
                probability = expf(log_table[i, j])
                by_logit[i, j] = -probability * (by_log_prob[i] + by_entropy[i] * (log_table[i, j] + entropies[i]))
            by_logit[i, choices[i]] += by_log_prob[i]


def ppo_terms(
    const float[::1] log_probs,
    const float[::1] entropies,
    const float[::1] values,
    const float[::1] old_log_probs,
    const float[::1] old_values,
    const float[::1] advantages,
    const float[::1] targets,
    const float[::1] weights,
    float clip_coef,
    float vf_coef,
    float vf_clip_coef,
    float ent_coef,
    float[::1] ratios,
    float[:, ::1] gradients,
    float[::1] sums,
):
    """Write the probability ratios, the loss's gradients by log-probability, entropy and value, and its sums.

    `sums` are those of `losses.STATISTIC_NAMES`. vf_clip_coef may be infinite. Returns the loss.
    """
    cdef Py_ssize_t i
    cdef float log_ratio, ratio, bounded, slope, error, change, far
    cdef double policy_loss = 0.0, value_loss = 0.0, entropy = 0.0, old_kl = 0.0, kl = 0.0
    cdef double clip_fraction = 0.0, importance = 0.0
    with nogil:
        for i in range(log_probs.shape[0]):
            log_ratio = log_probs[i] - old_log_probs[i]
            ratio = expf(log_ratio)
            ratios[i] = ratio
            bounded = min(max(ratio, 1.0 - clip_coef), 1.0 + clip_coef)
            # The larger of two losses counts; where the bound does not bind they are one, and NaN hides behind none.
            if -advantages[i] * ratio < -advantages[i] * bounded:
                slope = 0.0
                policy_loss -= weights[i] * advantages[i] * bounded
            else:
                slope = -advantages[i] * ratio
                policy_loss += weights[i] * slope
            gradients[0, i] = weights[i] * slope
            gradients[1, i] = -ent_coef * weights[i]
            error = values[i] - targets[i]
            change = values[i] - old_values[i]
            far = old_values[i] + min(max(change, -vf_clip_coef), vf_clip_coef) - targets[i]
            if fabsf(change) > vf_clip_coef and far * far > error * error:  # the bounded value counts and has no slope
                gradients[2, i] = 0.0
                value_loss += weights[i] * far * far
            else:
                gradients[2, i] = vf_coef * weights[i] * error
                value_loss += weights[i] * error * error
            entropy += weights[i] * entropies[i]
            old_kl -= weights[i] * log_ratio
            kl += weights[i] * (ratio - 1.0 - log_ratio)
            importance += weights[i] * ratio
            if fabsf(ratio - 1.0) > clip_coef:
                clip_fraction += weights[i]
    sums[0], sums[1], sums[2], sums[3] = policy_loss, 0.5 * value_loss, entropy, old_kl
    sums[4], sums[5], sums[6] = kl, clip_fraction, importance
    return policy_loss + vf_coef * 0.5 * value_loss - ent_coef * entropy


def clip_gradients(list gradients, double max_norm):
    """Scale tensors in place so that their common norm is at most max_norm; return what it was."""
    cdef Py_ssize_t i, count
    cdef float *gradient
    cdef float scale
    cdef double total = 0.0
    for tensor in gradients:
        total += sum_of_squares(<const float *><size_t>tensor.data_ptr(), tensor.numel())
    cdef double norm = sqrt(total)
    if norm + 1e-6 <= max_norm:
        return norm
    scale = max_norm / (norm + 1e-6)
    for tensor in gradients:
        gradient = <float *><size_t>tensor.data_ptr()
        count = tensor.numel()
        for i in range(count):
            gradient[i] *= scale
    return norm


cdef double sum_of_squares(const float *x, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double[4] sums = [0.0, 0.0, 0.0, 0.0]  # side by side, as one sum would wait for each addition
    for i in range(count // 4):
        for j in range(4):
            sums[j] += <double>x[4 * i + j] * x[4 * i + j]
    for i in range(count - count % 4, count):
        sums[0] += <double>x[i] * x[i]
    return sums[0] + sums[1] + sums[2] + sums[3]


def adamw_step(
    list parameters,
    list gradients,
    list means,
    list squares,
    list steps,
    double learning_rate,
    double beta1,
    double beta2,
    double eps,
    double weight_decay,
):
    """Take a step with each parameter, its moments and its number of steps, all of them tensors."""
    cdef Py_ssize_t i, j, count
    cdef float *x
    cdef const float *gradient
    cdef float *mean
    cdef float *square
    cdef float *step
    cdef float step_size, root, keep = 1.0 - learning_rate * weight_decay
    cdef float decay1 = beta1, decay2 = beta2, new1 = 1.0 - beta1, new2 = 1.0 - beta2, least = eps
    for i in range(len(parameters)):
        count = parameters[i].numel()
        if not count == gradients[i].numel() == means[i].numel() == squares[i].numel():
            raise ValueError(f"a parameter's gradient and moments must have its {count} elements; got others.")
        x = <float *><size_t>parameters[i].data_ptr()
        gradient = <const float *><size_t>gradients[i].data_ptr()
        mean = <float *><size_t>means[i].data_ptr()
        square = <float *><size_t>squares[i].data_ptr()
        step = <float *><size_t>steps[i].data_ptr()
        step[0] += 1.0
        step_size = learning_rate / (1.0 - pow(beta1, step[0]))
        root = sqrt(1.0 - pow(beta2, step[0]))
        with nogil:
            for j in range(count):
                mean[j] = decay1 * mean[j] + new1 * gradient[j]
                square[j] = decay2 * square[j] + new2 * gradient[j] * gradient[j]
                x[j] = keep * x[j] - step_size * mean[j] / (sqrtf(square[j]) / root + least)
