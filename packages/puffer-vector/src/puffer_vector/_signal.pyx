# Requests from one caller to its workers and their replies; native/signal.h has the protocol.
cimport cython
from cpython.buffer cimport (PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_FillInfo, PyBuffer_Release,
                             PyObject_GetBuffer)
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

cdef extern from "native/signal.h" nogil:
    const bint PUFFER_HAS_FUTEX
    const int64_t SPIN_MAX_NS

    ctypedef struct SignalSlot:
        uint32_t request
        uint32_t command
        uint32_t reply
        uint32_t status
        uint32_t num_records
        uint64_t message_bytes
        uint64_t progress

    ctypedef struct SignalCaller:
        int32_t need

    ctypedef struct SignalWaiter:
        int64_t spin_ns
        bint use_futex
        bint may_spin

    void signal_post(SignalSlot *slot, uint32_t command, int use_futex)
    int signal_wait_request(SignalWaiter *waiter, SignalSlot *slot, uint32_t last, int64_t timeout_ns)
    void signal_finish(SignalCaller *caller, SignalSlot *slot, uint32_t request, int use_futex)
    int signal_wait_replies(SignalWaiter *waiter, SignalCaller *caller, SignalSlot *slots, const int32_t *indices,
                            int num_indices, int count, int64_t timeout_ns)
    bint signal_is_done(SignalSlot *slot)
    int watchdog_start(int sentinel, int parent)

cdef extern from "<sys/mman.h>" nogil:
    const int PROT_READ
    const int PROT_WRITE
    const int MAP_SHARED
    void *MAP_FAILED
    void *mmap(void *address, size_t length, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t length)

HAS_FUTEX = bool(PUFFER_HAS_FUTEX)


def start_watchdog(int sentinel, int parent):
    """End this process when `sentinel` becomes readable or its parent is no longer process `parent`.

    Args:
        sentinel: File descriptor that becomes readable when the parent is gone; -1 for none.
        parent: Process id that os.getppid() returns now; 0 for none.
    """
    if watchdog_start(sentinel, parent):
        raise OSError("cannot start the thread that watches the parent process")


cdef class Mapping:
    """Writable shared memory behind a file descriptor, as a buffer. Unlike `mmap.mmap` it holds no descriptor open.

    Args:
        fd: Descriptor of the memory; it may be closed afterwards.
        nbytes: Size.
    """

    cdef void *_place
    cdef Py_ssize_t _nbytes

    def __cinit__(self, int fd, Py_ssize_t nbytes):
        self._place = NULL
        if nbytes < 1:
            raise ValueError(f"nbytes must be at least 1; got {nbytes}.")
        cdef void *place = mmap(NULL, <size_t>nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if place == MAP_FAILED:
            raise MemoryError(f"cannot map {nbytes} bytes of shared memory")
        self._place, self._nbytes = place, nbytes

    def __dealloc__(self):
        if self._place != NULL:
            munmap(self._place, <size_t>self._nbytes)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._place, self._nbytes, 0, flags)


@cython.no_gc  # the buffer must be given back by __dealloc__ only, and memory never refers to signals
cdef class Signals:
    """Slots for requests and replies in memory shared by a caller and its workers.

    The caller uses `post`, `wait` and the readers; worker k uses `next_command` and `finish` of its own object over
    the same memory.

    Args:
        memory: Writable, zeroed buffer of at least `Signals.nbytes(num_slots)` bytes.
        num_slots: Number of workers.
        spin: Whether to spin for a while before parking.
        use_futex: False to park by sleeping, as on systems without futexes.
    """

    cdef Py_buffer _view
    cdef bint _held
    cdef SignalCaller *_caller
    cdef SignalSlot *_slots
    cdef SignalWaiter _waiter
    cdef readonly int num_slots

    def __cinit__(self, memory, int num_slots, bint spin=True, bint use_futex=HAS_FUTEX):
        self._held = False
        PyObject_GetBuffer(memory, &self._view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self._held = True
        if self._view.len < Signals.nbytes(num_slots):
            raise ValueError(f"memory must hold {Signals.nbytes(num_slots)} bytes for {num_slots} slots; "
                             f"got {self._view.len}.")
        self.num_slots = num_slots
        self._caller = <SignalCaller *>self._view.buf
        self._slots = <SignalSlot *>(<char *>self._view.buf + sizeof(SignalCaller))
        memset(&self._waiter, 0, sizeof(self._waiter))
        self._waiter.may_spin = spin
        self._waiter.use_futex = use_futex and PUFFER_HAS_FUTEX
        self._waiter.spin_ns = SPIN_MAX_NS

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    @staticmethod
    def nbytes(int num_slots):
        """Return the bytes that `num_slots` slots need."""
        return sizeof(SignalCaller) + num_slots * sizeof(SignalSlot)

    cdef SignalSlot *_slot(self, int slot) except NULL:
        if slot < 0 or slot >= self.num_slots:
            raise IndexError(f"slot must be in [0, {self.num_slots}); got {slot}.")
        return self._slots + slot

    def post(self, int slot, uint32_t command):
        """Ask worker `slot` for `command`; its last request must have been replied to."""
        signal_post(self._slot(slot), command, self._waiter.use_futex)

    def wait(self, const int32_t[::1] slots not None, int count, double timeout_s):
        """Wait until `count` of `slots` have replied.

        Returns:
            False when the time was up first. A Python signal handler may run and raise.
        """
        cdef int result
        cdef int num_slots = <int>slots.shape[0]
        cdef int64_t timeout_ns = <int64_t>(timeout_s * 1e9)
        if num_slots == 0:
            return True
        with nogil:
            result = signal_wait_replies(&self._waiter, self._caller, self._slots, &slots[0], num_slots, count,
                                         timeout_ns)
        if result < 0:
            PyErr_CheckSignals()
        return result == 1

    def is_done(self, int slot):
        """Return whether worker `slot` has replied to its last request."""
        cdef SignalSlot *place = self._slot(slot)
        return signal_is_done(place)

    def reply(self, int slot):
        """Return (status, number of records, bytes of the message) of the last reply of worker `slot`."""
        cdef SignalSlot *place = self._slot(slot)
        return place.status, place.num_records, place.message_bytes

    def progress_offset(self, int slot):
        """Return where in the memory worker `slot` has a uint64: index of the env object that it steps, as it says."""
        return <char *>&self._slot(slot).progress - <char *>self._view.buf

    def next_command(self, int slot, double timeout_s=3600.0):
        """Wait, as worker `slot`, for a request.

        Returns:
            The command, or -1 when the time was up.
        """
        cdef SignalSlot *place = self._slot(slot)
        cdef uint32_t last = place.reply
        cdef int result
        cdef int64_t timeout_ns = <int64_t>(timeout_s * 1e9)
        with nogil:
            result = signal_wait_request(&self._waiter, place, last, timeout_ns)
        if result < 0:
            PyErr_CheckSignals()
        return <long>place.command if result == 1 else -1

    def finish(self, int slot, uint32_t status, uint32_t num_records=0, uint64_t message_bytes=0):
        """Reply, as worker `slot`, to its last request."""
        cdef SignalSlot *place = self._slot(slot)
        place.status = status
        place.num_records = num_records
        place.message_bytes = message_bytes
        signal_finish(self._caller, place, place.request, self._waiter.use_futex)

    def forget(self, int slot):
        """Count the last request of worker `slot` as replied to: the worker is gone."""
        cdef SignalSlot *place = self._slot(slot)
        (<volatile uint32_t *>&place.reply)[0] = place.request
