"""The door to the compiled module: one place that says what to do when it cannot be loaded."""

from __future__ import annotations

from functools import cache

try:
    from puffer_ocean._native import EnvTable, NativeEnv, env_tables, table_at
except ImportError as error:
    raise ImportError(
        f"puffer_ocean's compiled module must be built for this Python and machine; got: {error}. "
        "Rebuild it: pip install --force-reinstall --no-deps ./packages/puffer-ocean (or pip install puffer-ocean "
        "where it came from), and see that nothing else named puffer_ocean is on the path.",
        name="puffer_ocean._native",
    ) from error

__all__ = ["EnvTable", "NativeEnv", "built_tables", "table_at"]


@cache
def built_tables() -> dict[str, EnvTable]:
    """Return the tables of all environments of this build, by name."""
    return env_tables()
