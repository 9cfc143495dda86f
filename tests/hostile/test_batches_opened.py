"""Invalid content of packed batches that the broker opens: bounded time, and a response."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import cramjam
import pytest

from odradek.config.log_config import LogConfig
from odradek.log import timestamps
from odradek.log.unified_log import UnifiedLog
from odradek.records import record
from odradek.records.batch import Compression
from odradek.records.compression import (
    Body,
    CorruptCompression,
    compress,
    decompress,
    unpack,
)
from tests.hostile.batches import RECORD, forged
from tests.log.builders import (
    NOW_MS,
    batch_of,
    offset_for_timestamp,
    offset_of_max_timestamp,
    open_log,
    open_manager,
)

PACKED = [each for each in Compression if each is not Compression.NONE]
TARGET = NOW_MS + 500


@pytest.fixture
def log(tmp_path: Path) -> UnifiedLog:
    return open_log(open_manager(tmp_path, LogConfig()))


def append(log: UnifiedLog, batch: bytearray) -> None:
    info = log.append_as_leader(memoryview(batch), 0, now_ms=NOW_MS)
    log.advance_high_watermark(info.last_offset + 1)


def lying(count: int = 3, body: bytes = RECORD * 3, **fields: Any) -> bytearray:
    """Return a batch whose header has a record of time TARGET. All its records are older."""
    return forged(body, count=count, base_timestamp=NOW_MS, max_timestamp=TARGET, **fields)


def test_a_header_timestamp_that_no_record_has_ends_the_search(
    log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def counted(*arguments: Any) -> Body:
        opened.append(1)
        return unpack(*arguments)

    monkeypatch.setattr("odradek.log.timestamps.unpack", counted)
    append(log, batch_of([b"good"]))
    for _ in range(20):
        append(log, lying())
    found = offset_for_timestamp(log, TARGET)
    assert found is not None and found[:2] == (TARGET, 1)
    assert offset_of_max_timestamp(log) == found
    assert len(opened) == 2


def test_the_batch_that_holds_the_log_start_may_have_its_match_before_it(log: UnifiedLog) -> None:
    append(log, batch_of([b"a", b"b"], timestamps=[TARGET, NOW_MS]))
    append(log, batch_of([b"c"], timestamp_ms=TARGET))
    log.delete_records(1)
    found = offset_for_timestamp(log, TARGET)
    assert found is not None and found[:2] == (TARGET, 2)


def test_a_batch_of_too_many_records_is_represented_by_its_header(
    log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timestamps, "RECORDS_MAX", 10)
    append(log, batch_of([b"x"] * 12, timestamps=[NOW_MS] * 11 + [TARGET]))
    found = offset_for_timestamp(log, TARGET)
    assert found is not None and found[:2] == (TARGET, 0)


def test_an_offset_outside_of_the_batch_is_ignored(log: UnifiedLog) -> None:
    append(log, batch_of([b"good"]))
    far = bytes([12, 0, 0, 0x7E, 1, 1, 0])  # offset delta 63
    append(log, forged(far, base_timestamp=TARGET, max_timestamp=TARGET))
    append(log, batch_of([b"good"] * 70))
    found = offset_for_timestamp(log, TARGET)
    assert found is not None and found[:2] == (TARGET, 1)


@pytest.mark.parametrize("compression", PACKED, ids=lambda each: each.name)
def test_a_decompression_bomb_is_represented_by_its_header(
    log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, compression: Compression
) -> None:
    monkeypatch.setattr(timestamps, "UNPACKED_BYTES_MAX", 1_000_000)
    body = compress(compression, bytes(1_000_001))
    append(log, lying(1000, body, attributes=int(compression)))
    found = offset_for_timestamp(log, TARGET)
    assert found is not None and found[:2] == (TARGET, 0)


@pytest.mark.parametrize("compression", PACKED, ids=lambda each: each.name)
def test_a_frame_broken_at_any_byte_is_corrupt_or_capped(compression: Compression) -> None:
    good = compress(compression, RECORD * 100)
    for at in range(len(good)):
        for broken in (good[:at], good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]):
            batch = forged(broken, compression=compression, count=100)
            try:
                got = list(record.iter_records(batch, 10_000))
            except record.CorruptRecord:
                continue
            assert len(got) == 100


def test_many_empty_gzip_members_do_not_copy_the_rest_each_time() -> None:
    """zlib copied all bytes behind each member's end, if it got the whole stream: 5 GB for this
    one.
    """
    fed: list[int] = []
    unpack = cramjam.gzip.decompress_into

    def counting(data: bytes, out: memoryview) -> int:
        fed.append(len(data))
        return int(unpack(data, out))

    members = gzip.compress(b"", mtime=0) * 5_000 + gzip.compress(b"end")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cramjam.gzip, "decompress_into", counting)
        assert decompress(Compression.GZIP, members) == b"end"
    assert fed == [len(members)]


def test_a_gzip_stream_longer_than_a_piece_is_read_whole() -> None:
    data = bytes(range(256)) * 5_000
    stored = gzip.compress(data, 0) + gzip.compress(data, 1)
    assert decompress(Compression.GZIP, stored) == data * 2
    with pytest.raises(CorruptCompression):
        decompress(Compression.GZIP, stored[:-1])
