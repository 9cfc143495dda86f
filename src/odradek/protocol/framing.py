"""Frames: each request and response is an int32 size and that many bytes.

Kafka closes the connection on a size below 0 or above ``socket.request.max.bytes``. `unpack_size`
and `pack_size` are the bare functions of `struct`, for the path where each call costs.
"""

from __future__ import annotations

import struct

from odradek.protocol.errors import MalformedMessage

_SIZE = struct.Struct(">i")
unpack_size = _SIZE.unpack_from
pack_size = _SIZE.pack


def frame_size(buffer: memoryview | bytes | bytearray, pos: int, size_max: int) -> int:
    """The size that stands at `pos`, four bytes which must be there; raises `MalformedMessage`."""
    size: int = unpack_size(buffer, pos)[0]
    if not 0 <= size <= size_max:
        raise MalformedMessage(f"frame of {size} bytes, allowed are 0 to {size_max}")
    return size
