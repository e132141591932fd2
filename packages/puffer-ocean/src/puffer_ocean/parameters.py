"""Arguments of native environments: parameters, checked against the table of the C file and packed into its struct, and
the integers that every environment takes."""

from __future__ import annotations

import difflib
import operator
import struct
from collections.abc import Mapping
from typing import Any

from puffer_ocean.native import EnvTable
from puffer_spaces import Parameter

ENV_ARGUMENTS = ("name", "num_envs", "buf", "seed", "render_mode")
"""Arguments of `OceanEnv` beside the parameters."""
_FORMATS = {int: "i", float: "f", bool: "?"}


def declared(table: EnvTable) -> tuple[Parameter, ...]:
    """Return the parameters of a table, `max_steps` first."""
    return tuple(
        Parameter(name, kind, default, None if kind is bool else low, None if kind is bool else high, doc)
        for name, kind, _offset, default, low, high, doc in table.parameters
    )


def check_names_and_defaults(table: EnvTable) -> None:
    """See that the parameters a C file declares can be given to an `OceanEnv`, and default to values they may have.

    Raises:
        ValueError: A name is one of `OceanEnv`'s own arguments, or a default is out of its range.
    """
    for name, _kind, _offset, default, low, high, _doc in table.parameters:
        if name in ENV_ARGUMENTS:
            raise ValueError(
                f"parameters of {table.name}.c must have other names than {', '.join(ENV_ARGUMENTS)}, which every "
                f"environment takes; got {name}. Rename it in OC_PARAMS."
            )
        if not low <= default <= high:
            raise ValueError(
                f"the default of {name} in {table.name}.c must be in [{low}, {high}]; got {default}. Change it in "
                "OC_PARAMS: type, name, default, min, max, doc."
            )


def check(table: EnvTable, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given parameters as Python's own ints, floats and bools.

    Raises:
        TypeError: A name is unknown or a value has the wrong type.
        ValueError: A value is out of its range.
    """
    known = {parameter.name: parameter for parameter in declared(table)}
    checked = {}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Its parameters are {', '.join(known)}."
            raise TypeError(f"ocean-{table.name} must get parameters it has; got {name}={value!r}. {hint}")
        try:
            checked[name] = known[name].check(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"ocean-{table.name}: {error}") from None
    return checked


def pack(table: EnvTable, checked: Mapping[str, Any]) -> bytes:
    """Return checked parameters, defaults for those that are missing, as the bytes of the environment's struct."""
    packed = bytearray(table.params_bytes)
    for name, kind, offset, default, *_ in table.parameters:
        struct.pack_into(_FORMATS[kind], packed, offset, checked.get(name, default))
    return bytes(packed)


def unpack(table: EnvTable, packed: bytes) -> dict[str, Any]:
    """Return the parameters that are in the bytes of a struct."""
    return {name: struct.unpack_from(_FORMATS[kind], packed, offset)[0] for name, kind, offset, *_ in table.parameters}


def integer(name: str, value: Any, low: int, high: int | None) -> int:
    """Return an argument of an env as a Python int from low to high, both included; high None is no limit.

    Raises:
        TypeError, ValueError: It is not one.
    """
    wanted = f"an integer >= {low} or None" if high is None else f"an integer in [{low}, {high}]"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be {wanted}; got {value!r}.") from None
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name} must be {wanted}; got {number}.")
    return number


def seed_or_none(seed: Any) -> int | None:
    """Return a seed as a Python int, or None. Raises as `integer`."""
    return None if seed is None else integer("seed", seed, 0, None)
