"""How a kind of foreign environment is offered to `as_puffer_env`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from puffer_spaces import Buffers, PufferEnv


@dataclass(frozen=True, slots=True)
class KindAdapter:
    """Makes a PufferEnv of one world around an env of a kind: an entry point of the group `puffer.adapters`.

    Attributes:
        matches: Whether an object is an env of the kind.
        puffer_env: Class of the PufferEnv; takes the env, and buffers or None as `buf`.
    """

    matches: Callable[[Any], bool]
    puffer_env: Callable[..., PufferEnv]

    def adapt(self, env: Any, buf: Buffers | None = None) -> PufferEnv:
        """Return a PufferEnv of one world around the env."""
        return self.puffer_env(env, buf=buf)
