"""A batch in the compression that its topic asks for (``compression.type`` other than producer).

Runs in a thread: it unpacks and packs the whole body. Only the body, the attributes, the length
and the CRC change; the records inside are the same bytes, so offsets, sequences and timestamps
stay.
"""

from __future__ import annotations

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Compression,
    write_crc,
)
from odradek.records.compression import compress
from odradek.records.record import CorruptRecord, body_of
from odradek.records.validate import BatchRules, validate_batch


def target_compression(config: LogConfig) -> Compression:
    """What ``compression.type`` names; ``uncompressed`` is none."""
    name = config.compression_type
    return Compression.NONE if name == "uncompressed" else Compression[name.upper()]


def recompress(batch: memoryview, config: LogConfig, now_ms: int) -> memoryview | bytearray:
    """`batch` itself when it is compressed as `config` asks, else a new batch that is.

    Raises KafkaError: what `validate_batch` finds, CORRUPT_MESSAGE when the body does not unpack.
    """
    header = BatchHeader._make(validate_batch(batch, BatchRules(config), now_ms))
    target = target_compression(config)
    if header.compression == target:
        return batch
    try:
        plain = body_of(batch, header)
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt ({error})") from error
    body = plain if target is Compression.NONE else compress(target, plain, _level(target, config))
    packed = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(
        packed,
        0,
        *header._replace(
            batch_length=len(packed) - LOG_OVERHEAD,
            attributes=header.attributes & ~COMPRESSION_MASK | target,
        ),
    )
    packed[HEADER_BYTES:] = body
    write_crc(packed)
    return packed


def _level(target: Compression, config: LogConfig) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(target)
