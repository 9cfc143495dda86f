"""Retention in time slices: other work runs between the logs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.ids import TopicPartition, Uuid
from odradek.log.directories import log_manager
from odradek.log.directories.log_manager import DELETED_SEGMENT_ELEMENTS
from odradek.log.truncation import LogTruncations
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.log.builders import NOW_MS, TOPIC_ID, append, open_manager


def test_retention_runs_in_time_slices(tmp_path: Path) -> None:
    """Segments of all partitions may expire at the same time."""
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    count = 5 * ELEMENTS_PER_SLICE // DELETED_SEGMENT_ELEMENTS
    logs = [manager.create(TopicPartition("t", each), TOPIC_ID) for each in range(count)]
    for each in range(ELEMENTS_PER_SLICE):
        manager.create(TopicPartition("empty", each), TOPIC_ID)
    for log in logs:
        append(log, [b"x"], timestamp_ms=1)
    seen = [0]
    work = manager.retain(NOW_MS)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(work)
            seen.append(sum(log.log_start_offset for log in logs))
    assert ended.value.value == count
    deleted = [after - before for before, after in pairwise(seen)]
    assert sum(deleted) == count
    assert max(deleted) * DELETED_SEGMENT_ELEMENTS <= ELEMENTS_PER_SLICE
    manager.close()


def test_retention_skips_logs_that_change_between_its_slices(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    in_a_slice = ELEMENTS_PER_SLICE // DELETED_SEGMENT_ELEMENTS
    keys = [TopicPartition("t", each) for each in range(in_a_slice + 5)]
    logs = [manager.create(each, TOPIC_ID) for each in keys]
    for log in logs:
        append(log, [b"x"], timestamp_ms=1)
        append(log, [b"y"], timestamp_ms=1)
    work = manager.retain(NOW_MS)
    next(work)
    deleted, truncated, cleaned, lost, other = logs[in_a_slice:]
    manager.delete(deleted.topic_partition)
    manager.create(deleted.topic_partition, Uuid(bytes(16)))
    LogTruncations().truncate_to(truncated, 1)
    manager.begin_cleaning(cleaned.topic_partition)
    manager.unassign([lost.topic_partition])
    assert run_to_completion(work) == in_a_slice + 1
    assert [log.log_start_offset for log in (truncated, cleaned, lost, other)] == [0, 0, 0, 2]
    assert not manager.log_dirs[0].offline
    manager.close(clean=False)


def test_topic_that_is_created_while_a_thread_reads_for_retention_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager(tmp_path, LogConfig())

    class Assigned(set[TopicPartition]):
        """Creates another log at each lookup, as the event loop may."""

        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            manager.create(TopicPartition("new", len(self)), TOPIC_ID)
            return found

    monkeypatch.setattr(manager, "_assigned", Assigned())
    log = manager.create(TopicPartition("t", 0), TOPIC_ID)
    assert manager.assigned_logs() == [log]
    manager.close()


def test_retention_counts_the_producers_that_may_expire(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    for number in range(2):
        log = manager.create(TopicPartition("t", number), TOPIC_ID)
        for producer in range(ELEMENTS_PER_SLICE):
            append(log, [b"x"], producer_id=producer, producer_epoch=0, base_sequence=0)
    assert len(list(manager.retain(NOW_MS))) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_manager, "PRODUCERS_EXPIRED_AN_ELEMENT", 1)
        assert len(list(manager.retain(NOW_MS))) == 1
    manager.close()
