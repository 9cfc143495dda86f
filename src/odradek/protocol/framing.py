"""Frames: each request and response is an int32 size and that many bytes.

Kafka closes the connection on a size below zero or above ``socket.request.max.bytes``.
"""

from __future__ import annotations

import struct

from odradek.protocol.errors import MalformedMessage

SIZE_BYTES = 4
_SIZE = struct.Struct(">i")


def frame_size(buffer: memoryview | bytes | bytearray, pos: int, size_max: int) -> int:
    """The size that stands at `pos`, four bytes which must be there; raises `MalformedMessage`."""
    size: int = _SIZE.unpack_from(buffer, pos)[0]
    if not 0 <= size <= size_max:
        raise MalformedMessage(f"frame of {size} bytes, allowed are 0 to {size_max}")
    return size


def size_prefix(size: int) -> bytes:
    """The four bytes that stand before a frame of `size` bytes."""
    return _SIZE.pack(size)
