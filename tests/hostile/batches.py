"""Batches with correct checksums and wrong content, built by hand."""

from __future__ import annotations

import time
from typing import Any

from odradek.records.batch import HEADER, HEADER_BYTES, Compression, parse_header, write_crc

RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
"""The smallest record: no key, no value, no headers."""


def forged(
    body: bytes = RECORD,
    *,
    compression: Compression = Compression.NONE,
    count: int = 1,
    **fields: Any,
) -> bytearray:
    """Return a batch around `body` with a header that has `count` records and the current time.

    `fields` replace fields of the header. The checksum covers the result.
    """
    now_ms = time.time_ns() // 1_000_000
    batch = bytearray(HEADER_BYTES + len(body))
    batch[HEADER_BYTES:] = body
    values = (0, len(batch) - 12, -1, 2, 0, compression, count - 1, now_ms, now_ms, -1, -1, -1)
    HEADER.pack_into(batch, 0, *values, count)
    crc = fields.pop("crc", None)
    HEADER.pack_into(batch, 0, *parse_header(batch)._replace(**fields))
    write_crc(batch)
    if crc is not None:
        HEADER.pack_into(batch, 0, *parse_header(batch)._replace(crc=crc))
    return batch
