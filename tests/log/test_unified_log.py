"""Appends, reads and rolls of one log without faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.log.segments.log_segment import INDEX_OVERHEAD_BYTES
from odradek.log.truncation import truncate_to
from odradek.records.batch import INT32_MAX, crc_is_valid, parse_header
from odradek.records.record import iter_batches, iter_records
from tests.helpers.call_count import count_calls
from tests.log.builders import (
    NOW_MS,
    TP,
    append,
    batch_of,
    open_log,
    open_manager,
    read_all,
    values_of,
)

SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=100)


@pytest.fixture
def manager(tmp_path: Path):
    manager = open_manager(tmp_path, SMALL)
    yield manager
    manager.close()


def test_offsets_are_consecutive_and_in_the_header(manager) -> None:
    log = open_log(manager)
    first, second = append(log, [b"a", b"b"], epoch=3), append(log, [b"c"], epoch=4)
    assert (first.first_offset, first.last_offset) == (0, 1)
    assert (second.first_offset, second.last_offset) == (2, 2)
    info = log.read(0, 10_000, log.log_end_offset, min_one_message=True)
    assert info.region is not None
    batches = list(iter_batches(info.region.read()))
    headers = [parse_header(batch) for batch in batches]
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 3), (2, 4)]
    assert all(crc_is_valid(batch) for batch in batches)


def test_reads_at_every_offset_also_in_mid_batch_and_across_segments(manager) -> None:
    log = open_log(manager)
    values = [b"%d" % i * (1 + i % 40) for i in range(300)]
    for start in range(0, 300, 7):
        append(log, values[start : start + 7])
    assert len(log.segments) > 3
    for offset in range(300):
        first = read_all(log, offset, max_bytes=150)[0]
        assert (first.offset, first.value) == (offset, values[offset])
    assert values_of(log) == values


def test_first_batch_is_whole_and_the_last_is_cut_at_max_bytes(manager) -> None:
    log = open_log(manager)
    for _ in range(3):
        append(log, [b"x" * 200])
    size = log.segments.active.size // 3
    whole = log.read(0, 1, 3, min_one_message=True).region
    cut = log.read(1, size + 10, 3, min_one_message=True).region
    refused = log.read(0, 1, 3, min_one_message=False)
    assert whole is not None and len(whole) == size
    assert cut is not None and (cut.position, len(cut)) == (size, size + 10)
    assert refused.region is not None and refused.first_batch_cut


def test_no_record_at_or_above_max_offset_is_read(manager) -> None:
    log = open_log(manager)
    for _ in range(40):
        append(log, [b"x" * 100, b"y"])
    for high_watermark in (0, 2, 20, 40, 60, 78):
        info = log.read(0, 10**6, high_watermark, min_one_message=True)
        end = 0
        while info.region is not None:
            end = parse_header(list(iter_batches(info.region.read()))[-1]).last_offset + 1
            assert end <= high_watermark
            info = log.read(end, 10**6, high_watermark, min_one_message=True)
        assert end == high_watermark


def test_offset_out_of_range_is_refused_and_the_end_is_not(manager) -> None:
    log = open_log(manager)
    append(log, [b"a"])
    assert log.read(1, 100, 1, min_one_message=True).region is None
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 1, min_one_message=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_at_the_end_continues_after_a_roll_and_a_truncation(manager) -> None:
    log = open_log(manager)
    append(log, [b"a"])
    assert values_of(log) == [b"a"]
    log.roll(NOW_MS)
    append(log, [b"b"])
    assert values_of(log, 1) == [b"b"]
    truncate_to(log, 1)
    append(log, [b"longer than b"])
    append(log, [b"c"])
    assert values_of(log, 1) == [b"longer than b", b"c"]


def test_segment_rolls_by_size_by_record_time_and_by_a_full_index(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=10_000, segment_ms=1_000, index_interval_bytes=0)
    manager = open_manager(tmp_path, config)
    log = open_log(manager)
    append(log, [b"a"], timestamp_ms=NOW_MS)
    append(log, [b"b"], timestamp_ms=NOW_MS + 1_000)
    assert log.segments.bases == [0]
    append(log, [b"c"], timestamp_ms=NOW_MS + 1_001)
    assert log.segments.bases == [0, 2]
    append(log, [b"d" * 9_900])
    assert log.segments.bases == [0, 2, 3]
    log.update_config(
        LogConfig(segment_bytes=10**6, segment_index_bytes=60, index_interval_bytes=0)
    )
    while len(log.segments) == 3:
        append(log, [b"e"])
    assert len(log.segments[2].indexes()[0]) == 60 // 8
    manager.close()


def test_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(segment_ms=1_000))
    log = open_log(manager)
    append(log, [b"a"], timestamp_ms=-1)
    append(log, [b"b"], timestamp_ms=-1, now_ms=NOW_MS + 1_000)
    append(log, [b"c"], timestamp_ms=-1, now_ms=NOW_MS + 1_001)
    assert log.segments.bases == [0, 2]
    manager.close()


def test_segment_rolls_before_an_offset_that_no_index_entry_can_hold(manager) -> None:
    log = open_log(manager)
    append(log, [b"a"])
    log.log_end_offset = INT32_MAX + 1
    append(log, [b"b"])
    assert log.segments.bases == [0, INT32_MAX + 1]
    assert read_all(log, INT32_MAX + 1)[0].value == b"b"


def test_too_large_batches_have_kafkas_errors(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(max_message_bytes=500, segment_bytes=400))
    log = open_log(manager)
    for size, code in ((600, ErrorCode.MESSAGE_TOO_LARGE), (400, ErrorCode.RECORD_LIST_TOO_LARGE)):
        with pytest.raises(KafkaError) as caught:
            append(log, [b"x" * size])
        assert caught.value.code is code
    assert log.log_end_offset == 0
    manager.close()


def test_log_append_time_is_stamped_with_a_valid_crc(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    log = open_log(manager)
    info = append(log, [b"a", b"b"], timestamp_ms=17, now_ms=NOW_MS + 5)
    assert info.log_append_time_ms == NOW_MS + 5
    assert [record.timestamp for record in read_all(log)] == [NOW_MS + 5] * 2
    region = log.read(0, 1000, 2, min_one_message=True).region
    assert region is not None and crc_is_valid(memoryview(region.read()))
    manager.close()


def test_duplicate_has_the_original_offsets_and_is_not_appended(manager) -> None:
    log = open_log(manager)
    for sequence in range(0, 12, 2):
        append(log, [b"a", b"b"], producer_id=9, producer_epoch=0, base_sequence=sequence)
    end = log.log_end_offset
    for sequence in range(2, 12, 2):
        info = append(log, [b"a", b"b"], producer_id=9, producer_epoch=0, base_sequence=sequence)
        assert (info.duplicate, info.first_offset, info.last_offset) == (
            True,
            sequence,
            sequence + 1,
        )
    assert log.log_end_offset == end
    with pytest.raises(KafkaError) as caught:
        append(log, [b"a", b"b"], producer_id=9, producer_epoch=0, base_sequence=0)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_empty_log_has_no_files(tmp_path: Path, manager) -> None:
    open_log(manager)
    assert not (tmp_path / str(TP)).exists()


@pytest.mark.parametrize(("producer_id", "calls"), [(-1, 9), (7, 12)])
def test_an_append_makes_the_same_number_of_calls_for_any_batch(
    tmp_path: Path, producer_id: int, calls: int
) -> None:
    """Raise the numbers only with a reason written here: each call costs every produce request."""
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    options = {"producer_id": producer_id, "producer_epoch": min(producer_id, 0)}
    append(log, [b"x"] * 50, base_sequence=min(producer_id, 0), **options)
    sequence = 50
    for count in (1, 50, 5_000):
        batch = batch_of([b"x" * 20] * count, base_sequence=sequence, **options)
        view = memoryview(batch)
        counted = count_calls(lambda view=view: log.append_as_leader(view, 0, now_ms=NOW_MS))
        assert counted.total == calls, str(counted)
        sequence += count if producer_id >= 0 else 0
    manager.close()


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    interval=st.sampled_from([0, 1, 100, 4096]),
    segment_bytes=st.sampled_from([1_400, 3_000, 10**6]),
)
def test_every_offset_is_found_for_any_index_interval(
    tmp_path_factory, sizes: list[int], interval: int, segment_bytes: int
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    manager = open_manager(tmp_path_factory.mktemp("log"), config)
    log = open_log(manager)
    values = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    for start in range(0, len(values), 3):
        append(log, values[start : start + 3])
    for offset in range(len(values)):
        assert read_all(log, offset, max_bytes=1)[0].value == values[offset]
    manager.close()


def test_indexes_of_inactive_segments_stay_within_their_memory_and_are_reloaded(
    tmp_path: Path,
) -> None:
    config = replace(LogConfig(), segment_bytes=300, index_interval_bytes=0)
    manager = open_manager(tmp_path, config)
    log = open_log(manager)
    manager.cache.bytes_max = 4 * INDEX_OVERHEAD_BYTES
    for number in range(40):
        append(log, [b"%03d" % number])
    assert len(log.segments) > 8
    for offset in (0, 20, 39, 1, 38):
        found = log.read(offset, 1, log.log_end_offset, min_one_message=True)
        assert found.region is not None
        assert next(iter_records(memoryview(found.region.read()))).value == b"%03d" % offset
        assert 1 <= len(manager.cache) <= 3
    manager.close()


def test_the_high_watermark_only_advances_and_never_passes_the_end(tmp_path: Path) -> None:
    log = open_log(manager := open_manager(tmp_path, LogConfig(flush_messages=3)))
    batches = [memoryview(batch_of([b"%d" % number])) for number in range(4)]
    log.append_as_leader(batches[0], 0, now_ms=NOW_MS)
    assert log.high_watermark == 0, "an append alone commits nothing"
    log.append_as_leader(batches[1], 0, now_ms=NOW_MS, commit=True)
    assert log.high_watermark == 2
    assert log.append_as_leader(batches[2], 0, now_ms=NOW_MS, commit=True).must_flush
    assert log.high_watermark == 2, "it must be flushed first"
    assert log.advance_high_watermark(9)
    assert log.high_watermark == log.log_end_offset == 3
    assert not log.advance_high_watermark(1)
    truncate_to(log, 1)
    assert log.high_watermark == 1
    manager.close()
