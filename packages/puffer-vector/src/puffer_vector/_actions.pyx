# The fast way of actions into the shared rows: one pass that checks and copies.
cimport cython
from cpython.buffer cimport (PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release,
                             PyObject_CheckBuffer, PyObject_GetBuffer)
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef bint _copy_int32(int32_t *target, const int32_t *source, const uint32_t *limits, Py_ssize_t num_rows,
                      Py_ssize_t num_columns) noexcept nogil:
    cdef uint32_t bad = 0
    cdef uint32_t limit = limits[0]
    cdef Py_ssize_t row, column
    if num_columns == 1:
        for row in range(num_rows):
            bad |= <uint32_t>source[row] >= limit
            target[row] = source[row]
    else:
        for row in range(num_rows):
            for column in range(num_columns):
                bad |= <uint32_t>source[column] >= limits[column]
                target[column] = source[column]
            source += num_columns
            target += num_columns
    return bad == 0


cdef bint _copy_int64(int32_t *target, const int64_t *source, const uint32_t *limits, Py_ssize_t num_rows,
                      Py_ssize_t num_columns) noexcept nogil:
    # The halves of a value are checked apart, which compilers turn into vector instructions: the high one must be 0.
    cdef uint64_t high = 0
    cdef uint32_t bad = 0
    cdef uint32_t limit = limits[0]
    cdef Py_ssize_t row, column
    if num_columns == 1:
        for row in range(num_rows):
            high |= <uint64_t>source[row] >> 32
            bad |= <uint32_t>source[row] >= limit
            target[row] = <int32_t>source[row]
    else:
        for row in range(num_rows):
            for column in range(num_columns):
                high |= <uint64_t>source[column] >> 32
                bad |= <uint32_t>source[column] >= limits[column]
                target[column] = <int32_t>source[column]
            source += num_columns
            target += num_columns
    return bad == 0 and high == 0


@cython.no_gc  # the buffer must be given back by __dealloc__ only, and an array never refers to its gate
cdef class ActionGate:
    """Writes checked actions into rows of the shared actions array.

    Args:
        target: C-contiguous array (rows, *action_shape), int32 for choices, else the Box's dtype.
        limits: Number of choices of each column; empty for a Box, whose values are not checked.
    """

    cdef Py_buffer _target
    cdef bint _held
    cdef uint32_t *_limits
    cdef Py_ssize_t _num_columns
    cdef Py_ssize_t _row_bytes
    cdef char _format

    def __cinit__(self, target not None, limits):
        self._held = False
        self._limits = NULL
        PyObject_GetBuffer(target, &self._target, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
        self._held = True
        self._row_bytes = self._target.len // max(self._target.shape[0], 1)
        self._num_columns = self._row_bytes // self._target.itemsize
        self._format = self._target.format[0] if self._target.format[1] == 0 else 0
        if limits:
            if len(limits) != self._num_columns or self._target.itemsize != 4:
                raise ValueError(f"limits must have one entry for each of the {self._num_columns} int32 columns; "
                                 f"got {len(limits)}.")
            self._limits = <uint32_t *>malloc(len(limits) * sizeof(uint32_t))
            if self._limits == NULL:
                raise MemoryError
            for column, limit in enumerate(limits):
                self._limits[column] = limit

    def __dealloc__(self):
        free(self._limits)
        if self._held:
            PyBuffer_Release(&self._target)

    def write(self, actions, Py_ssize_t first_row, Py_ssize_t last_row):
        """Copy `actions` to rows [first_row, last_row).

        Returns:
            False when they are not a contiguous array of the right shape, of int32, int64 or the target's dtype, with
            every value in range: then the rows hold rubbish, and the caller says what is wrong or converts.
        """
        cdef Py_buffer source
        cdef bint fits
        cdef int axis
        cdef char code
        if not PyObject_CheckBuffer(actions):
            return False
        try:
            PyObject_GetBuffer(actions, &source, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return False
        fits = (source.ndim == self._target.ndim and source.shape[0] == last_row - first_row
                and 0 <= first_row <= last_row <= self._target.shape[0] and source.format[1] == 0)
        for axis in range(1, self._target.ndim):
            fits = fits and source.shape[axis] == self._target.shape[axis]
        if fits:
            code = source.format[0]
            fits = self._copy(<char *>self._target.buf + first_row * self._row_bytes, &source, code,
                              last_row - first_row)
        PyBuffer_Release(&source)
        return fits

    cdef bint _copy(self, char *target, Py_buffer *source, char code, Py_ssize_t num_rows) noexcept:
        if self._limits == NULL:
            if code != self._format or code == 0:
                return False
            memcpy(target, source.buf, source.len)
            return True
        if code == c"i" or (code == c"l" and source.itemsize == 4):
            return _copy_int32(<int32_t *>target, <const int32_t *>source.buf, self._limits, num_rows,
                               self._num_columns)
        if (code == c"l" or code == c"q") and source.itemsize == 8:
            return _copy_int64(<int32_t *>target, <const int64_t *>source.buf, self._limits, num_rows,
                               self._num_columns)
        return False


def any_set(flags not None, Py_ssize_t first_row, Py_ssize_t last_row):
    """Return whether a bool array has a True in [first_row, last_row)."""
    cdef Py_buffer view
    cdef Py_ssize_t row
    cdef unsigned char found = 0
    PyObject_GetBuffer(flags, &view, PyBUF_C_CONTIGUOUS)
    cdef const unsigned char *values = <const unsigned char *>view.buf
    for row in range(max(first_row, 0), min(last_row, view.len)):
        found |= values[row]
    PyBuffer_Release(&view)
    return found != 0
