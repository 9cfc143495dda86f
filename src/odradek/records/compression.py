"""The four compressions of record bodies, in the framings of Kafka's Java client, with capped
output.

Nothing here is on the produce or fetch path: batches travel opaque. It serves whoever must look
into a batch (coordinators, offsets for timestamps, the command line, `compression.type` other
than producer).

Framings: gzip members; snappy as xerial's stream (a 16-byte header, then int32 size + raw block,
32 KiB of input each) and, on reading, also one raw block as librdkafka may write it; lz4 frames
with independent 64 KiB blocks and no content checksum; zstd frames.
"""

from __future__ import annotations

import struct
import zlib

import cramjam

from odradek.records.batch import Compression

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""The most that one batch may unpack to; beyond it is `CorruptCompression`, whatever its header
says.
"""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Magic, FLG (version 1, independent blocks), BD (64 KiB blocks), header checksum."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x8000_0000
_INT32_BE = struct.Struct(">i")
_GZIP_PIECE_BYTES = 16 * 1024
_OVERFLOW = "failed to write whole buffer"
_GROWTH = 4


class CorruptCompression(ValueError):
    """The bytes are no stream of that compression, or unpack to more than allowed."""


def compress(compression: Compression, data: bytes, level: int | None = None) -> bytes:
    """`data` in the framing of `compression`; `level` None means Kafka's default."""
    if compression is Compression.NONE:
        return data
    if compression is Compression.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if compression is Compression.SNAPPY:
        return _compress_snappy(data)
    if compression is Compression.LZ4:
        return _compress_lz4(data, 9 if level is None else level)
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(
    compression: Compression,
    data: bytes | memoryview,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The unpacked bytes, at most `bytes_max`; CorruptCompression otherwise."""
    if compression is Compression.NONE:
        return bytes(data)
    if compression is Compression.GZIP:
        return _decompress_gzip(data, bytes_max)
    if compression is Compression.SNAPPY:
        return _decompress_snappy(bytes(data), bytes_max)
    if compression is Compression.LZ4:
        return _decompress_growing(cramjam.lz4.decompress_into, bytes(data), bytes_max)
    return _decompress_growing(cramjam.zstd.decompress_into, bytes(data), bytes_max)


def _compress_snappy(data: bytes) -> bytes:
    chunks = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        chunks += (_INT32_BE.pack(len(block)), block)
    return b"".join(chunks)


def _compress_lz4(data: bytes, level: int) -> bytes:
    chunks = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(
            cramjam.lz4.compress_block(
                block, mode="high_compression", compression=level, store_size=False
            )
        )
        if len(packed) < len(block):
            chunks += (len(packed).to_bytes(4, "little"), packed)
        else:
            chunks += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), block)
    chunks.append(bytes(4))
    return b"".join(chunks)


def _decompress_gzip(data: bytes | memoryview, bytes_max: int) -> bytes:
    """All members of the stream, one after the other, fed in pieces: a member's end costs a copy
    of what was fed behind it.
    """
    chunks: list[bytes] = []
    view, pos, remaining = memoryview(data), 0, bytes_max
    unpacker = None
    while pos < len(view):
        unpacker = unpacker or zlib.decompressobj(31)
        piece = view[pos : pos + _GZIP_PIECE_BYTES]
        try:
            chunk = unpacker.decompress(piece, remaining + 1)
        except zlib.error as error:
            raise CorruptCompression(f"gzip: {error}") from error
        remaining -= len(chunk)
        if remaining < 0:
            raise CorruptCompression(f"gzip: unpacks to more than {bytes_max} bytes")
        chunks.append(chunk)
        pos += len(piece) - len(unpacker.unused_data)
        if unpacker.eof:
            unpacker = None
    if unpacker is not None:
        raise CorruptCompression("gzip: the stream ends too early")
    return b"".join(chunks)


def _decompress_snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(data, bytes_max)
    chunks: list[bytes] = []
    remaining, pos = bytes_max, len(_XERIAL_HEADER)
    while pos < len(data):
        if pos + 4 > len(data):
            raise CorruptCompression("snappy: the stream ends in a block's size")
        size: int = _INT32_BE.unpack_from(data, pos)[0]
        pos += 4
        if not 0 <= size <= len(data) - pos:
            raise CorruptCompression(f"snappy: a block of {size} bytes does not fit")
        chunk = _decompress_snappy_block(data[pos : pos + size], remaining)
        remaining -= len(chunk)
        chunks.append(chunk)
        pos += size
    return b"".join(chunks)


def _decompress_snappy_block(block: bytes, bytes_max: int) -> bytes:
    """A raw block begins with its unpacked size: it is not believed beyond the cap."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > bytes_max:
            raise CorruptCompression(f"snappy: unpacks to {size} bytes, {bytes_max} are allowed")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptCompression(f"snappy: {error}") from error


def _decompress_growing(decompress_into: object, data: bytes, bytes_max: int) -> bytes:
    """Unpacks into a buffer that doubles until it is large enough or at the cap."""
    assert callable(decompress_into)
    size = min(bytes_max, max(65_536, _GROWTH * len(data)))
    while True:
        buffer = bytearray(size)
        try:
            written: int = decompress_into(data, buffer)
            return bytes(memoryview(buffer)[:written])
        except cramjam.DecompressionError as error:
            if _OVERFLOW not in str(error):
                raise CorruptCompression(str(error)) from error
            if size >= bytes_max:
                raise CorruptCompression(f"unpacks to more than {bytes_max} bytes") from error
        size = min(bytes_max, size * _GROWTH)
