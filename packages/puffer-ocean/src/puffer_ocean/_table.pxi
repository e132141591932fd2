# The part of _native.pyx that shows what the C files of environments declare.

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
