"""Batches are built, written and read back, also by another client."""

from __future__ import annotations

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.batch import (
    INT32_MAX,
    Compression,
    crc_is_valid,
    increment_sequence,
    parse_header,
    set_timestamp_type,
    write_varint,
)
from odradek.records.record import (
    CorruptRecord,
    Record,
    build_batch,
    iter_batches,
    iter_records,
    read_varint,
)

CODECS = list(Compression)
optional_bytes = st.none() | st.binary(max_size=200)
records = st.lists(
    st.builds(
        Record,
        key=optional_bytes,
        value=optional_bytes,
        timestamp=st.integers(0, 2**45),
        headers=st.lists(st.tuples(st.text(max_size=20), optional_bytes), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


@given(records=records, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**62))
def test_records_read_back_as_written(
    records: list[Record], codec: Compression, base_offset: int
) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    found = list(iter_records(batch))
    expected = [
        Record(r.key, r.value, r.timestamp, base_offset + at, r.headers)
        for at, r in enumerate(records)
    ]
    assert found == expected
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert crc_is_valid(memoryview(batch))


@pytest.mark.parametrize("codec", CODECS)
def test_another_client_reads_every_compression(codec: Compression) -> None:
    values = [b"value %d " % at * 40 for at in range(2_000)]
    batch = bytes(
        build_batch([Record(b"k", value) for value in values], timestamp_ms=5, compression=codec)
    )
    other = AioRecords(batch).next_batch()
    assert other.validate_crc()
    assert [bytes(record.value) for record in other] == values


@given(st.integers(-(2**63), 2**63 - 1))
def test_varint_round_trip(number: int) -> None:
    out = bytearray()
    write_varint(out, number)
    assert read_varint(bytes(out), 0, len(out)) == (number, len(out))


@given(records=records, codec=st.sampled_from(CODECS), data=st.data())
def test_damaged_body_raises_corrupt_record_or_yields_other_records(
    records: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = build_batch(records, compression=codec)
    position = data.draw(st.integers(57, len(batch) - 1), label="position")
    batch[position] ^= data.draw(st.integers(1, 255), label="flip")
    try:
        for record in iter_records(batch, 10**6):
            assert isinstance(record, Record)
    except CorruptRecord:
        return


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_corrupt_record_or_yield_records(noise: bytes) -> None:
    try:
        list(iter_records(noise, 10**5))
    except CorruptRecord:
        return


def test_batches_are_split_and_an_incomplete_last_one_is_ignored() -> None:
    one, two = build_batch([Record(None, b"1")]), build_batch([Record(None, b"22")])
    data = bytes(one + two)
    assert [bytes(b) for b in iter_batches(data)] == [one, two]
    for end in range(len(one), len(data)):
        assert [bytes(b) for b in iter_batches(data[:end])] == [one]


def test_timestamp_type_is_set_in_place_with_a_new_crc() -> None:
    batch = build_batch([Record(None, b"1", 5), Record(None, b"2", 6)])
    set_timestamp_type(batch, parse_header(batch).attributes | 8, 99)
    assert crc_is_valid(memoryview(batch))
    assert [record.timestamp for record in iter_records(batch)] == [99, 99]


def test_sequences_wrap_after_the_largest() -> None:
    assert increment_sequence(INT32_MAX - 1, 1) == INT32_MAX
    assert increment_sequence(INT32_MAX, 1) == 0
    assert increment_sequence(INT32_MAX - 1, 4) == 2


def test_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])
