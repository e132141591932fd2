"""Snapshots of native environments as bytes: a header in JSON that says what they are, then the parts.

::

    MAGIC | u32 bytes of the header | header | parts, one after the other

The header names the environment, its rules' version, its shapes and the size of each part; a checksum finds damage.
State is the memory of the C code: a snapshot made up with intent can break the process, so load only your own.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

MAGIC = b"puffer-ocean state\n"
FORMAT_VERSION = 1


def join(facts: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """Return a snapshot of parts, with facts in its header that `split` compares."""
    body = b"".join(parts.values())
    header = {
        "format_version": FORMAT_VERSION,
        **facts,
        "parts": {name: len(part) for name, part in parts.items()},
        "crc32": zlib.crc32(body),
    }
    encoded = json.dumps(header).encode()
    return b"".join([MAGIC, struct.pack("<I", len(encoded)), encoded, body])


def split(state: bytes, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the header and the parts of a snapshot whose header has the given facts.

    Raises:
        TypeError: The snapshot is not bytes.
        ValueError: It is damaged, or of another environment, version or shape.
    """
    if not isinstance(state, bytes | bytearray | memoryview):
        raise TypeError(f"state must be the bytes of get_state; got {type(state).__name__}.")
    state = bytes(state)
    start = len(MAGIC) + 4
    try:
        if state[: len(MAGIC)] != MAGIC:
            raise ValueError("it does not begin as one")
        (size,) = struct.unpack_from("<I", state, len(MAGIC))
        header = json.loads(state[start : start + size])
        body = state[start + size :]
        if sum(header["parts"].values()) != len(body) or zlib.crc32(body) != header["crc32"]:
            raise ValueError("it was cut or changed")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"state must be the bytes of get_state, unchanged; got {len(state)} bytes: {error}.") from None
    for name, fact in {"format_version": FORMAT_VERSION, **facts}.items():
        if header.get(name) != fact:
            raise ValueError(
                f"state must be a snapshot with {name}={fact!r}; got {name}={header.get(name)!r}. "
                "Make the env with the same id, version, num_envs and parameters."
            )
    parts, offset = {}, 0
    for name, length in header["parts"].items():
        parts[name] = body[offset : offset + length]
        offset += length
    return header, parts
