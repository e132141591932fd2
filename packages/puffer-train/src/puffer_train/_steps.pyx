"""The usual step of a rollout in one pass over its rows; rollout.py does the unusual ones.

Where thousands of rows step, array operations would make a dozen arrays of that length a step; where few do, each of
those operations takes longer to begin than this takes in all.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY, fabsf
from libc.stdint cimport int64_t
from libc.string cimport memcpy


cdef const unsigned char *bytes_of(array, Py_ssize_t count):
    """Return the data of an array of so many bytes without gaps, else NULL. The caller keeps the array."""
    cdef Py_buffer view
    try:
        PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    except (BufferError, ValueError):
        return NULL
    cdef const unsigned char *data = <const unsigned char *>view.buf
    cdef bint fits = view.len == count
    PyBuffer_Release(&view)
    return data if fits else NULL


cdef const unsigned char *tensor_data(tensor, Py_ssize_t num_bytes):
    """Return the data of a tensor of so many bytes without gaps, else NULL. The caller keeps the tensor."""
    if not tensor.is_contiguous() or tensor.nbytes != num_bytes:
        return NULL
    return <const unsigned char *><size_t>tensor.data_ptr()


cdef class UsualSteps:
    """Writes outcomes of rows that all have acted and are there, and steps that neither begin nor end a segment.

    All arrays are one-dimensional views of the rollout's own: `slots`, `num_outcomes` and `num_steps` int64
    (num_agents,), `acted` uint8 (num_agents,); of the experience, whose slots of one agent follow each other, float32
    `rewards`, `log_probs` and uint8 `terminals`, `truncations`, `valid` (num_agents * num_slots,); float32 `values` and
    uint8 `resets` (num_segments * (horizon + 1),).

    Args:
        rows: Arrays by name.
        experience: Arrays by name.
        payload: uint8 (num_agents * num_slots, bytes of a row): what `store` copies as bytes.
        horizon: Slots of a segment.
    """

    cdef int64_t[::1] slots, num_outcomes, num_steps
    cdef unsigned char[::1] acted, terminals, truncations, valid, resets
    cdef float[::1] rewards, values, log_probs
    cdef list payload
    cdef int64_t num_agents, num_slots, horizon

    def __init__(self, dict rows, dict experience, list payload, int64_t horizon):
        self.slots, self.num_outcomes, self.num_steps = rows["slots"], rows["num_outcomes"], rows["num_steps"]
        self.acted = rows["acted"]
        self.rewards, self.values, self.log_probs = experience["rewards"], experience["values"], experience["log_probs"]
        self.terminals, self.truncations = experience["terminals"], experience["truncations"]
        self.valid, self.resets = experience["valid"], experience["resets"]
        self.payload = payload
        self.horizon = horizon
        self.num_agents = self.slots.shape[0]
        self.num_slots = self.rewards.shape[0] // self.num_agents

    def take_outcome(
        self, const int64_t[::1] ids, const float[::1] rewards, terminals, truncations, masks, invalid, resets
    ):
        """Store what the last action of each row brought, and write into `resets` whose episode ended.

        Flags are bool (num_rows,). Returns whether an episode was truncated: the value of its end is still to be stored.
        Returns None, with nothing written, where the step is not usual.
        """
        cdef Py_ssize_t i, count = ids.shape[0]
        cdef const unsigned char *terminal = bytes_of(terminals, count)
        cdef const unsigned char *truncation = bytes_of(truncations, count)
        cdef const unsigned char *mask = bytes_of(masks, count)
        cdef const unsigned char *is_invalid = bytes_of(invalid, count)
        cdef unsigned char *reset = <unsigned char *>bytes_of(resets, count)
        cdef int64_t row, at
        cdef bint is_usual = terminal and truncation and mask and is_invalid and reset and rewards.shape[0] == count
        cdef bint is_cut = False
        with nogil:
            for i in range(count):
                if not is_usual:
                    break
                row = ids[i]
                is_usual = (
                    0 <= row < self.num_agents
                    and self.acted[row] and mask[i] and not is_invalid[i]
                    and 0 < self.slots[row] <= self.num_slots
                    and fabsf(rewards[i]) < INFINITY
                )
            if is_usual:
                for i in range(count):
                    row = ids[i]
                    self.num_outcomes[row] = self.slots[row]
                    at = row * self.num_slots + self.slots[row] - 1
                    self.rewards[at] = rewards[i]
                    self.terminals[at] = terminal[i]
                    self.truncations[at] = truncation[i]
                    reset[i] = terminal[i] or truncation[i]
                    is_cut = is_cut or (truncation[i] and not terminal[i])
        return is_cut if is_usual else None

    def store(self, const int64_t[::1] ids, values, log_probs, masks, resets, tuple payload):
        """Store the step that begins with actions, inside segments; rows are there if their mask says so.

        `values` and `log_probs` are float32 tensors (num_rows,) and `payload` tensors (num_rows, ...), all in host
        memory. Returns the number of rows that are there; None, with nothing written, where the step is not usual.
        """
        cdef Py_ssize_t i, count = ids.shape[0]
        cdef const float *value = <const float *>tensor_data(values, 4 * count)
        cdef const float *log_prob = <const float *>tensor_data(log_probs, 4 * count)
        cdef const unsigned char *mask = bytes_of(masks, count)
        cdef const unsigned char *reset = bytes_of(resets, count)
        cdef int64_t row, at, num_present = 0
        cdef bint is_usual = value and log_prob and mask and reset
        with nogil:
            for i in range(count):
                if not is_usual:
                    break
                row = ids[i]
                is_usual = (
                    0 <= row < self.num_agents
                    and self.slots[row] < self.num_slots
                    and self.slots[row] % self.horizon != 0
                )
        if not is_usual or not self.store_payload(ids, payload):
            return None
        with nogil:
            for i in range(count):
                row = ids[i]
                at = row * self.num_slots + self.slots[row]
                self.log_probs[at] = log_prob[i]
                self.valid[at] = mask[i]
                num_present += mask[i]
                at += at // self.horizon  # values and resets have one more a segment
                self.values[at] = value[i]
                self.resets[at] = reset[i]
                self.acted[row] = mask[i]
                self.num_steps[row] += 1
                self.slots[row] += 1
        return num_present

    cdef bint store_payload(self, const int64_t[::1] ids, tuple payload):
        """Copy the rows of tensors into their slots, all or none."""
        cdef Py_ssize_t i, size, count = ids.shape[0]
        cdef const unsigned char *source
        cdef unsigned char[:, ::1] target
        for tensor, rows in zip(payload, self.payload, strict=True):
            if tensor_data(tensor, count * rows.shape[1]) == NULL:
                return False
        for tensor, rows in zip(payload, self.payload):
            target = rows
            size = target.shape[1]
            source = tensor_data(tensor, count * size)
            with nogil:
                for i in range(count):
                    memcpy(&target[ids[i] * self.num_slots + self.slots[ids[i]], 0], source + i * size, size)
        return True


def is_range(const int64_t[::1] ids):
    """Return whether numbers follow each other."""
    cdef Py_ssize_t i
    for i in range(1, ids.shape[0]):
        if ids[i] != ids[i - 1] + 1:
            return False
    return True
