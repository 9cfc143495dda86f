"""The selection of the log to clean, and of its part: ratio, lags, open transactions, flushes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.config.log_config import LogConfig
from odradek.ids import TopicPartition
from odradek.log.cleaner.selection import examine, filthiest, first_dirty_offset
from odradek.log.unified_log import UnifiedLog
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    append_marker,
    append_transactional,
)
from tests.log.cleaner.running import append_pairs, compact, to_clean

COMPACT = LogConfig(cleanup_compact=True, cleanup_delete=False)


def segments(log: UnifiedLog, *timestamps: int) -> None:
    """Append a segment of one record for each of these times, and an empty active one."""
    for at, timestamp_ms in enumerate(timestamps):
        append_pairs(log, [(b"k%d" % at, b"v")], timestamp_ms=timestamp_ms)
        log.roll(timestamp_ms)


def test_a_log_is_due_when_its_dirty_share_is_above_the_ratio(manager, log) -> None:
    segments(log, NOW_MS, NOW_MS)
    assert to_clean(manager, log).cleanable_ratio == 1
    compact(manager, log, roll=False)
    clean = to_clean(manager, log)
    assert (clean.cleanable_bytes, clean.is_due) == (0, False)
    segments(log, NOW_MS)
    third = to_clean(manager, log)
    assert third.cleanable_ratio == pytest.approx(1 / 3, abs=0.01)
    assert not third.is_due
    log.update_config(replace(COMPACT, min_cleanable_dirty_ratio=0.3))
    assert to_clean(manager, log).is_due
    log.update_config(replace(COMPACT, min_cleanable_dirty_ratio=third.cleanable_ratio))
    assert not to_clean(manager, log).is_due, "above, not at, the ratio"


def test_nothing_above_the_last_stable_offset_is_cleaned(manager, log) -> None:
    segments(log, NOW_MS)
    append_transactional(log, [b"open"], 1, 0)
    log.roll(NOW_MS)
    segments(log, NOW_MS)
    assert to_clean(manager, log).upper_bound == 1
    append_marker(log, 1, committed=True)
    assert to_clean(manager, log).upper_bound == 3


def test_only_records_below_the_written_recovery_point_are_cleaned(manager, log) -> None:
    segments(log, NOW_MS, NOW_MS)
    manager.checkpoint()
    found = examine(log, None, manager.flushed_offset(log), NOW_MS)
    assert (found.upper_bound, found.is_due) == (0, False)
    log.flush()
    found = examine(log, None, manager.flushed_offset(log), NOW_MS)
    assert found.upper_bound == 0, "the recovery point is not on the disk yet"
    manager.checkpoint()
    assert examine(log, None, manager.flushed_offset(log), NOW_MS).upper_bound == 2


def test_young_segments_wait_for_the_minimum_lag(manager, log) -> None:
    log.update_config(replace(COMPACT, min_compaction_lag_ms=1_000))
    segments(log, NOW_MS - 5_000, NOW_MS - 1_001, NOW_MS - 999, NOW_MS - 5_000)
    assert to_clean(manager, log).upper_bound == 2
    assert to_clean(manager, log, NOW_MS + 1_000).upper_bound == 4


def test_a_log_dirty_for_the_maximum_lag_is_due_at_any_ratio(manager, log) -> None:
    log.update_config(replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000))
    segments(log, NOW_MS)
    assert not to_clean(manager, log, NOW_MS + 10_000).is_due
    assert to_clean(manager, log, NOW_MS + 10_001).is_due
    compact(manager, log, roll=False)
    assert not to_clean(manager, log, NOW_MS + 10_001).is_due


def test_a_segment_rolls_in_time_for_the_maximum_lag() -> None:
    config = LogConfig(segment_ms=1_000_000, max_compaction_lag_ms=5_000)
    assert config.roll_ms == 1_000_000
    assert replace(config, cleanup_compact=True).roll_ms == 5_000


def test_a_checkpoint_outside_of_the_log_is_ignored(log, caplog) -> None:
    segments(log, NOW_MS, NOW_MS)
    assert first_dirty_offset(log, None) == 0
    assert first_dirty_offset(log, 1) == 1
    assert first_dirty_offset(log, 3) == 0
    assert "compacts all of it again" in caplog.text
    log.delete_records(1)
    assert first_dirty_offset(log, 0) == 1


def test_the_due_log_with_the_largest_dirty_share_comes_first(manager, log) -> None:
    other = manager.create(TopicPartition("other", 0), TOPIC_ID)
    segments(log, NOW_MS, NOW_MS)
    compact(manager, log, roll=False)
    segments(log, NOW_MS, NOW_MS, NOW_MS)
    segments(other, NOW_MS)
    found = [to_clean(manager, log), to_clean(manager, other)]
    assert filthiest(found).log is other
    assert filthiest(found[:1]).log is log
    assert filthiest([]) is None
