"""Batches in another compression: for topics whose `compression.type` is not ``producer``."""

from __future__ import annotations

from odradek.config.log_config import LogConfig
from odradek.offloading import Work, offloaded
from odradek.records import compression as codec
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    Compression,
    write_crc,
)
from odradek.records.compression import Body
from odradek.records.validate import too_large

PRODUCER = "producer"
UNCOMPRESSED = "uncompressed"
SMALL_BODY_BYTES = 8 * 1024
"""Maximum size that is compressed on the event loop. A change of threads takes as long."""


def target_compression(config: LogConfig) -> Compression | None:
    """Return the compression of the topic's batches, or None for the producer's."""
    if config.compression_type == PRODUCER:
        return None
    if config.compression_type == UNCOMPRESSED:
        return Compression.NONE
    return Compression[config.compression_type.upper()]


def compression_level(config: LogConfig, compression: Compression) -> int | None:
    """Return the topic's level for that compression, or None if it has no level."""
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(compression)


def recompressed(
    batch: Buffer, header: BatchHeader, body: Body, target: Compression, config: LogConfig
) -> Work[bytearray]:
    """Return a copy of a validated batch whose `body` is compressed with `target`.

    The records are not decoded, because their bytes are the same in each compression.
    """
    if target is Compression.NONE and HEADER_BYTES + body.size > config.max_message_bytes:
        # The append would refuse it later, after a copy that holds the interpreter lock.
        raise too_large(HEADER_BYTES + body.size, config.max_message_bytes)
    level = compression_level(config, target)

    def compress() -> bytearray:
        with memoryview(body.data) as whole, whole[: body.size] as view:
            return _with_payload(batch, target, codec.compress(target, view, level))

    if body.size <= SMALL_BODY_BYTES:
        return compress()
    return (yield from offloaded(compress))


def _with_payload(original: Buffer, compression: Compression, payload: bytes) -> bytearray:
    batch = bytearray(HEADER_BYTES + len(payload))
    batch[:HEADER_BYTES] = original[:HEADER_BYTES]
    batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    low = batch[ATTRIBUTES_POSITION + 1]
    batch[ATTRIBUTES_POSITION + 1] = low & ~COMPRESSION_MASK | compression
    batch[HEADER_BYTES:] = payload
    write_crc(batch)
    return batch
