"""Frames: each request and response is an int32 size and that many bytes.

Kafka closes the connection on a size below 0 or above ``socket.request.max.bytes``. `unpack_size`
and `pack_size` are the functions of `struct` themselves, because each call costs on the hot path.
"""

from __future__ import annotations

import struct

from odradek.protocol.errors import MalformedMessage

_SIZE = struct.Struct(">i")
FRAME_SIZE_BYTES = _SIZE.size
unpack_size = _SIZE.unpack_from
pack_size = _SIZE.pack


def frame_size(buffer: memoryview | bytes | bytearray, pos: int, size_max: int) -> int:
    """Return the frame size in the four bytes at `pos`.

    Raises:
        MalformedMessage: The size is negative or above `size_max`.
    """
    size: int = unpack_size(buffer, pos)[0]
    if not 0 <= size <= size_max:
        raise MalformedMessage(f"invalid frame size {size}, the limit is {size_max}")
    return size
