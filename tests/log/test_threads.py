"""Operations beside the owner's thread: flushes that share an fsync, deletions during a flush."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TP,
    append,
    offset_for_timestamp,
    open_log,
    open_manager,
    retain,
    values_of,
)


class GatedFiles(FaultyFiles):
    """Files whose fsync waits at `gate`. `reached` is set when an fsync waits."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def fsync(self, fd: int) -> None:
        self.reached.set()
        assert self.gate.wait(120)
        super().fsync(fd)


@pytest.fixture
def files() -> GatedFiles:
    return GatedFiles()


def in_thread(work) -> tuple[threading.Thread, list[Exception]]:
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def log_of_three_segments(manager: LogManager) -> UnifiedLog:
    """Return a log of three segments with one record each, and an empty active segment."""
    log = open_log(manager)
    for value in (b"1", b"2", b"3"):
        append(log, [value])
        log.roll(NOW_MS)
    return log


def test_appends_continue_during_an_fsync_and_waiting_flushes_share_the_next(
    tmp_path: Path, files: GatedFiles
) -> None:
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    append(log, [b"1"])
    log.flush()
    append(log, [b"2"])
    files.gate.clear()
    files.reached.clear()
    first, errors = in_thread(log.flush)
    assert files.reached.wait(120)
    waiting = []
    for value in (b"3", b"4", b"5"):
        append(log, [value])
        waiting.append(in_thread(log.flush)[0])
    fsyncs = files.fsyncs
    files.gate.set()
    for thread in [first, *waiting]:
        thread.join(120)
    assert (log.recovery_point, errors) == (5, [])
    assert files.fsyncs <= fsyncs + 1 + len(waiting)
    assert values_of(log) == [b"1", b"2", b"3", b"4", b"5"]
    manager.close()


def test_a_flush_does_not_cover_appends_during_the_flush(tmp_path: Path, files: GatedFiles) -> None:
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    append(log, [b"1"])
    files.gate.clear()
    thread, _ = in_thread(log.flush)
    assert files.reached.wait(120)
    append(log, [b"2"])
    files.gate.set()
    thread.join(120)
    assert log.recovery_point == 1
    manager.close()


def test_retention_during_a_flush_neither_waits_nor_fails(
    tmp_path: Path, files: GatedFiles
) -> None:
    manager = open_manager(tmp_path, LogConfig(file_delete_delay_ms=0), files)
    log = log_of_three_segments(manager)
    files.gate.clear()
    thread, errors = in_thread(log.flush)
    assert files.reached.wait(120)
    log.delete_records(3)
    assert retain(manager, NOW_MS) == 3
    files.gate.set()
    thread.join(120)
    assert errors == []
    assert not log.log_dir.offline
    manager.maintain(NOW_MS)
    assert sorted(path.name for path in (tmp_path / str(TP)).glob("*.log")) == [
        "00000000000000000003.log"
    ]
    manager.close()


def test_deleting_a_log_during_a_flush_neither_waits_nor_fails_the_directory(
    tmp_path: Path, files: GatedFiles
) -> None:
    manager = open_manager(tmp_path, LogConfig(), files)
    log = log_of_three_segments(manager)
    append(log, [b"4"])
    files.gate.clear()
    thread, errors = in_thread(log.flush)
    assert files.reached.wait(120)
    manager.delete(TP)
    files.gate.set()
    thread.join(120)
    assert all(
        isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
        for error in errors
    )
    assert not log.log_dir.offline
    append(open_log(manager), [b"again"])
    manager.close()


def test_index_entries_are_complete_during_concurrent_look_ups(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(index_interval_bytes=0))
    log = open_log(manager)
    append(log, [b"0"], timestamp_ms=NOW_MS - 10_000)
    stop = threading.Event()

    def look_up() -> None:
        while not stop.is_set():
            found = offset_for_timestamp(log, NOW_MS - 10_000)
            assert found is not None and found.offset == 0

    threads = [in_thread(look_up) for _ in range(2)]
    for at in range(1, 3_000):
        append(log, [b"x"], timestamp_ms=NOW_MS - 10_000 + at)
    stop.set()
    for thread, errors in threads:
        thread.join(120)
        assert errors == []
    index, time_index = log.segments.active.indexes()
    assert len(index) == len(time_index) == 2_999
    assert list(index.offsets) == list(range(1, 3_000))
    manager.close()
