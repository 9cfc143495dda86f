"""Reads for followers: the region ends at the high watermark. Other records are a copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.environment.files import RealFiles
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.log_manager import LogManager
from odradek.log.follower_read import read_for_follower
from odradek.log.residency import NotResident
from odradek.log.truncation import LogTruncations, truncate_to
from odradek.log.unified_log import UnifiedLog
from odradek.records.record import iter_batches, iter_records
from tests.helpers.slow_files import SlowFiles
from tests.log.builders import NOW_MS, append, open_log, open_manager

CONFIG = LogConfig(segment_bytes=1_500, index_interval_bytes=200)
BATCHES = 30


@settings(max_examples=60, deadline=None)
@given(
    offset=st.integers(0, BATCHES),
    high_watermark=st.integers(0, BATCHES),
    max_bytes=st.sampled_from([1, 300, 10**6]),
    wait=st.booleans(),
)
def test_read_is_a_region_of_committed_records_or_a_copy(
    tmp_path_factory: pytest.TempPathFactory,
    offset: int,
    high_watermark: int,
    max_bytes: int,
    wait: bool,
) -> None:
    manager = open_manager(tmp_path_factory.mktemp("read"), CONFIG)
    log = open_log(manager)
    for at in range(BATCHES):
        append(log, [b"%03d" % at * 30])
    whole = log.read(offset, max_bytes, log.log_end_offset, min_one_message=True).region
    found = read_for_follower(log, offset, max_bytes, high_watermark, wait=wait)
    region = b"" if found.region is None else found.region.read()
    expected = b"" if whole is None else whole.read()
    assert expected.startswith(region + found.copied)
    assert not (region and found.copied)
    assert not expected or region or found.copied
    committed = [record.offset for each in iter_batches(region) for record in iter_records(each)]
    assert all(each < high_watermark for each in committed)
    rest = expected[len(region) :]
    if max_bytes > 1_000 and rest:
        assert next(iter_records(next(iter_batches(rest)))).offset >= high_watermark
    manager.close(clean=False)


def test_truncation_above_the_high_watermark_does_not_change_a_response(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    for at in range(6):
        append(log, [b"%03d" % at * 30])
    log.high_watermark = 3
    committed = read_for_follower(log, 0, 10**6, log.high_watermark, wait=False)
    uncommitted = read_for_follower(log, 3, 10**6, log.high_watermark, wait=False)
    assert committed.region is not None and uncommitted.region is None
    before = (committed.region.read(), bytes(uncommitted.copied))
    truncate_to(log, 4)
    append(log, [b"of another leader"], 9)
    assert (committed.region.read(), bytes(uncommitted.copied)) == before
    assert not log.confirm(0, committed)
    assert not log.confirm(3, uncommitted)
    manager.close()


def test_read_that_would_wait_for_the_disk_is_not_made_on_the_loop(tmp_path: Path) -> None:
    files = SlowFiles()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    for at in range(6):
        append(log, [b"%03d" % at * 30])
    for offset in (0, 3):
        files.evict()
        with pytest.raises(NotResident):
            read_for_follower(log, offset, 10**6, 3, wait=False)
        found = read_for_follower(log, offset, 10**6, 3, wait=True)
        assert (found.region is None) is (offset == 3) is bool(found.copied)
    with pytest.raises(KafkaError):
        read_for_follower(log, 99, 10**6, 3, wait=True)
    manager.close()


class CountedReads(RealFiles):
    """Files that count the reads."""

    reads = 0

    def preadv(  # type: ignore[override]
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int
    ) -> int:
        self.reads += 1
        return os.preadv(fd, buffers, position, flags)


@pytest.mark.parametrize("behind", [0, 2])
def test_fetch_at_the_earlier_log_end_reads_the_new_records_only(
    tmp_path: Path, behind: int
) -> None:
    files = CountedReads()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    for at in range(6):
        append(log, [b"%03d" % at * 3_000])
    read_for_follower(log, 0, 10**6, 0, wait=False)
    append(log, [b"new" * 3_000])
    files.reads = 0
    found = read_for_follower(log, 6, 10**6, 6 - behind, wait=False)
    assert int.from_bytes(found.copied[:8], "big") == 6
    assert files.reads == 1
    manager.close()


class ChangedWhileRead(RealFiles):
    """Files that call `change` when the region of a read was read from the disk."""

    def __init__(self) -> None:
        self.change: Callable[[], None] | None = None

    def preadv(  # type: ignore[override]
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int
    ) -> int:
        count = os.preadv(fd, buffers, position, flags)
        if self.change is not None and not flags:
            change, self.change = self.change, None
            change()
        return count


def segments_of_one_batch(manager: LogManager) -> UnifiedLog:
    log = open_log(manager)
    for at in range(4):
        append(log, [b"%03d" % at * 30])
        log.roll(NOW_MS)
    return log


@pytest.mark.parametrize("high_watermark", [1, 4])
def test_segment_deleted_during_a_read_does_not_take_the_directory_offline(
    tmp_path: Path, high_watermark: int
) -> None:
    files = ChangedWhileRead()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = segments_of_one_batch(manager)

    def change() -> None:
        log.delete_records(2)
        assert log.delete_old_segments(NOW_MS).deleted == 2

    files.change = change
    with pytest.raises(KafkaError) as refused:
        read_for_follower(log, 0, 10**6, high_watermark, wait=True)
    assert files.change is None
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not log.log_dir.offline
    manager.close()


def test_segment_replaced_during_a_read_is_read_again(tmp_path: Path) -> None:
    """Compaction merges two segments. The batch of the second one is read from the new segment."""
    files = ChangedWhileRead()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = segments_of_one_batch(manager)
    whole = read_for_follower(log, 1, 10**6, 4, wait=True).region
    assert whole is not None
    expected = whole.read()

    def change() -> None:
        old = list(log.segments)[:2]
        path = Path(old[0].file.path)
        merged = path.read_bytes() + Path(old[1].file.path).read_bytes()
        for each in old:
            log.discard(each)
        path.write_bytes(merged)
        log.replace_segments(old, len(merged), NOW_MS, has_aborted=False)

    files.change = change
    found = read_for_follower(log, 1, 10**6, 4, wait=True)
    assert files.change is None and found.region is not None
    assert found.region.read() == expected
    assert log.confirm(1, found) and not log.log_dir.offline
    manager.close()


def test_log_emptied_during_a_read_ends_the_read_before_it_has_a_new_segment(
    tmp_path: Path,
) -> None:
    """This broker no longer leads. The first attempt to truncate its log finds a full disk."""
    files = ChangedWhileRead()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = segments_of_one_batch(manager)
    truncations = LogTruncations()

    def change() -> None:
        truncations.truncate_fully_and_start_at(log, 9)
        for each in log.segments:
            log.discard(each)

    files.change = change
    found = read_for_follower(log, 0, 10**6, 1, wait=True)
    assert found.region is None
    assert truncations.execute() == {}
    with pytest.raises(KafkaError):
        log.confirm(0, found)
    assert not log.log_dir.offline
    manager.close()
