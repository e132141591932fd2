"""The one binding of all native environments: their tables, and batches of their worlds.

`EnvTable` shows what an environment's C file declares. `NativeEnv` owns the state of a batch of worlds and steps it in
arrays of the caller's, through the buffer protocol and without the GIL.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_New, PyCapsule_SetContext
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

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
        int64_t num_steps
        bint is_ready

cdef extern from "vec.h":
    ctypedef struct oc_records:
        unsigned char *lines
        int64_t line_bytes, num_lines, capacity, max_lines, num_dropped
    int oc_resolve(const oc_env *env, void *params, oc_spec *spec, oc_message *message)
    void oc_observation_bounds(const oc_env *env, const void *params, const oc_spec *spec, double *low, double *high)
    int64_t oc_observation_size(const oc_spec *spec)
    int64_t oc_action_mask_size(const oc_env *env, const oc_spec *spec)
    int oc_open(oc_vec *vec, const oc_env *env, int64_t num_worlds, const void *params, const oc_spec *spec)
    void oc_close(oc_vec *vec)
    int oc_add_params(oc_vec *vec, const void *params)
    int oc_set_params(oc_vec *vec, const void *params, uint32_t num_generations)
    void oc_seed(oc_vec *vec, uint64_t seed, uint64_t first_world)
    void oc_restart(oc_vec *vec, bint next_episodes) nogil
    void oc_step_slice(void *vec, int64_t first, int64_t last) noexcept nogil
    bint oc_is_stepping(const oc_vec *vec) nogil
    int oc_finish_step(oc_vec *vec, oc_records *records) nogil
    int oc_reserve_records(oc_records *records, int64_t num_lines)
    void oc_draw_world(const oc_vec *vec, int64_t world, oc_canvas *canvas) nogil

cdef extern from "registry.h":
    int oc_num_envs()
    const oc_env *oc_env_at(int index)

cdef enum:
    NUM_ROW_ARRAYS = 8

DTYPES = ("uint8", "int8", "int16", "int32", "float32")
PARAMETER_TYPES = (int, float, bool)
ACTION_KINDS = ("discrete", "multi_discrete", "box")


cdef class EnvTable:
    """What one environment's C file declares.

    Attributes:
        name: Name of the environment.
        doc: One sentence that says what it is.
        version: Of the rules; a change of any trajectory raises it.
        parameters: (name, type, offset in the struct, default, low, high, doc) of each parameter.
        params_bytes: Size of the struct of parameters.
        extras: Names of the metrics after score and perf.
    """

    cdef const oc_env *env
    cdef object owner
    cdef readonly str name, doc
    cdef readonly int version
    cdef readonly tuple parameters, extras
    cdef readonly Py_ssize_t params_bytes

    @staticmethod
    cdef EnvTable of(const oc_env *env, object owner):
        cdef EnvTable table = EnvTable.__new__(EnvTable)
        cdef const oc_param *row
        if env.abi_version != OC_ABI_VERSION:
            raise ImportError(
                f"a native environment must be compiled for version {OC_ABI_VERSION} of ocean.h; "
                f"got {env.abi_version}. Compile it again."
            )
        table.env = env
        table.owner = owner
        table.name = env.name.decode()
        table.doc = env.doc.decode()
        table.version = env.version
        table.params_bytes = env.params_bytes
        rows = []
        for i in range(env.num_params):
            row = &env.params[i]
            kind = PARAMETER_TYPES[row.type]
            low, high = (row.low, row.high) if kind is float else (int(row.low), int(row.high))
            rows.append((row.name.decode(), kind, row.offset, kind(row.value), low, high, row.doc.decode()))
        table.parameters = tuple(rows)
        table.extras = tuple(env.extras[i].decode() for i in range(env.num_extras))
        return table

    def resolve(self, bytes params not None):
        """Return (params with max_steps filled in, the spec as a dict) of a packed set of parameters.

        Raises:
            ValueError: The environment refuses the combination.
        """
        cdef oc_spec spec
        cdef oc_message message
        cdef bytearray resolved = bytearray(params)
        if len(resolved) != self.params_bytes:
            raise ValueError(f"params must be {self.params_bytes} bytes; got {len(resolved)}.")
        if oc_resolve(self.env, <char *>resolved, &spec, &message):
            raise ValueError(message.text.decode(errors="replace"))
        low, high = self._bounds(resolved, &spec)
        return bytes(resolved), {
            "agents": spec.agents,
            "observation_shape": tuple(n for n in spec.obs_shape[:OC_MAX_DIMS] if n > 0),
            "observation_dtype": DTYPES[self.env.obs_dtype],
            "observation_low": low,
            "observation_high": high,
            "action_kind": ACTION_KINDS[spec.act_kind],
            "action_sizes": tuple(n for n in spec.act_sizes[:OC_MAX_HEADS] if n > 0),
            "action_low": spec.act_low,
            "action_high": spec.act_high,
            "action_mask_size": oc_action_mask_size(self.env, &spec),
            "width": spec.width,
            "height": spec.height,
            "fps": spec.fps,
        }

    cdef tuple _bounds(self, bytearray params, const oc_spec *spec):
        cdef int64_t size = oc_observation_size(spec)
        cdef double *numbers = <double *>malloc(2 * size * sizeof(double))
        if numbers == NULL:
            raise MemoryError()
        try:
            oc_observation_bounds(self.env, <char *>params, spec, numbers, numbers + size)
            return [numbers[i] for i in range(size)], [numbers[size + i] for i in range(size)]
        finally:
            free(numbers)


def env_tables():
    """Return the tables of all environments of this build, by name."""
    tables = [EnvTable.of(oc_env_at(i), None) for i in range(oc_num_envs())]
    return {table.name: table for table in tables}


def table_at(size_t address, object owner not None):
    """Return the table at the address of an `oc_env` in a library, which `owner` keeps loaded."""
    return EnvTable.of(<const oc_env *>address, owner)


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
        self._check_idle()
        self._release()

    cdef int _check_idle(self) except -1:
        if oc_is_stepping(&self.vec):
            raise RuntimeError(
                f"{self.table.name} must not be used while a step of it runs on another thread. Wait for that step."
            )
        return 0

    cdef int _check_open(self) except -1:
        if not self.is_open:
            raise RuntimeError(f"{self.table.name} must be open; it was closed. Make a new env.")
        return self._check_idle()

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
                        f"array {count - 1} of the buffers of {self.table.name} must be aligned and have "
                        f"{sizes[count - 1]} bytes; got {views[count - 1].len}. Use Buffers.allocate."
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
        if not next_episodes:
            oc_seed(&self.vec, seed, first_world)
            self.records.num_lines = 0
        with nogil:
            oc_restart(&self.vec, next_episodes)

    def step(self, actions):
        """Take the actions and step every world once."""
        if not self.vec.is_ready or oc_is_stepping(&self.vec):
            self._check_ready()
        if actions is not self.actions:
            self._take(actions)
        cdef int failed
        with nogil:
            oc_step_slice(&self.vec, 0, self.vec.num_worlds)
            failed = oc_finish_step(&self.vec, &self.records)
        if failed:
            raise MemoryError(f"no memory for the episode records of {self.table.name}")

    def finish_step(self):
        """Count a step that was made in slices through the capsule, and collect its records."""
        self._check_ready()
        if oc_finish_step(&self.vec, &self.records):
            raise MemoryError(f"no memory for the episode records of {self.table.name}")

    cdef int _take(self, actions) except -1:
        """Copy actions of 4-byte numbers as they are; int64 is clamped to int32, so that it stays illegal if it was."""
        cdef Py_buffer view
        cdef int64_t size = self.vec.num_rows * self.vec.act_bytes // 4
        cdef int64_t i, number
        cdef int32_t *out = <int32_t *>self.vec.actions
        cdef bint done = False
        PyObject_GetBuffer(actions, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
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
        if not done:
            raise BufferError("actions need a conversion")
        return 0

    @property
    def num_records(self):
        """Records of ended episodes that wait to be drained."""
        return self.records.num_lines

    @property
    def num_dropped(self):
        """Records that were dropped because nobody drained them."""
        return self.records.num_dropped

    @property
    def num_steps(self):
        """Steps since the last seeded reset."""
        return self.vec.num_steps

    @property
    def newest_params(self):
        """The set of parameters that the next episode of each world uses."""
        self._check_open()
        cdef unsigned char *newest = self.vec.params + (self.vec.num_generations - 1) * self.vec.params_stride
        return PyBytes_FromStringAndSize(<char *>newest, self.table.params_bytes)

    @property
    def shape(self):
        """What must agree between a snapshot and the env that takes it."""
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
        memcpy(self.records.lines, <char *>records, len(records))
        self.records.num_lines = num_lines
        self.vec.num_steps = num_steps
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
            with nogil:
                oc_draw_world(&self.vec, world, &canvas)
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
