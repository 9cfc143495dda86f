"""Batches in another compression: for topics whose `compression.type` is not ``producer``.

Costs time in proportion to the batch, so callers run it on another thread, before the append.
"""

from __future__ import annotations

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.records import compression as codec
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    Buffer,
    Compression,
    parse_header,
    write_crc,
)
from odradek.records.record import CorruptRecord, body_of, check_places
from odradek.records.validate import BatchRules, validate_batch

PRODUCER = "producer"
UNCOMPRESSED = "uncompressed"


def target_compression(config: LogConfig) -> Compression | None:
    """What the topic's batches are to be compressed with; None: as the producer sent them."""
    if config.compression_type == PRODUCER:
        return None
    if config.compression_type == UNCOMPRESSED:
        return Compression.NONE
    return Compression[config.compression_type.upper()]


def compression_level(config: LogConfig, compression: Compression) -> int | None:
    """The topic's level for that compression; None where there is none to set."""
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(compression)


def needs_recompression(batch: Buffer, config: LogConfig) -> bool:
    """Whether `recompress` would change the batch: a look at one byte, cheap for the loop."""
    target = target_compression(config)
    if target is None or len(batch) < HEADER_BYTES:
        return False
    return batch[ATTRIBUTES_POSITION + 1] & COMPRESSION_MASK != target


def recompress(batch: Buffer, config: LogConfig, now_ms: int) -> bytearray:
    """A copy of one batch in the topic's compression.

    The batch is validated as an append does, so that nothing of unknown origin is unpacked; one
    that does not unpack is CORRUPT_MESSAGE. The same batch when nothing is to be changed.
    """
    batch, _ = validate_batch(memoryview(batch), BatchRules(config, transactional=True), now_ms)
    target = target_compression(config)
    header = parse_header(batch)
    if target is None or header.compression == target:
        return bytearray(batch)
    try:
        body = body_of(batch, header)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot unpack: {error}") from error
    try:
        check_places(body, header.record_count)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    payload = codec.compress(target, body, compression_level(config, target))
    return _with_payload(batch, target, payload)


def _with_payload(original: Buffer, compression: Compression, payload: bytes) -> bytearray:
    batch = bytearray(HEADER_BYTES + len(payload))
    batch[:HEADER_BYTES] = original[:HEADER_BYTES]
    batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    low = batch[ATTRIBUTES_POSITION + 1]
    batch[ATTRIBUTES_POSITION + 1] = low & ~COMPRESSION_MASK | compression
    batch[HEADER_BYTES:] = payload
    write_crc(batch)
    return batch
