"""Reads that would wait for the disk: refused on the owner's thread, done on another one."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log import retention
from odradek.log.log_read import LogReadInfo
from odradek.log.residency import NotResident
from odradek.log.truncation import truncate_to
from odradek.log.unified_log import UnifiedLog
from tests.helpers.slow_files import BROKER_THREAD, DEADLINE_S, SlowFiles
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_marker,
    append_transactional,
    open_log,
)
from tests.log.builders import open_manager as opened

PRODUCER_ID = 7


def fill(log: UnifiedLog, sizes: list[int]) -> None:
    """Append one batch for each size, with that many records; 0 begins a new segment."""
    for size in sizes:
        if size:
            append(log, [b"%d" % number for number in range(size)])
        else:
            log.roll(NOW_MS)


def described(found: LogReadInfo) -> tuple[bytes | None, bool]:
    if found.region is None:
        return None, found.first_batch_cut
    data = found.region.read()
    found.region.close()
    return data, found.first_batch_cut


@given(
    st.lists(st.sampled_from([0, 1, 2, 30]), min_size=1, max_size=12),
    st.data(),
)
def test_a_read_on_a_thread_equals_a_read_of_resident_pages(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    manager = opened(tmp_path_factory.mktemp("log"), LogConfig(index_interval_bytes=100))
    log = open_log(manager)
    fill(log, sizes)
    for segment in log.segments:
        segment.indexes()
    end = log.log_end_offset
    for _ in range(5):
        offset = data.draw(st.integers(0, end))
        max_offset = data.draw(st.integers(0, end))
        max_bytes = data.draw(st.integers(0, 500))
        limits = (offset, max_bytes, max_offset, data.draw(st.booleans()))
        assert described(log.read(*limits)) == described(log.read_resident(*limits)), limits
    manager.close()


@pytest.mark.parametrize("nowait", [True, False])
def test_cold_reads_are_refused_until_a_thread_has_read_the_data(
    tmp_path: Path, nowait: bool
) -> None:
    files = SlowFiles(nowait=nowait)
    manager = opened(tmp_path, LogConfig(), files)
    fill(open_log(manager), [1, 1, 0, 1])
    manager.close()
    log = open_log(manager := opened(tmp_path, LogConfig(), files))
    limits = (0, 1 << 20, 3, True)
    for evict in (lambda: None, files.evict):
        evict()
        with pytest.raises(NotResident):
            log.read_resident(*limits)
        found = log.read(*limits)
        assert found.region is not None
        assert found.region.resident() == found.region.length
        if nowait:
            assert described(log.read_resident(*limits)) == described(found)
    manager.close()


def test_aborted_transactions_are_refused_until_a_thread_has_read_them(tmp_path: Path) -> None:
    manager = opened(tmp_path, LogConfig())
    log = open_log(manager)
    append_transactional(log, [b"1"], PRODUCER_ID, 0)
    append_marker(log, PRODUCER_ID, committed=False)
    fill(log, [0, 1])
    log.segments[0].drop_indexes()
    assert log.read(0, 1 << 20, 3, True).region is not None
    assert log.read_resident(0, 1 << 20, 3, True).region is not None
    with pytest.raises(NotResident):
        log.read_resident(0, 1 << 20, 3, True, with_aborted=True)
    assert log.read(0, 1 << 20, 3, True, with_aborted=True).aborted == [(PRODUCER_ID, 0)]
    assert log.read_resident(0, 1 << 20, 3, True, with_aborted=True).aborted == [(PRODUCER_ID, 0)]
    manager.close()


def test_a_segment_deleted_during_a_read_does_not_take_the_directory_offline(
    tmp_path: Path,
) -> None:
    files = SlowFiles()
    manager = opened(tmp_path, LogConfig(), files)
    fill(open_log(manager), [1, 0, 1])
    manager.close()
    log = open_log(manager := opened(tmp_path, LogConfig(), files))
    log.segments[0].load_timestamps()
    files.evict()
    files.hold()
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(log.read, 0, 1 << 20, 2, True)
        assert files.reached.wait(DEADLINE_S)
        log.delete_records(1)
        assert log.delete_old_segments(NOW_MS).deleted == 1
        files.release()
        with pytest.raises(KafkaError) as refused:
            read.result(DEADLINE_S)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not log.log_dir.offline
    manager.close()


def test_a_read_before_a_truncation_is_not_confirmed(tmp_path: Path) -> None:
    manager = opened(tmp_path, LogConfig())
    log = open_log(manager)
    fill(log, [1, 1])
    found = log.read(0, 1 << 20, 2, True)
    assert log.confirm(0, found)
    truncate_to(log, 1)
    assert not log.confirm(0, found)
    append(log, [b"another"])
    assert not log.confirm(0, found)
    manager.close()


def test_threads_that_need_the_same_missing_index_build_it_once(tmp_path: Path) -> None:
    files = SlowFiles()
    manager = opened(tmp_path, LogConfig(index_interval_bytes=0), files)
    fill(open_log(manager), [1] * 50 + [0, 1])
    manager.close()
    (tmp_path / "topic-0" / f"{0:020d}.index").unlink()
    log = open_log(manager := opened(tmp_path, LogConfig(index_interval_bytes=0), files))
    barrier = threading.Barrier(4)

    def look_up(_: int) -> object:
        barrier.wait(DEADLINE_S)
        return log.segments[0].indexes()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(look_up, range(4)))
    assert all(each == found[0] for each in found)
    assert len(log.segments[0].indexes()[0]) == 49
    manager.close()


def on_the_owners_thread(work: Callable[[], None]) -> None:
    """Call `work` on a thread that `SlowFiles` takes for the event loop."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, name=BROKER_THREAD)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    for error in errors:
        raise error


@pytest.mark.parametrize("nowait", [True, False])
def test_the_owner_appends_rolls_and_deletes_without_the_disk(tmp_path: Path, nowait: bool) -> None:
    """The page cache is empty after a start. An abort needs the index of the active segment."""
    files = SlowFiles(nowait=nowait)
    config = LogConfig(flush_messages=1, retention_bytes=500)
    manager = opened(tmp_path, config, files)
    log = open_log(manager)
    fill(log, [1, 1, 0, 1])
    append_transactional(log, [b"1"], PRODUCER_ID, 0)
    append_marker(log, PRODUCER_ID, committed=False)
    append_transactional(log, [b"2"], PRODUCER_ID, 1)
    manager.close()
    log = open_log(manager := opened(tmp_path, config, files))
    files.evict()

    def work() -> None:
        fill(log, [1])
        append_marker(log, PRODUCER_ID, committed=False)
        log.update_config(LogConfig(flush_messages=1, retention_bytes=0, retention_ms=-1))
        fill(log, [0, 1])
        log.delete_records(2)
        # All in one slice. With one segment left, its name would be synced before the roll.
        while (deletion := log.delete_old_segments(NOW_MS, wait=False)).is_rolling:
            assert not deletion.deleted
        assert deletion.deleted == 3
        fill(log, [1])

    on_the_owners_thread(work)
    assert files.blocked == []
    manager.close()


def test_a_file_that_is_slow_to_open_does_not_delay_other_logs(tmp_path: Path) -> None:
    files = SlowFiles()
    manager = opened(tmp_path, LogConfig(), files)
    fill(open_log(manager), [1, 0, 1])
    manager.close()
    log = open_log(manager := opened(tmp_path, LogConfig(), files))
    log.segments[0].indexes()
    manager.pool.release(log.segments[0].file)
    files.evict()
    files.hold()
    with ThreadPoolExecutor(2) as threads:
        try:
            read = threads.submit(log.read, 0, 1 << 20, 2, True)
            assert files.reached.wait(DEADLINE_S)
            other = manager.create(TopicPartition("other", 0), TOPIC_ID)
            threads.submit(append, other, [b"1"]).result(DEADLINE_S)
            threads.submit(manager.delete, other.topic_partition).result(DEADLINE_S)
            assert not read.done()
        finally:
            files.release()
        assert read.result(DEADLINE_S).region is not None
    manager.close()


@pytest.mark.parametrize(("code", "fails"), [(errno.ENOENT, False), (errno.EIO, True)])
def test_segment_deleted_while_retention_reads_explains_a_missing_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fails: bool
) -> None:
    """Another error is an error of the disk."""
    log = open_log(manager := opened(tmp_path, LogConfig()))
    fill(log, [1, 0, 1])

    def delete_and_fail(*_: object) -> None:
        log.delete_records(1)
        assert log.delete_old_segments(NOW_MS).deleted == 1
        raise OSError(code, "not read")

    monkeypatch.setattr(retention, "load", delete_and_fail)
    if fails:
        with pytest.raises(KafkaError):
            log.load_for_retention(NOW_MS)
    else:
        log.load_for_retention(NOW_MS)
    assert log.log_dir.offline is fails
    manager.close(clean=False)
