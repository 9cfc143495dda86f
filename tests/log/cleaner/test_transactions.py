"""Aborted data, its markers, and the index of aborted transactions."""

from __future__ import annotations

from odradek.config.log_config import LogConfig
from odradek.log.cleaner.batch_filter import DELETE_HORIZON_MASK
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from tests.log.builders import NOW_MS, append_marker
from tests.log.cleaner.running import append_pairs, compact

RETENTION_MS = 1_000
COMPACT = LogConfig(cleanup_compact=True, cleanup_delete=False, delete_retention_ms=RETENTION_MS)


def transactional(log: UnifiedLog, producer: int, sequence: int, key: bytes, value: bytes) -> None:
    append_pairs(
        log, [(key, value)], producer_id=producer, base_sequence=sequence, transactional=True
    )


def batches(log: UnifiedLog) -> list[str]:
    """Return offset, kind, record count and presence of a delete horizon for each batch."""
    found = []
    for segment in log.segments:
        for _, header in segment.headers(0):
            kind = "marker" if header.is_control else "data"
            horizon = " horizon" if header.attributes & DELETE_HORIZON_MASK else ""
            found.append(f"{header.base_offset} {kind} x{header.record_count}{horizon}")
    return found


def pass_again(manager: LogManager, log: UnifiedLog, now_ms: int) -> None:
    """Run one more pass, with a dirty record after all others."""
    append_pairs(log, [(b"end", b"")])
    compact(manager, log, now_ms=now_ms)


def test_aborted_data_is_removed_and_its_marker_only_after_the_horizon(manager, log) -> None:
    transactional(log, 1, 0, b"a", b"aborted")
    append_marker(log, 1, committed=False)
    transactional(log, 1, 1, b"b", b"committed")
    append_marker(log, 1, committed=True)
    append_pairs(log, [(b"c", b"1")])
    compact(manager, log)
    kept = ["1 marker x1", "2 data x1", "3 marker x1", "4 data x1"]
    assert batches(log) == kept, "this pass has seen the data: the marker says what it was"
    assert log.segments.aborted_transactions(0, 5) == [(1, 0)]

    pass_again(manager, log, NOW_MS)
    assert batches(log)[0] == "1 marker x1 horizon"
    assert log.segments.aborted_transactions(0, 5) == []
    pass_again(manager, log, NOW_MS + RETENTION_MS - 1)
    assert batches(log)[0] == "1 marker x1 horizon"
    pass_again(manager, log, NOW_MS + RETENTION_MS)
    assert batches(log)[:3] == ["2 data x1", "3 marker x1", "4 data x1"]


def test_an_older_value_survives_an_aborted_newer_value(manager, log) -> None:
    append_pairs(log, [(b"a", b"1")])
    transactional(log, 1, 0, b"a", b"aborted")
    append_marker(log, 1, committed=False)
    append_pairs(log, [(b"c", b"1")])
    compact(manager, log)
    assert batches(log) == ["0 data x1", "1 data x0", "2 marker x1", "3 data x1"]


def test_a_marker_stays_as_long_as_an_emptied_batch_of_its_transaction(manager, log) -> None:
    transactional(log, 1, 0, b"a", b"aborted")
    append_marker(log, 1, committed=False)
    for at in range(3):
        pass_again(manager, log, NOW_MS + at * 10 * RETENTION_MS)
    assert batches(log)[:2] == ["0 data x0", "1 marker x1"], "the producer's last sequence"
    assert log.segments.aborted_transactions(0, 2) == [(1, 0)]


def test_a_commit_marker_is_removed_after_its_data(manager, log) -> None:
    transactional(log, 1, 0, b"a", b"1")
    append_marker(log, 1, committed=True)
    transactional(log, 1, 1, b"a", b"2")
    append_marker(log, 1, committed=True)
    compact(manager, log)
    assert batches(log) == ["1 marker x1", "2 data x1", "3 marker x1"]
    pass_again(manager, log, NOW_MS)
    assert batches(log)[0] == "1 marker x1 horizon"
    pass_again(manager, log, NOW_MS + RETENTION_MS)
    assert batches(log)[:2] == ["2 data x1", "3 marker x1"]


def test_the_marker_with_a_producers_epoch_stays_without_records(manager, log) -> None:
    """With version 2 the last batch of a producer is a marker of its next epoch."""
    transactional(log, 1, 0, b"a", b"1")
    append_marker(log, 1, committed=True, epoch=1)
    append_pairs(log, [(b"a", b"2")])
    compact(manager, log)
    for at in range(3):
        pass_again(manager, log, NOW_MS + at * 10 * RETENTION_MS)
    assert batches(log)[:2] == ["1 marker x0", "2 data x1"]
    append_marker(log, 1, committed=True, epoch=2)
    pass_again(manager, log, NOW_MS)
    assert batches(log)[0] == "2 data x1", "another has taken its place"


def test_an_abort_whose_marker_is_in_the_active_segment_is_known(manager, log) -> None:
    append_pairs(log, [(b"a", b"1")])
    transactional(log, 1, 0, b"a", b"aborted")
    log.roll(NOW_MS)
    transactional(log, 1, 1, b"b", b"aborted")
    append_marker(log, 1, committed=False)
    compact(manager, log, roll=False)
    assert batches(log)[:2] == ["0 data x1", "1 data x0"]
