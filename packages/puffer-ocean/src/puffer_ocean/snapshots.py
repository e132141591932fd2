"""Snapshots of native environments as bytes: a header in JSON that says what they are, then the parts.

::

    MAGIC | u32 CRC-32 of the rest | u32 bytes of the header | header | parts, one after the other

The header names the environment, its rules' version, its shapes and the size of each part; the checksum finds damage.
State is the memory of the C code: a snapshot made up with intent can break the process, so load only your own.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

MAGIC = b"puffer-ocean state\n"
FORMAT_VERSION = 2
_WORD = struct.Struct("<I")


def join(facts: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """Return a snapshot of parts, with facts in its header that `split` compares."""
    sizes = {name: len(part) for name, part in parts.items()}
    header = json.dumps({"format_version": FORMAT_VERSION, **facts, "parts": sizes}).encode()
    rest = b"".join([_WORD.pack(len(header)), header, *parts.values()])
    return b"".join([MAGIC, _WORD.pack(zlib.crc32(rest)), rest])


def split(state: bytes, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the header and the parts of a snapshot whose header has the given facts.

    Raises:
        TypeError: The snapshot is not bytes.
        ValueError: It is damaged, or of another environment, version or shape.
    """
    if not isinstance(state, bytes | bytearray | memoryview):
        raise TypeError(f"state must be the bytes of get_state; got {type(state).__name__}.")
    state = bytes(state)
    rest = state[len(MAGIC) + _WORD.size :]
    checksum = state[len(MAGIC) : len(MAGIC) + _WORD.size]
    if state[: len(MAGIC)] != MAGIC or not rest or checksum != _WORD.pack(zlib.crc32(rest)):
        raise ValueError(
            f"state must be the bytes of get_state, unchanged; got {len(state)} bytes that were cut or changed, or "
            "come from elsewhere."
        )
    (size,) = _WORD.unpack_from(rest)
    header = json.loads(rest[_WORD.size : _WORD.size + size])
    for name, fact in {"format_version": FORMAT_VERSION, **facts}.items():
        if header.get(name) != fact:
            raise ValueError(
                f"state must be a snapshot with {name}={fact!r}; got {name}={header.get(name)!r}. "
                "Make the env with the same id, version, num_envs and parameters."
            )
    parts, offset = {}, _WORD.size + size
    for name, length in header["parts"].items():
        parts[name] = rest[offset : offset + length]
        offset += length
    return header, parts
