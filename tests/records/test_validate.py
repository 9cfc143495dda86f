"""Each invalid value of a header field, and Kafka's error for it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import write_crc
from odradek.records.record import Record, build_batch
from odradek.records.validate import BatchRules, validate_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = BatchRules(LogConfig())


def good_batch(**options: int) -> bytearray:
    records = [Record(b"k", b"v" * 100) for _ in range(3)]
    return build_batch(records, timestamp_ms=NOW_MS, **options)


def code_of(batch: bytes | bytearray, rules: BatchRules = RULES) -> ErrorCode:
    try:
        validate_batch(memoryview(batch), rules, NOW_MS)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def with_field(position: int, layout: str, value: int, *, summed: bool = True) -> bytearray:
    batch = good_batch()
    struct.pack_into(layout, batch, position, value)
    if summed:
        write_crc(batch)
    return batch


def two_batches() -> bytearray:
    return good_batch() + good_batch()


CASES: list[tuple[str, Callable[[], bytearray], ErrorCode]] = [
    ("good", good_batch, ErrorCode.NONE),
    ("empty", bytearray, ErrorCode.INVALID_RECORD),
    ("no whole header", lambda: good_batch()[:40], ErrorCode.INVALID_RECORD),
    ("torn", lambda: good_batch()[:-1], ErrorCode.INVALID_RECORD),
    ("two batches", two_batches, ErrorCode.INVALID_RECORD),
    ("garbage behind", lambda: good_batch() + b"\0" * 30, ErrorCode.CORRUPT_MESSAGE),
    ("a little garbage behind", lambda: good_batch() + b"\0", ErrorCode.NONE),
    ("torn second batch", lambda: good_batch() + good_batch()[:-1], ErrorCode.NONE),
    ("garbage magic behind", lambda: good_batch() + b"\1" * 17, ErrorCode.NONE),
    ("length -1", lambda: with_field(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    ("length 0", lambda: with_field(8, ">i", 0), ErrorCode.CORRUPT_MESSAGE),
    ("length huge", lambda: with_field(8, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    ("magic 0", lambda: with_field(16, ">b", 0), ErrorCode.INVALID_RECORD),
    ("magic 1", lambda: with_field(16, ">b", 1), ErrorCode.INVALID_RECORD),
    ("magic 3", lambda: with_field(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    ("magic -1", lambda: with_field(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
    ("base offset 1", lambda: with_field(0, ">q", 1), ErrorCode.INVALID_RECORD),
    ("crc", lambda: with_field(17, ">I", 1, summed=False), ErrorCode.CORRUPT_MESSAGE),
    ("body", lambda: with_field(90, ">b", 1, summed=False), ErrorCode.CORRUPT_MESSAGE),
    ("count 0", lambda: with_field(57, ">i", 0), ErrorCode.INVALID_RECORD),
    ("count -1", lambda: with_field(57, ">i", -1), ErrorCode.INVALID_RECORD),
    ("count larger", lambda: with_field(57, ">i", 4), ErrorCode.INVALID_RECORD),
    ("offset delta smaller", lambda: with_field(23, ">i", 1), ErrorCode.INVALID_RECORD),
    ("offset delta -1", lambda: with_field(23, ">i", -1), ErrorCode.INVALID_RECORD),
    ("control batch", lambda: with_field(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    (
        "transactional",
        lambda: with_field(21, ">h", 0x10),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    ("compression 5", lambda: with_field(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("compression 7", lambda: with_field(21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too new", lambda: with_field(35, ">q", NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
    ("new enough", lambda: with_field(35, ">q", NOW_MS + HOUR_MS), ErrorCode.NONE),
    ("no sequence", lambda: with_field(43, ">q", 7), ErrorCode.INVALID_RECORD),
    ("log append time", lambda: with_field(21, ">h", 8), ErrorCode.NONE),
]


@pytest.mark.parametrize(("name", "make", "code"), CASES, ids=[case[0] for case in CASES])
def test_batch_gets_kafkas_error(name: str, make: Callable[[], bytearray], code: ErrorCode) -> None:
    assert code_of(make()) is code, name


def test_incomplete_batch_behind_the_batch_is_cut_off() -> None:
    batch = good_batch()
    for rest in (b"x", batch[:20], batch[:-1]):
        cut, header = validate_batch(memoryview(batch + rest), RULES, NOW_MS)
        assert bytes(cut) == batch
        assert header[1] + 12 == len(batch)


def test_too_large_batch_is_refused_before_its_crc_is_checked() -> None:
    rules = BatchRules(LogConfig(max_message_bytes=300))
    batch = good_batch()
    assert len(batch) > 300
    batch[17] ^= 1
    assert code_of(batch, rules) is ErrorCode.MESSAGE_TOO_LARGE


def test_timestamps_before_the_limit_are_refused_and_none_is_not() -> None:
    rules = BatchRules(LogConfig(message_timestamp_before_max_ms=1_000))
    old = build_batch([Record(None, b"x", NOW_MS - 1_001), Record(None, b"x", NOW_MS)])
    none = build_batch([Record(None, b"x")])
    assert code_of(old, rules) is ErrorCode.INVALID_TIMESTAMP
    assert code_of(none, rules) is ErrorCode.NONE


def test_log_append_time_topic_ignores_timestamps_but_not_the_type() -> None:
    rules = BatchRules(LogConfig(message_timestamp_type="LogAppendTime"))
    assert code_of(with_field(35, ">q", NOW_MS * 2), rules) is ErrorCode.NONE
    assert code_of(with_field(21, ">h", 8), rules) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("count", "code"), [(3, ErrorCode.NONE), (2**31 - 1, ErrorCode.INVALID_RECORD)]
)
def test_more_records_than_fit_are_refused(count: int, code: ErrorCode) -> None:
    batch = build_batch([Record(None, None) for _ in range(3)], timestamp_ms=NOW_MS)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch)
    assert code_of(batch) is code


@given(data=st.data())
def test_a_flipped_bit_covered_by_the_crc_is_refused(data: st.DataObject) -> None:
    batch = good_batch(producer_id=3, producer_epoch=0, base_sequence=0)
    position = data.draw(st.integers(16, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    assert code_of(batch) is not ErrorCode.NONE


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_an_error_code(noise: bytes) -> None:
    assert code_of(bytearray(noise)) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
