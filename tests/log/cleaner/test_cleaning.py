"""The result of a compaction: values, tombstones, headers, gaps, producers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.log.cleaner import batch_filter
from odradek.log.cleaner.batch_filter import DELETE_HORIZON_MASK
from odradek.log.cleaner.cleaning import CorruptLog, Throttle
from odradek.log.cleaner.selection import Budget
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import BatchHeader, Compression
from odradek.records.record import Record, build_batch
from tests.log.builders import (
    NOW_MS,
    TP,
    offset_for_timestamp,
    offset_of_max_timestamp,
    open_log,
    open_manager,
)
from tests.log.cleaner.running import (
    append_pairs,
    cleaning_of,
    compact,
    pairs_of,
    stored,
    to_clean,
)

COMPACT = LogConfig(cleanup_compact=True, cleanup_delete=False, delete_retention_ms=1_000)


def headers(log: UnifiedLog) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in segment.headers(0)]


def reopened(manager: LogManager, tmp_path: Path) -> tuple[LogManager, UnifiedLog]:
    manager.close()
    again = open_manager(tmp_path, COMPACT)
    log = again.get(TP)
    assert log is not None
    return again, log


def test_the_newest_value_of_each_key_stays_at_its_offset(manager, log) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    append_pairs(log, [(b"a", b"2"), (b"d", b"1")])
    done = compact(manager, log)
    assert pairs_of(log) == [
        (1, b"b", b"1"),
        (2, b"c", b"1"),
        (3, b"a", b"2"),
        (4, b"d", b"1"),
    ]
    assert done.end_offset == 5
    assert manager.cleaned_offset(log) == 5


def test_the_active_segment_is_never_touched(manager, log) -> None:
    append_pairs(log, [(b"a", b"1")])
    append_pairs(log, [(b"a", b"2")])
    assert to_clean(manager, log) is None
    log.roll(NOW_MS)
    append_pairs(log, [(b"a", b"3")])
    compact(manager, log, roll=False)
    assert pairs_of(log) == [(1, b"a", b"2"), (2, b"a", b"3")]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_keeps_its_compression_and_its_header(manager, log, compression) -> None:
    append_pairs(log, [(b"x", b"1"), (b"a", b"1"), (b"b", b"1")], compression=compression)
    before = headers(log)[0]
    append_pairs(log, [(b"x", b"2")], compression=compression)
    compact(manager, log)
    after = headers(log)[0]
    assert after.compression == compression
    assert after.record_count == 2
    for name in ("base_offset", "last_offset_delta", "partition_leader_epoch", "base_sequence"):
        assert getattr(after, name) == getattr(before, name)
    assert pairs_of(log) == [(1, b"a", b"1"), (2, b"b", b"1"), (3, b"x", b"2")]


def test_a_batch_with_only_kept_records_is_copied_byte_for_byte(manager, log) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")], compression=Compression.ZSTD)
    before = log.segments[0].read_batch(0, log.segments[0].size)
    compact(manager, log)
    assert log.segments[0].read_batch(0, len(before)) == before


def test_a_tombstone_stays_until_its_horizon_and_hides_older_records(manager, log) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")])
    append_pairs(log, [(b"a", None)], timestamp_ms=NOW_MS - 77)
    compact(manager, log)
    assert pairs_of(log) == [(1, b"b", b"1"), (2, b"a", None)]
    horizon = headers(log)[1]
    assert horizon.attributes & DELETE_HORIZON_MASK
    assert horizon.base_timestamp == NOW_MS + 1_000
    assert stored(log)[1].timestamp == NOW_MS - 77

    append_pairs(log, [(b"c", b"1")])
    compact(manager, log, now_ms=NOW_MS + 999)
    assert (2, b"a", None) in pairs_of(log)
    assert headers(log)[1].base_timestamp == NOW_MS + 1_000, "the horizon is set once"

    append_pairs(log, [(b"d", b"1")])
    compact(manager, log, now_ms=NOW_MS + 1_000)
    assert pairs_of(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def test_records_beside_a_tombstone_keep_their_timestamps_and_headers(manager, log) -> None:
    append_pairs(log, [(b"a", None), (b"b", b"v" * 100)], timestamp_ms=NOW_MS - 500)
    compact(manager, log)
    assert [(r.timestamp, r.value) for r in stored(log)] == [
        (NOW_MS - 500, None),
        (NOW_MS - 500, b"v" * 100),
    ]
    assert headers(log)[0].max_timestamp == NOW_MS - 500


def test_the_last_batch_of_each_producer_stays_without_records(manager, log, tmp_path) -> None:
    for sequence in range(3):
        append_pairs(log, [(b"a", b"%d" % sequence)], producer_id=7, base_sequence=sequence)
    append_pairs(log, [(b"a", b"last")])
    append_pairs(log, [(b"z", b"1")])
    compact(manager, log)
    kept = headers(log)
    assert [(h.base_offset, h.record_count) for h in kept] == [(2, 0), (3, 1), (4, 1)]
    assert (kept[0].producer_id, kept[0].base_sequence, kept[0].max_timestamp) == (7, 2, NOW_MS)
    for path in tmp_path.rglob("*.snapshot"):
        path.unlink()
    again, log = reopened(manager, tmp_path)
    assert log.producers.producers[7].last_sequence == 2
    append_pairs(log, [(b"a", b"next")], producer_id=7, base_sequence=3)
    again.close()


def test_the_end_offset_of_the_cleaned_part_stays_known(manager, log) -> None:
    append_pairs(log, [(b"a", b"1")])
    append_pairs(log, [(b"a", None)])
    compact(manager, log)
    append_pairs(log, [(b"b", b"1")])
    append_pairs(log, [(b"b", None)])
    compact(manager, log, now_ms=NOW_MS + 5_000)
    compact(manager, log, now_ms=NOW_MS + 50_000)
    assert pairs_of(log) == []
    assert headers(log)[-1].last_offset == 3


def test_records_without_a_key_are_removed(manager, log) -> None:
    append_pairs(log, [(None, b"lost"), (b"a", b"1")])
    done = compact(manager, log)
    assert pairs_of(log) == [(1, b"a", b"1")]
    assert done.stats["keyless"] == 1


def test_a_full_map_ends_the_pass_and_the_next_pass_continues(manager, log) -> None:
    keys = [b"k%d" % n for n in range(60)]
    for value in (b"1", b"2"):
        for at in range(0, 60, 5):
            append_pairs(log, [(key, value) for key in keys[at : at + 5]])
    log.roll(NOW_MS)
    small = Budget(31 * 16)
    ends = []
    while not ends or ends[-1] < 120:
        ends.append(compact(manager, log, budget=small, roll=False).end_offset)
    assert len(ends) > 3 and ends == sorted(set(ends))
    assert pairs_of(log) == [(60 + n, key, b"2") for n, key in enumerate(keys)]


def test_a_tombstone_behind_the_map_stays_even_after_its_horizon(manager, log) -> None:
    """The previous pass set its horizon, but the map does not reach the records that it deletes."""
    append_pairs(log, [(b"a", b"1")])
    for at in range(0, 60, 5):
        append_pairs(log, [(b"k%d" % n, b"v") for n in range(at, at + 5)])
    append_pairs(log, [(b"a", None)])
    log.roll(NOW_MS)
    small = Budget(31 * 16)
    ends, now_ms = [0], NOW_MS
    while ends[-1] < 62:
        ends.append(compact(manager, log, now_ms=now_ms, budget=small, roll=False).end_offset)
        now_ms += 10 * log.config.delete_retention_ms
        newest = {key: value for _, key, value in pairs_of(log)}
        assert newest.get(b"a") is None, f"it is back after {ends}"
    assert len(ends) > 3


def test_small_segments_are_merged(manager, log, tmp_path) -> None:
    for n in range(10):
        append_pairs(log, [(b"k%d" % n, b"v")])
        log.roll(NOW_MS)
    compact(manager, log)
    assert log.segments.bases == [0, 10]
    assert [offset for offset, *_ in pairs_of(log)] == list(range(10))
    names = {path.name for path in (tmp_path / "topic-0").glob("*.log*")}
    assert f"{0:020}.log" in names and f"{5:020}.log.deleted" in names
    again, log = reopened(manager, tmp_path)
    assert log.segments.bases == [0, 10]
    assert [offset for offset, *_ in pairs_of(log)] == list(range(10))
    again.close()


def test_a_compacted_segment_is_as_old_as_the_newest_of_its_sources(manager, log, tmp_path) -> None:
    """Retention uses this time if no record has a timestamp."""
    for n in range(2):
        append_pairs(log, [(b"k%d" % n, b"v")])
        log.roll(NOW_MS)
    for base, written_s in ((0, 1_000), (1, 2_000)):
        os.utime(tmp_path / "topic-0" / f"{base:020}.log", (written_s, written_s))
    compact(manager, log)
    assert log.segments.bases == [0, 2]
    assert (tmp_path / "topic-0" / f"{0:020}.log").stat().st_mtime == 2_000


def test_a_segment_without_kept_records_keeps_the_log_start(manager, tmp_path) -> None:
    manager.close()
    manager = open_manager(tmp_path, LogConfig(cleanup_compact=True, segment_bytes=80))
    log = open_log(manager)
    for _ in range(4):
        append_pairs(log, [(b"a", b"1")])
    compact(manager, log)
    assert pairs_of(log) == [(3, b"a", b"1")]
    assert log.log_start_offset == 0
    again, log = reopened(manager, tmp_path)
    assert log.log_start_offset == 0
    assert pairs_of(log) == [(3, b"a", b"1")]
    again.close()


def test_a_log_with_a_damaged_batch_is_not_cleaned(manager, log, tmp_path) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")])
    append_pairs(log, [(b"a", b"2")])
    log.roll(NOW_MS)
    chosen = to_clean(manager, log)
    path = tmp_path / "topic-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[65] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="offset 0: its checksum is wrong"):
        list(cleaning_of(chosen).groups())
    data[65] ^= 1
    data[7] = 1  # the base offset, which the checksum does not cover
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="out of order"):
        list(cleaning_of(chosen).groups())


def test_a_look_up_by_time_skips_an_emptied_batch(manager, log) -> None:
    append_pairs(log, [(b"a", b"1")], producer_id=7, base_sequence=0, timestamp_ms=NOW_MS + 5)
    append_pairs(log, [(b"a", b"2")], timestamp_ms=NOW_MS + 9)
    compact(manager, log)
    assert [h.record_count for h in headers(log)] == [0, 1]
    found = offset_for_timestamp(log, NOW_MS)
    assert (found.timestamp, found.offset) == (NOW_MS + 9, 1)


@pytest.mark.parametrize("tombstone", [False, True])
def test_the_largest_timestamp_counts_only_kept_records(manager, log, tombstone) -> None:
    stamped = [
        Record(b"a", None if tombstone else b"1", NOW_MS - 30),
        Record(b"b", b"1", NOW_MS - 10),
        Record(b"c", b"1", NOW_MS - 20),
    ]
    batch = memoryview(build_batch(stamped, timestamp_ms=NOW_MS - 40))
    log.append_as_leader(batch, 0, now_ms=NOW_MS, origin=None)
    append_pairs(log, [(b"b", b"2")], timestamp_ms=NOW_MS - 50)
    compact(manager, log)
    assert [h.max_timestamp for h in headers(log)] == [NOW_MS - 20, NOW_MS - 50]
    found = offset_of_max_timestamp(log)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS - 20, 2)


def test_a_batch_that_is_larger_than_the_buffers_is_cleaned(manager, log) -> None:
    append_pairs(log, [(b"a", bytes(300_000)), (b"b", bytes(300_000))])
    append_pairs(log, [(b"a", b"2")])
    compact(manager, log, budget=Budget(1 << 16, io_buffer_bytes=1))
    assert [(offset, key) for offset, key, _ in pairs_of(log)] == [(1, b"b"), (2, b"a")]


def test_the_throttle_counts_bytes_read_and_written() -> None:
    clock = ManualClock()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(int(seconds * 1000))

    throttle = Throttle(1_000, clock, wait)
    throttle.passed(500)
    clock.advance(250)
    throttle.passed(500)
    clock.advance(10_000)
    throttle.passed(1_000)
    assert waits == [0.5, 0.25]
    Throttle(None, clock, wait).passed(10**12)
    assert len(waits) == 2


def test_a_batch_with_too_many_records_is_not_opened(manager, log, monkeypatch) -> None:
    monkeypatch.setattr(batch_filter, "BATCH_RECORDS_MAX", 2)
    append_pairs(log, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    with pytest.raises(CorruptLog, match="3 records are more than 2"):
        compact(manager, log)


def test_readers_of_an_old_segment_or_region_continue(manager, log) -> None:
    for value in (b"1", b"2"):
        append_pairs(log, [(b"a", value)])
    old = log.segments[0]
    before = old.read_batch(0, old.size)
    region = log.read(0, 1 << 20, 2, True).region
    log.log_dir.pool.release(old.file)
    compact(manager, log)
    assert region.read() == before
    region.close()
    assert old.locate(0) == (0, len(before) // 2)
    assert old.read_batch(0, old.size) == before
