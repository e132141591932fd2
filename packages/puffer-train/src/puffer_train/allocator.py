"""What the C library does with freed memory.

glibc gives large blocks back to the system when they are freed, and asks for them anew a moment later: each page of
each large tensor is then mapped and zeroed again at every operation. Kept by the process, the same memory makes an
update of a small network on a CPU about twice as fast.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
_LARGEST_ON_THE_HEAP = (1 << 30, 1 << 25)  # older versions refuse more than 32 MiB
_KEPT_AT_THE_TOP = (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Make glibc keep freed blocks of up to 1 GiB for the rest of the process; a second call changes nothing.

    Older versions keep blocks of up to 32 MiB. The process stays as large as it once was, and no larger.

    Returns:
        Whether the C library is glibc and did so. With another one nothing happens.
    """
    if not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    is_large = any(mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGEST_ON_THE_HEAP)
    return is_large and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_THE_TOP))


def _is_glibc() -> bool:
    name = "CS_GNU_LIBC_VERSION"
    return name in getattr(os, "confstr_names", {}) and str(os.confstr(name) or "").startswith("glibc")
