"""Memory for rows: private for threads, shared through a descriptor for processes.

Shared memory has no name in the file system, so nothing can be left behind however a process ends: it lives as long as
a process has it mapped. Under Linux it is a memfd; elsewhere, a temporary file that is unlinked before it is used.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_vector._signal import Mapping

ALIGNMENT = 64


def private_memory(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return zeroed memory of this process that starts on a cache line."""
    block = np.zeros(nbytes + ALIGNMENT, np.uint8)
    offset = -block.ctypes.data % ALIGNMENT
    return block[offset : offset + nbytes]


class SharedMemory:
    """Memory that processes share by passing `fd` on.

    Args:
        nbytes: Size.
        fd: Descriptor of existing shared memory, or None to make some. The object owns it.
    """

    def __init__(self, nbytes: int, fd: int | None = None) -> None:
        self.nbytes = max(nbytes, 1)
        self.fd = _create(self.nbytes) if fd is None else fd
        mapping: Any = Mapping(self.fd, self.nbytes)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)

    def close_fd(self) -> None:
        """Close the descriptor; the memory stays mapped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _create(nbytes: int, use_memfd: bool = hasattr(os, "memfd_create")) -> int:
    if use_memfd:
        fd = os.memfd_create("puffer-vector", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, nbytes)
    return fd
