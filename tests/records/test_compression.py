"""The four framings: round trips, framings of other writers, bombs and broken streams."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import Compression, crc_is_valid, parse_header, write_crc
from odradek.records.compression import CorruptCompression, compress, decompress
from odradek.records.record import Record, build_batch, iter_records
from odradek.records.validate import Writable
from odradek.records.validate_body import open_batch
from tests.helpers.work import run_here

PACKED = [codec for codec in Compression if codec is not Compression.NONE]


@given(data=st.binary(max_size=5_000), repeat=st.integers(1, 60), codec=st.sampled_from(PACKED))
def test_round_trip(data: bytes, repeat: int, codec: Compression) -> None:
    plain = data * repeat
    assert decompress(codec, compress(codec, plain)) == plain


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_bomb_is_refused_at_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(5_000_000))
    assert len(decompress(codec, bomb, 5_000_000)) == 5_000_000
    with pytest.raises(CorruptCompression):
        decompress(codec, bomb, 4_999_999)


@given(codec=st.sampled_from(PACKED), noise=st.binary(max_size=200))
def test_noise_is_corrupt_or_unpacks_within_the_limit(codec: Compression, noise: bytes) -> None:
    try:
        assert len(decompress(codec, noise, 10_000)) <= 10_000
    except CorruptCompression:
        return


@given(codec=st.sampled_from(PACKED), data=st.binary(min_size=100, max_size=1_000), cut=st.data())
def test_truncated_stream_is_corrupt_or_shorter(
    codec: Compression, data: bytes, cut: st.DataObject
) -> None:
    packed = compress(codec, data)
    end = cut.draw(st.integers(0, len(packed) - 1))
    try:
        assert len(decompress(codec, packed[:end])) <= len(data)
    except CorruptCompression:
        return


def test_framings_of_other_writers_are_read() -> None:
    data = b"something to pack " * 1_000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(data))) == data
    assert decompress(Compression.GZIP, gzip.compress(data[:5]) + gzip.compress(data[5:])) == data


def recompress(batch: bytearray, config: LogConfig, now_ms: int) -> Writable:
    return run_here(open_batch(batch, config, now_ms, checked=False))


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", list(Compression))
def test_recompressed_batch_has_the_same_records(source: Compression, target: str) -> None:
    config = LogConfig(compression_type=target)
    records = [Record(b"k", b"value %d" % at * 20, 1_000 + at) for at in range(100)]
    batch = build_batch(
        records, compression=source, producer_id=5, producer_epoch=1, base_sequence=9
    )
    changed = recompress(batch, config, 2_000)
    header = parse_header(changed)
    assert crc_is_valid(memoryview(changed)) and header.size_bytes == len(changed)
    assert list(iter_records(changed)) == list(iter_records(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)
    assert run_here(open_batch(bytearray(changed), config, 2_000, checked=True)) == changed
    same = target == ("uncompressed" if source is Compression.NONE else source.name.lower())
    assert (changed is batch) == same


def test_batch_that_cannot_be_unpacked_is_corrupt() -> None:
    batch = build_batch([Record(None, b"x" * 1_000)], timestamp_ms=1, compression=Compression.ZSTD)
    batch[70] ^= 0xFF
    write_crc(batch)
    with pytest.raises(KafkaError) as caught:
        recompress(batch, LogConfig(compression_type="gzip"), 2)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_batch_with_another_number_of_records_is_invalid(count: int, checked: bool) -> None:
    batch = build_batch([Record(None, b"x" * 50)] * 3, timestamp_ms=1)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch)
    with pytest.raises(KafkaError) as caught:
        run_here(open_batch(batch, LogConfig(compression_type="gzip"), 2, checked=checked))
    assert caught.value.code is ErrorCode.INVALID_RECORD
