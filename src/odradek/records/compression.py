"""The four compressions of record bodies, in the framings of Kafka's Java client.

The size of the output is limited. The produce and fetch paths do not use this module, because
batches stay opaque there. It is for readers of records: coordinators, offsets for timestamps, the
command line, and topics whose `compression.type` is not producer.

Framings:

- gzip: members.
- snappy: xerial's stream (a 16-byte header, then int32 size + raw block for each 32 KiB of input).
  The reader also accepts one raw block, as librdkafka may write it.
- lz4: frames with independent 64 KiB blocks and no content checksum.
- zstd: frames.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from odradek.errors import KafkaError
from odradek.offloading import Work, offloaded
from odradek.records.batch import Compression

R = TypeVar("R")

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Maximum unpacked size of one batch, in bytes. A larger batch raises `CorruptCompression`,
regardless of the size in its header.
"""

COPIED_BYTES_MAX = 1024 * 1024
SMALL_PACKED_BYTES = 128 * 1024
SMALL_UNPACKED_BYTES = 256 * 1024
"""Maximum size that is unpacked on the event loop: it takes less than a millisecond."""
RELEASED_AT_ONCE_BYTES = 4 * 1024 * 1024
"""Maximum size that is released on the event loop: it takes a third of a millisecond."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Magic, FLG (version 1, independent blocks), BD (64 KiB blocks), header checksum."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x8000_0000
_INT32_BE = struct.Struct(">i")
_OVERFLOW = "failed to write whole buffer"
_USUAL_RATIO = 64
"""Bytes of output buffer for each packed byte in the first attempt."""
_UNPACKED_BYTES_MIN = 1024 * 1024


class CorruptCompression(ValueError):
    """The bytes are not a stream of that compression, or their unpacked size is above the limit."""


def _cramjam() -> ModuleType:
    """Return the library of the codecs.

    Its import takes 4 ms and 1.5 MiB. Most brokers never unpack a batch.
    """
    import cramjam

    return cramjam


def compress(compression: Compression, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Compress `data` in the framing of `compression`. `level` None means Kafka's default."""
    if compression is Compression.NONE:
        return bytes(data)
    if compression is Compression.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if compression is Compression.SNAPPY:
        return _compress_snappy(data)
    if compression is Compression.LZ4:
        return _compress_lz4(data, 9 if level is None else level)
    return bytes(_cramjam().zstd.compress(data, level=3 if level is None else level))


def decompress(
    compression: Compression,
    data: bytes | memoryview,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Return the unpacked bytes.

    Raises:
        CorruptCompression: The bytes are damaged, or unpack to more than `bytes_max`.
    """
    if compression is Compression.NONE:
        return bytes(data)
    body = unpack(compression, data, bytes_max)
    try:
        return bytes(body.data[: body.size])
    finally:
        body.close()


@dataclass(slots=True)
class Body:
    """The unpacked records of one batch.

    Attributes:
        data: The records, possibly followed by unused bytes.
        size: The number of bytes that the records take.
    """

    data: bytes | memoryview | mmap.mmap
    size: int
    _memory: mmap.mmap | None = None

    def close(self) -> None:
        """Release the memory. For many MiB it takes milliseconds, without the interpreter lock."""
        if self._memory is not None:
            self._memory.close()


def unpack(
    compression: Compression,
    data: bytes | memoryview,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Body:
    """Unpack at most `bytes_max` bytes, for readers that share the work with the event loop.

    Creating, growing or joining byte strings of many MiB holds the interpreter lock for as many
    milliseconds. The codecs release the lock. They therefore write to anonymous memory, to which
    the kernel adds pages at the same time. Uncompressed records are copied if they are few, because
    indexing bytes is faster than indexing a view.

    Raises:
        CorruptCompression: The bytes are damaged, or unpack to more.
    """
    if compression is Compression.NONE:
        return Body(bytes(data) if len(data) <= COPIED_BYTES_MAX else data, len(data))
    size = min(bytes_max, max(_UNPACKED_BYTES_MIN, _USUAL_RATIO * len(data)))
    try:
        return _unpack(compression, data, size)
    except _TooSmall:
        if size == bytes_max:
            raise
        return _unpack(compression, data, bytes_max)


def _unpack(compression: Compression, data: bytes | memoryview, bytes_max: int) -> Body:
    memory = mmap.mmap(-1, max(1, bytes_max), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        with memoryview(memory) as whole, whole[:bytes_max] as out:
            return Body(memory, _UNPACKERS[compression](data, out), memory)
    except BaseException:
        memory.close()
        raise


def unpack_in_thread(
    compression: Compression, data: bytes | memoryview, bytes_max: int
) -> Work[Body]:
    """Unpack in a thread, unless unpacking surely takes less time than a change of threads."""
    if len(data) <= SMALL_PACKED_BYTES or compression is Compression.NONE:
        try:
            return unpack(compression, data, min(bytes_max, SMALL_UNPACKED_BYTES))
        except _TooSmall:
            pass
    return (yield from offloaded(lambda: unpack(compression, data, bytes_max)))


def released_after(body: Body, work: Work[R]) -> Work[R]:
    """Run `work`, which reads `body`, and release the memory of `body` in a thread."""
    try:
        result = yield from work
    except (KafkaError, ValueError):
        yield from _released(body)
        raise
    yield from _released(body)
    return result


def _released(body: Body) -> Work[None]:
    if body.size <= RELEASED_AT_ONCE_BYTES:
        body.close()
    else:
        yield body.close


def _compress_snappy(data: bytes | memoryview) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    chunks = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        chunks += (_INT32_BE.pack(len(block)), block)
    return b"".join(chunks)


def _compress_lz4(data: bytes | memoryview, level: int) -> bytes:
    compress_block = _cramjam().lz4.compress_block
    chunks = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = bytes(data[start : start + _LZ4_BLOCK_BYTES])
        packed = bytes(
            compress_block(block, mode="high_compression", compression=level, store_size=False)
        )
        if len(packed) < len(block):
            chunks += (len(packed).to_bytes(4, "little"), packed)
        else:
            chunks += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), block)
    chunks.append(bytes(4))
    return b"".join(chunks)


class _TooSmall(CorruptCompression):
    """The unpacked stream does not fit into the output buffer."""


def _unpack_gzip(data: bytes | memoryview, out: memoryview) -> int:
    """Unpack all members of the stream with one call: between calls a thread waits for the lock."""
    return _unpack_frames(_cramjam().gzip.decompress_into, data, out) if data else 0


def _unpack_snappy(data: bytes | memoryview, out: memoryview) -> int:
    data = bytes(data)
    if not data.startswith(_XERIAL_MAGIC):
        return _unpack_snappy_block(data, out, 0)
    pos, written = len(_XERIAL_HEADER), 0
    while pos < len(data):
        if pos + 4 > len(data):
            raise CorruptCompression("snappy: the stream ends in a block's size")
        size: int = _INT32_BE.unpack_from(data, pos)[0]
        pos += 4
        if not 0 <= size <= len(data) - pos:
            raise CorruptCompression(f"snappy: a block of {size} bytes does not fit")
        written += _unpack_snappy_block(data[pos : pos + size], out, written)
        pos += size
    return written


def _unpack_snappy_block(block: bytes, out: memoryview, at: int) -> int:
    """Unpack a raw block. It begins with its unpacked size, which is checked against the limit."""
    cramjam = _cramjam()
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > len(out) - at:
            raise _TooSmall(f"snappy: unpacks to {size} bytes, {len(out) - at} are allowed")
        with out[at : at + size] as part:
            return int(cramjam.snappy.decompress_raw_into(block, part))
    except cramjam.DecompressionError as error:
        raise CorruptCompression(f"snappy: {error}") from error


def _unpack_lz4(data: bytes | memoryview, out: memoryview) -> int:
    return _unpack_frames(_cramjam().lz4.decompress_into, data, out)


def _unpack_zstd(data: bytes | memoryview, out: memoryview) -> int:
    return _unpack_frames(_cramjam().zstd.decompress_into, data, out)


def _unpack_frames(
    decompress_into: Callable[[bytes | memoryview, memoryview], int],
    data: bytes | memoryview,
    out: memoryview,
) -> int:
    try:
        return int(decompress_into(data, out))
    except _cramjam().DecompressionError as error:
        if _OVERFLOW not in str(error):
            raise CorruptCompression(str(error)) from error
        raise _TooSmall(f"unpacks to more than {len(out)} bytes") from error


_UNPACKERS = {
    Compression.GZIP: _unpack_gzip,
    Compression.SNAPPY: _unpack_snappy,
    Compression.LZ4: _unpack_lz4,
    Compression.ZSTD: _unpack_zstd,
}
