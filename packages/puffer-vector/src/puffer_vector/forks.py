"""What a fork of the caller's process means: the child has none of the threads and workers of its parent's vector envs.

Without this the child would wait for threads that it does not have, or tell the workers of its parent to stop.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from puffer_vector.slots import SlotVector

_vectors: weakref.WeakSet[SlotVector] = weakref.WeakSet()
_is_registered = False


def leave_in_forks(vector: SlotVector) -> None:
    """Have a vector env be closed, without a word to its workers, in every fork of this process."""
    global _is_registered
    if not _is_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_all)
        _is_registered = True
    _vectors.add(vector)


def _leave_all() -> None:
    for vector in list(_vectors):
        vector.leave_to_parent()
    _vectors.clear()
