"""What is said of an env that cannot be seeded."""

from __future__ import annotations

import logging
from typing import Any

from puffer_emulate.copies import env_name

_logger = logging.getLogger("puffer_emulate")
_noted: set[type] = set()


def note_seedless(env: Any) -> None:
    """Log, once for each class, that a seed had no effect."""
    if type(env) not in _noted:
        _noted.add(type(env))
        _logger.warning("%s has no way to be seeded: it draws as its constructor seeded it (said once).", env_name(env))
