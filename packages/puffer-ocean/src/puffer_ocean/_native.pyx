"""The one binding of all native environments: their tables, and batches of their worlds.

`EnvTable` shows what an environment's C file declares. `NativeEnv` owns the state of a batch of worlds and steps it in
arrays of the caller's, through the buffer protocol and without the GIL.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_New, PyCapsule_SetContext
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from puffer_ocean._core cimport *

cdef enum:
    NUM_ROW_ARRAYS = 8

include "_table.pxi"


cdef class NativeEnv:
    """The worlds of one environment object. Made, bound to arrays, reset, stepped; see `OceanEnv` for the semantics.

    Args:
        table: Whose worlds.
        num_worlds: How many, at least 1.
        params: Resolved set of parameters.
        record_bytes: Size of one record of an ended episode.
    """

    cdef oc_vec vec
    cdef oc_records records
    cdef puffer_step_v1 capsule
    cdef Py_buffer views[NUM_ROW_ARRAYS]
    cdef int num_views
    cdef bint is_open, takes_integers
    cdef EnvTable table
    cdef object actions

    def __cinit__(self, EnvTable table not None, int64_t num_worlds, bytes params not None, int64_t record_bytes):
        cdef oc_spec spec
        cdef oc_message message
        cdef bytearray resolved = bytearray(params)
        if num_worlds < 1 or len(resolved) != table.params_bytes:
            raise ValueError(f"num_worlds must be at least 1 and params {table.params_bytes} bytes.")
        if oc_resolve(table.env, <char *>resolved, &spec, &message):
            raise ValueError(message.text.decode(errors="replace"))
        if oc_open(&self.vec, table.env, num_worlds, <char *>resolved, &spec):
            raise MemoryError(f"no memory for {num_worlds} worlds of {table.name}")
        self.is_open = True
        self.table = table
        self.takes_integers = spec.act_kind != OC_BOX
        self.records.line_bytes = record_bytes
        self.records.max_lines = max(1 << 20, 256 * self.vec.num_rows)
        if record_bytes != 52 + 8 * table.env.num_extras:
            raise ValueError(f"a record must have {52 + 8 * table.env.num_extras} bytes; got {record_bytes}.")

    def __dealloc__(self):
        self._release()

    cdef void _release(self) noexcept:
        if self.is_open:
            oc_close(&self.vec)
        self.is_open = False
        free(self.records.lines)
        memset(&self.records, 0, sizeof(oc_records))
        for i in range(self.num_views):
            PyBuffer_Release(&self.views[i])
        self.num_views = 0
        self.actions = None

    def close(self):
        """Free the worlds and let go of the bound arrays. A capsule that is still held then steps nothing."""
        if not oc_acquire(&self.vec):
            raise self._busy()
        self._release()
        oc_release(&self.vec)

    cdef object _busy(self):
        return RuntimeError(
            f"{self.table.name} must not be used while a step or reset of it runs on another thread. Wait for that."
        )

    cdef int _check_open(self) except -1:
        if not self.is_open:
            raise RuntimeError(f"{self.table.name} must be open; it was closed. Make a new env.")
        if oc_is_busy(&self.vec):
            raise self._busy()
        return 0

    cdef int _check_ready(self) except -1:
        self._check_open()
        if not self.vec.is_ready:
            raise RuntimeError(f"{self.table.name} must be reset before this call. Call reset(seed).")
        return 0

    def bind(self, arrays):
        """Bind the arrays of the caller, in the order of Buffers: observations, actions, rewards, terminals,
        truncations, masks, final observations, and the action mask or None. What the rows held moves along.

        Raises:
            ValueError: An array has another size, or is not writable, aligned and C-contiguous.
            RuntimeError: A step runs.
        """
        cdef Py_buffer views[NUM_ROW_ARRAYS]
        cdef int64_t sizes[NUM_ROW_ARRAYS]
        cdef int64_t rows = self.vec.num_rows
        cdef int i, count = 0
        self._check_open()
        sizes[:] = [
            rows * self.vec.obs_bytes, rows * self.vec.act_bytes, 4 * rows, rows, rows, rows,
            rows * self.vec.obs_bytes, rows * self.vec.action_mask_bytes,
        ]
        try:
            for array in arrays[: NUM_ROW_ARRAYS if self.vec.action_mask_bytes else NUM_ROW_ARRAYS - 1]:
                PyObject_GetBuffer(array, &views[count], PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
                count += 1
                if views[count - 1].len != sizes[count - 1] or <size_t>views[count - 1].buf % views[count - 1].itemsize:
                    raise ValueError(
                        f"array {count - 1} of the buffers of {self.table.name} must have {sizes[count - 1]} bytes and "
                        f"begin at a multiple of its items' {views[count - 1].itemsize}; got {views[count - 1].len} "
                        f"bytes at {<size_t>views[count - 1].buf}. Use Buffers.allocate."
                    )
        except BaseException:
            for i in range(count):
                PyBuffer_Release(&views[i])
            raise
        for i in range(self.num_views):
            if self.vec.is_ready:
                memmove(views[i].buf, self.views[i].buf, sizes[i])
            PyBuffer_Release(&self.views[i])
        memcpy(self.views, views, sizeof(views))
        self.num_views = count
        self.actions = arrays[1]
        self.vec.observations = <unsigned char *>views[0].buf
        self.vec.actions = <unsigned char *>views[1].buf
        self.vec.rewards = <float *>views[2].buf
        self.vec.terminals = <uint8_t *>views[3].buf
        self.vec.truncations = <uint8_t *>views[4].buf
        self.vec.masks = <uint8_t *>views[5].buf
        self.vec.final_observations = <unsigned char *>views[6].buf
        self.vec.action_mask = <uint8_t *>views[7].buf if count == NUM_ROW_ARRAYS else NULL

    def reset(self, seed, first_world):
        """Restart the random sequences from a 64-bit seed, or go on to the next episode of each world with None."""
        cdef bint next_episodes = seed is None
        self._check_open()
        if not self.num_views:
            raise RuntimeError(f"{self.table.name} must be bound to buffers before reset.")
        if next_episodes and not self.vec.is_ready:
            raise ValueError("seed must be an integer at the first reset; got None.")
        if not oc_acquire(&self.vec):
            raise self._busy()
        try:
            if not next_episodes:
                oc_seed(&self.vec, seed, first_world)
                self.records.num_lines = 0
            with nogil:
                oc_restart(&self.vec, next_episodes)
        finally:
            oc_release(&self.vec)

    def step(self, actions):
        """Take the actions and step every world once.

        Returns:
            Whether that was done; False if the actions have to be converted to the form of the bound ones first.
        """
        if not self.vec.is_ready or oc_is_busy(&self.vec):
            self._check_ready()
        if actions is not self.actions and not self._take(actions):
            return False
        cdef oc_outcome outcome
        with nogil:
            outcome = oc_step_all(&self.vec, &self.records)
        if outcome != OC_DONE:
            raise self._failure(outcome)
        return True

    def finish_step(self):
        """Count a step that was made in slices through the capsule, and collect its records."""
        self._check_ready()
        cdef oc_outcome outcome = oc_finish_step(&self.vec, &self.records)
        if outcome != OC_DONE:
            raise self._failure(outcome)

    cdef object _failure(self, oc_outcome outcome):
        if outcome == OC_BUSY:
            return self._busy()
        if outcome == OC_NO_MEMORY:
            return MemoryError(f"no memory for the episode records of {self.table.name}")
        if outcome == OC_WORLDS_LEFT:
            return RuntimeError(
                f"the slices of a step of {self.table.name} must cover each of its {self.vec.num_worlds} worlds once "
                f"before finish_step; got {self.vec.num_sliced} worlds. Step all slices, or reset."
            )
        cdef int64_t index = self.vec.illegal_number - 1
        cdef int64_t heads = self.vec.act_bytes // 4
        self.vec.illegal_number = 0
        return ValueError(
            f"actions of {self.table.name} must be in [0, {self.vec.spec.act_sizes[index % heads]}); got "
            f"{(<int32_t *>self.vec.actions)[index]} as number {index % heads} of row {index // heads}. "
            "A debug build refuses what a release build takes as a no-op."
        )

    cdef bint _take(self, actions) except -1:
        """Copy actions of 4-byte numbers as they are; int64 is clamped to int32, so that it stays illegal if it was."""
        cdef Py_buffer view
        cdef int64_t size = self.vec.num_rows * self.vec.act_bytes // 4
        cdef int64_t i, number
        cdef int32_t *out = <int32_t *>self.vec.actions
        cdef bint done = False
        try:
            PyObject_GetBuffer(actions, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        except (BufferError, TypeError, ValueError):
            return False
        cdef char code = view.format[0] if view.format[1] == 0 else 0
        cdef bint is_integer = code == c"i" or code == c"l" or code == c"q"
        try:
            if view.ndim and view.shape[0] == self.vec.num_rows and view.len == size * view.itemsize:
                if view.itemsize == 4 and (is_integer if self.takes_integers else code == c"f"):
                    memmove(out, view.buf, view.len)
                    done = True
                elif view.itemsize == 8 and self.takes_integers and is_integer:
                    for i in range(size):
                        number = (<int64_t *>view.buf)[i]
                        out[i] = <int32_t>min(max(number, <int64_t>INT32_MIN), <int64_t>INT32_MAX)
                    done = True
        finally:
            PyBuffer_Release(&view)
        return done

    @property
    def num_records(self):
        """Records of ended episodes that wait to be drained."""
        return self.records.num_lines

    @property
    def num_dropped(self):
        """Records that were dropped because nobody drained them."""
        return self.records.num_dropped

    @property
    def newest_params(self):
        """The set of parameters that the next episode of each world uses."""
        self._check_open()
        cdef unsigned char *newest = self.vec.params + (self.vec.num_generations - 1) * self.vec.params_stride
        return PyBytes_FromStringAndSize(<char *>newest, self.table.params_bytes)

    @property
    def shape(self):
        """What must agree between a snapshot and the env that takes it."""
        self._check_open()
        return [
            self.vec.num_worlds, self.vec.agents, self.vec.obs_bytes, self.vec.act_bytes, self.vec.action_mask_bytes,
            self.vec.state_stride, self.vec.params_stride, self.vec.block_bytes, self.records.line_bytes,
        ]

    def drain(self, memory):
        """Move all records into writable memory of num_records * record_bytes bytes."""
        self._copy_records(memory)
        self.records.num_lines = 0

    cdef int _copy_records(self, memory) except -1:
        cdef Py_buffer view
        PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)
        try:
            if view.len != self.records.num_lines * self.records.line_bytes:
                raise ValueError(f"memory must hold {self.records.num_lines} records; got {view.len} bytes.")
            if view.len:
                memcpy(view.buf, self.records.lines, view.len)
        finally:
            PyBuffer_Release(&view)
        return 0

    def add_parameters(self, bytes params not None):
        """A resolved set of parameters of the same shapes, for the next episode of each world."""
        self._check_open()
        if len(params) != self.table.params_bytes:
            raise ValueError(f"params must be {self.table.params_bytes} bytes; got {len(params)}.")
        if oc_add_params(&self.vec, <char *>params):
            raise MemoryError(f"no memory for the parameters of {self.table.name}")

    def get_parts(self):
        """Return (num_steps, num_generations, parameters, block, records) of a snapshot."""
        self._check_ready()
        records = bytearray(self.records.num_lines * self.records.line_bytes)
        self._copy_records(records)
        cdef Py_ssize_t params_bytes = self.vec.num_generations * self.vec.params_stride
        return (
            self.vec.num_steps,
            self.vec.num_generations,
            PyBytes_FromStringAndSize(<char *>self.vec.params, params_bytes),
            PyBytes_FromStringAndSize(<char *>self.vec.block, self.vec.block_bytes),
            bytes(records),
        )

    def set_parts(self, int64_t num_steps, uint32_t num_generations, bytes params, bytes block, bytes records):
        """Return to the parts of a snapshot of the same shape.

        Raises:
            ValueError: A part has the wrong size, or its parts do not belong together.
        """
        self._check_open()
        cdef int64_t num_lines = len(records) // self.records.line_bytes
        if (
            num_generations < 1
            or len(params) != num_generations * self.vec.params_stride
            or len(block) != self.vec.block_bytes
            or len(records) != num_lines * self.records.line_bytes
            or num_lines > self.records.max_lines
        ):
            raise ValueError(f"the parts of a snapshot of {self.table.name} must have the sizes of its header.")
        cdef uint32_t *generations = <uint32_t *>(
            <char *>block + (<unsigned char *>self.vec.generations - self.vec.block)
        )
        if any(generations[i] >= num_generations for i in range(self.vec.num_worlds)):
            raise ValueError(f"a snapshot of {self.table.name} must have a set of parameters for each world.")
        if oc_reserve_records(&self.records, num_lines) or oc_set_params(&self.vec, <char *>params, num_generations):
            raise MemoryError(f"no memory for a snapshot of {self.table.name}")
        memcpy(self.vec.block, <char *>block, self.vec.block_bytes)
        if num_lines:
            memcpy(self.records.lines, <char *>records, len(records))
        self.records.num_lines = num_lines
        self.vec.num_steps = num_steps
        self.vec.num_sliced = 0
        self.vec.is_ready = self.num_views > 0

    def episode_numbers(self):
        """Return the number of the present episode of each world."""
        self._check_ready()
        return [self.vec.episodes[i] for i in range(self.vec.num_worlds)]

    def draw(self, int64_t world, memory, int width, int height):
        """Draw a world into writable memory of height rows of width RGB triples."""
        cdef Py_buffer view
        cdef oc_canvas canvas
        self._check_ready()
        if not 0 <= world < self.vec.num_worlds:
            raise ValueError(f"world must be in [0, {self.vec.num_worlds}); got {world}.")
        PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)
        try:
            if width < 1 or height < 1 or view.len != 3 * <Py_ssize_t>width * height:
                raise ValueError(f"memory must hold {height} x {width} RGB pixels; got {view.len} bytes.")
            canvas.width, canvas.height, canvas.pixels = width, height, <uint8_t *>view.buf
            oc_draw_world(&self.vec, world, &canvas)  # with the GIL, so that no step, reset or close begins meanwhile
        finally:
            PyBuffer_Release(&view)

    def step_capsule(self):
        """Return a PyCapsule "puffer.step.v1", which keeps this object alive."""
        self._check_open()
        self.capsule.abi_version = 1
        self.capsule.struct_size = sizeof(puffer_step_v1)
        self.capsule.ctx = &self.vec
        self.capsule.num_worlds = self.vec.num_worlds
        self.capsule.rows_per_world = self.vec.agents
        self.capsule.slice_multiple = OC_SLICE_MULTIPLE
        self.capsule.step = oc_step_slice
        capsule = PyCapsule_New(&self.capsule, "puffer.step.v1", release_capsule)
        Py_INCREF(self)
        PyCapsule_SetContext(capsule, <void *>self)
        return capsule


cdef void release_capsule(object capsule) noexcept:
    Py_DECREF(<object>PyCapsule_GetContext(capsule))
