"""The scan of a batch's records, compared with the whole decode of the same bytes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.records.batch import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    parse_header,
    write_varint,
)
from odradek.records.compression import Body
from odradek.records.record import CorruptRecord, Record, build_batch, iter_records
from odradek.records.scan import (
    HEADERS_A_SLICE,
    RECORDS_A_SLICE,
    TIMESTAMPS_A_SLICE,
    UNUSUAL_RECORD_COST,
    check_records,
    find_timestamp,
    is_usual,
    largest_timestamp,
)

R = TypeVar("R")

sizes = st.sampled_from([0, 1, 20, 55, 62, 63, 64, 65, 120, 200, 8_180, 8_200])
nullable = st.none() | sizes.map(lambda size: b"\x07" * size) | st.binary(max_size=4)
keys = st.one_of(st.just(b"key"), nullable)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)
deltas = st.sampled_from([0, 1, 63, 64, 8_191, 8_192, 1 << 40, -1, -64, -65])
records = st.builds(
    lambda key, value, delta, headers: Record(key, value, 1 << 41 | delta % (1 << 41), -1, headers),
    keys,
    nullable,
    deltas,
    st.just([]) | headers,
)


def outcome(work: Generator[None, None, R]) -> tuple[R | str, int]:
    """Return the value of a scan or the text of its error, and the number of slices."""
    slices = 1
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value, slices
        except CorruptRecord as error:
            return str(error), slices
        slices += 1


def check(body: bytes, count: int) -> tuple[list[int] | str, int]:
    """Return the indexes without a key or the text of the error, and the number of slices."""
    found, slices = outcome(check_records(Body(body, len(body)), count))
    return found if isinstance(found, str) else found[0], slices


def around(body: bytes, count: int) -> bytearray:
    """Return a batch of these records with a wrong CRC."""
    batch = build_batch([Record(b"", b"")], timestamp_ms=0)[:HEADER_BYTES] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    return batch


def by_decoding(body: bytes, count: int) -> list[int] | str:
    """Return the result of a check that decodes each record."""
    keyless = []
    try:
        for index, record in enumerate(iter_records(around(body, count))):
            if record.offset != index:
                return f"record {index} has the offset delta {record.offset}"
            if record.key is None:
                keyless.append(index)
    except CorruptRecord as error:
        return str(error)
    return keyless


def body_of(batch_records: Sequence[Record]) -> bytes:
    return bytes(build_batch(batch_records)[HEADER_BYTES:])


def body_at(first: int, count: int, **parts: int) -> bytes:
    """Return `count` records with offset deltas from `first` and varints of any size."""
    out = bytearray()
    for index in range(first, first + count):
        record = bytearray(1)
        write_varint(record, parts.get("timestamp_delta", 0))
        write_varint(record, index + parts.get("wrong", 0))
        for size in (parts.get("key", 3), parts.get("value", 5)):
            write_varint(record, size)
            record += b"x" * max(size, 0)
        record.append(0)
        write_varint(out, len(record))
        out += record
    return bytes(out)


alike = st.builds(
    lambda record, count, more: [record] * count + more,
    records,
    st.integers(9, 90),
    st.lists(records),
)


@given(
    batch_records=st.lists(records, min_size=1, max_size=5)
    | st.lists(records, min_size=70, max_size=70)
    | alike,
    count=st.integers(-1, 1),
    data=st.data(),
)
def test_scan_agrees_with_the_decoder_on_every_mutated_batch(
    batch_records: list[Record], count: int, data: st.DataObject
) -> None:
    body = bytearray(body_of(batch_records))
    for _ in range(data.draw(st.integers(0, 3), "mutations")):
        if not body:
            break
        near = st.integers(0, min(len(body), 40) - 1) | st.integers(0, len(body) - 1)
        at = data.draw(near, "at")
        match data.draw(st.integers(0, 4), "kind"):
            case 0:
                body[at] ^= 1 << data.draw(st.integers(0, 7))
            case 1:
                body[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]))
            case 2:
                del body[at : at + data.draw(st.integers(1, 9))]
            case 3:
                body[at:at] = data.draw(st.binary(min_size=1, max_size=9))
            case _:
                body[at] = (body[at] + data.draw(st.sampled_from([-4, -2, -1, 1, 2, 4]))) % 256
    found, _ = check(bytes(body), len(batch_records) + count)
    assert found == by_decoding(bytes(body), len(batch_records) + count)
    usual = is_usual(memoryview(around(bytes(body), len(batch_records) + count)))
    assert not usual or found == []


@given(body=st.binary(max_size=60), count=st.integers(1, 5))
@example(body=bytes([12, 0, 0, 0, 1, 1, 0]), count=1)
def test_scan_agrees_with_the_decoder_on_noise(body: bytes, count: int) -> None:
    found, _ = check(body, count)
    assert found == by_decoding(body, count)
    assert not is_usual(memoryview(around(body, count))) or found == []


@pytest.mark.parametrize("timestamp_delta", [0, 63, 64, 8_191, 8_192, -1])
@pytest.mark.parametrize("key", [-1, 0, 63, 64])
@pytest.mark.parametrize("value", [-1, -2, 0, 3, 63, 64, 8_191, 8_192])
@pytest.mark.parametrize("count", [2, 66])
def test_each_size_of_a_varint_is_read(
    timestamp_delta: int, key: int, value: int, count: int
) -> None:
    body = body_at(0, count, timestamp_delta=timestamp_delta, key=key, value=value)
    expected = list(range(count)) if key < 0 else []
    assert check(body, count)[0] == expected
    for wrong in (-1, 1, 64):
        body = body_at(0, count, timestamp_delta=timestamp_delta, key=key, wrong=wrong)
        found, _ = check(body, count)
        assert found == f"record 0 has the offset delta {wrong}" == by_decoding(body, count)


def test_a_small_batch_with_keys_is_usual_for_all_sizes_of_values() -> None:
    batch_records = [Record(b"key", b"v" * size, 1 << 41) for size in (0, 63, 64, 200, 8_100)]
    batch_records.append(Record(b"", None, 1 << 41))
    batch = build_batch(batch_records)
    assert is_usual(memoryview(batch))
    for change in ({11: 1}, {22: 1}, {60: 1}, {60: 0}, {57: 0xFF}, {HEADER_BYTES + 3: 1}):
        changed = bytearray(batch)
        for at, bits in change.items():
            changed[at] = bits if bits != 1 else changed[at] ^ 1
        assert not is_usual(memoryview(changed)), change
    assert not is_usual(memoryview(batch)[:-1])
    assert not is_usual(memoryview(batch + b"x"))
    assert not is_usual(memoryview(build_batch([Record(None, b"v", 1)])))
    large = build_batch([Record(b"k", b"v", 1)] * (RECORDS_A_SLICE + 1))
    assert not is_usual(memoryview(large))


@pytest.mark.parametrize(("count", "wrong"), [(30, 15), (30, 29), (100, 63), (100, 64), (100, 80)])
@pytest.mark.parametrize("value", [3, 70])
@pytest.mark.parametrize("step", [1, 100])
def test_every_bit_of_a_record_in_a_run_is_checked(
    count: int, wrong: int, value: int, step: int
) -> None:
    batch_records = [Record(b"key", b"v" * value, (1 << 41) + at * step) for at in range(count)]
    body = bytearray(body_of(batch_records))
    start = len(body_of(batch_records[:wrong]))
    end = len(body_of(batch_records[: wrong + 1]))
    assert check(bytes(body), count)[0] == []
    for at in range(start, end):
        for bit in range(8):
            body[at] ^= 1 << bit
            assert check(bytes(body), count)[0] == by_decoding(bytes(body), count), (at, bit)
            body[at] ^= 1 << bit


def test_offset_deltas_of_three_bytes_are_read_and_compared() -> None:
    count = 16_400
    body = body_at(0, count, key=-1)
    assert check(body, count)[0] == list(range(count))
    for at in (63, 64, 8_191, 8_192, 16_383, 16_384):
        body = body_at(0, at) + body_at(at + 1, 1)
        found, _ = check(body, at + 1)
        assert found == f"record {at} has the offset delta {at + 1}"


def test_a_slice_is_bounded_by_the_number_of_its_records() -> None:
    body = body_at(0, 5 * RECORDS_A_SLICE)
    found, slices = check(body, 5 * RECORDS_A_SLICE)
    assert (found, slices) == ([], 5)


def test_a_slice_is_bounded_by_the_number_of_its_unusual_records() -> None:
    batch_records = [Record(b"k", b"v", 1, headers=[("a", b"b")])] * 900
    body = body_of(batch_records)
    found, slices = check(body, 900)
    assert found == []
    assert slices >= 900 * UNUSUAL_RECORD_COST // RECORDS_A_SLICE


def test_a_slice_is_bounded_when_usual_and_unusual_records_alternate() -> None:
    batch_records = (
        [Record(b"k", b"v", 1)] * 10 + [Record(b"k", b"v", 1, headers=[("a", b"b")])]
    ) * 500
    body = body_of(batch_records)
    found, slices = check(body, 5_500)
    assert found == []
    assert slices >= 5_000 // RECORDS_A_SLICE + 500 * UNUSUAL_RECORD_COST // RECORDS_A_SLICE - 1


def test_a_slice_ends_within_a_record_of_very_many_headers() -> None:
    body = body_of([Record(b"k", b"v", 1, headers=[("a", b"b")] * 3_000)])
    found, slices = check(body, 1)
    assert found == []
    assert slices >= 3_000 // HEADERS_A_SLICE


timed = st.builds(
    lambda key, value, delta, headers: Record(key, value, (1 << 41) + delta, -1, headers),
    keys,
    nullable,
    deltas | st.sampled_from([1 << 20, 1 << 21, 1 << 27, 1 << 28, 100, 101, 8_000]),
    st.just([]) | headers,
)


def timed_batch(
    batch_records: Sequence[Record], append_time: bool
) -> tuple[bytearray, BatchHeader]:
    batch = build_batch(batch_records, base_offset=1_000)
    if append_time:
        batch[22] |= TIMESTAMP_TYPE_MASK
    return batch, parse_header(batch)


@given(
    batch_records=st.lists(timed, min_size=1, max_size=70),
    append_time=st.booleans(),
    start=st.integers(999, 1_071),
    data=st.data(),
)
def test_timestamp_search_agrees_with_the_decoded_records(
    batch_records: list[Record], append_time: bool, start: int, data: st.DataObject
) -> None:
    batch, header = timed_batch(batch_records, append_time)
    decoded = [(each.timestamp, each.offset) for each in iter_records(batch)]
    near = st.sampled_from([timestamp for timestamp, _ in decoded])
    target = data.draw(near) + data.draw(st.integers(-1, 1))
    body = Body(memoryview(batch)[HEADER_BYTES:], len(batch) - HEADER_BYTES)
    expected = next((each for each in decoded if each[0] >= target and each[1] >= start), None)
    assert outcome(find_timestamp(body, header, target, start, len(batch_records)))[0] == expected
    largest = max((each[0] for each in decoded if each[1] >= start), default=None)
    assert outcome(largest_timestamp(body, header, start))[0] == largest


@given(noise=st.binary(max_size=60), target=st.integers(-3, 1 << 30), count=st.integers(1, 9))
def test_search_for_a_timestamp_in_noise_finds_something_or_reports_corruption(
    noise: bytes, target: int, count: int
) -> None:
    _, header = timed_batch([Record(b"", b"", 0)], False)
    header = header._replace(record_count=count)
    for work in (
        find_timestamp(Body(noise, len(noise)), header, target, 0, count),
        largest_timestamp(Body(noise, len(noise)), header, 0),
    ):
        found, _ = outcome(work)
        assert found is None or isinstance(found, tuple | str | int)


def test_a_slice_of_a_search_is_bounded_by_the_number_of_its_records() -> None:
    _, header = timed_batch([Record(b"", b"", 0)], False)
    for delta, cost in ((1, 1), (1 << 40, UNUSUAL_RECORD_COST)):
        count = 3 * TIMESTAMPS_A_SLICE
        body = body_at(0, count, timestamp_delta=delta)
        found, slices = outcome(find_timestamp(Body(body, len(body)), header, 1 << 50, 0, count))
        assert found is None
        assert slices >= cost * count // (TIMESTAMPS_A_SLICE + UNUSUAL_RECORD_COST)
