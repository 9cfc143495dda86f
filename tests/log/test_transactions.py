"""Transactions in a log: the last stable offset, aborted transactions, and verification."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import READ_WRITE, OpenFile
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.log_manager import LogManager
from odradek.log.state.verification import NO_GUARD, NOT_VERIFIED
from odradek.log.truncation import truncate_to
from odradek.log.unified_log import UnifiedLog
from tests.helpers.crashing_files import Crashed, CrashingFiles
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TP,
    append,
    append_marker,
    append_transactional,
    open_log,
    open_manager,
    read_all,
    read_committed,
    retain,
)

CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=100, file_delete_delay_ms=0)
END = 2**62
DAY_MS = 24 * 3_600_000


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    manager = open_manager(tmp_path, CONFIG)
    yield manager
    manager.close()


@pytest.fixture
def log(manager: LogManager) -> UnifiedLog:
    return open_log(manager)


def error_of(call, *args, **options) -> ErrorCode:  # type: ignore[no-untyped-def]
    with pytest.raises(KafkaError) as caught:
        call(*args, **options)
    return caught.value.code


# -- the last stable offset ------------------------------------------------------------------------


def test_no_record_after_the_first_open_transaction_is_stable(log: UnifiedLog) -> None:
    append(log, [b"plain"])
    append_transactional(log, [b"a", b"b"], 1, 0)
    append_transactional(log, [b"c"], 2, 0)
    append(log, [b"plain"])
    assert log.last_stable_offset == 1
    append_marker(log, 1, committed=True)
    assert log.last_stable_offset == 3
    append_marker(log, 2, committed=False)
    assert log.last_stable_offset == log.log_end_offset == 7


def test_last_stable_offset_is_at_most_the_high_watermark(log: UnifiedLog) -> None:
    """KAFKA-9807: an uncommitted marker decides nothing. Both offsets of a response come from one
    read of the high watermark."""
    append_transactional(log, [b"a"], 1, 0)
    append_marker(log, 1, committed=True)
    append(log, [b"plain"])
    log.high_watermark = 1
    assert log.last_stable_offset == 0
    log.high_watermark = 2
    assert log.last_stable_offset == 2
    log.high_watermark = 3
    assert log.last_stable_offset == 3


def test_stable_offset_is_never_before_the_log_start(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0)
    append(log, [b"plain"])
    log.delete_records(1)
    assert log.last_stable_offset == 1


def test_marker_without_data_changes_only_the_epoch(log: UnifiedLog) -> None:
    """It adds no index entry and does not move the last stable offset."""
    append_transactional(log, [b"open"], 1, 0)
    append_marker(log, 2, committed=False, epoch=3)
    assert log.last_stable_offset == 0
    assert log.segments.aborted_transactions(0, END) == []
    assert not list(Path(log.directory).glob("*.txnindex"))
    assert error_of(append_transactional, log, [b"late"], 2, 0, epoch=2) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_offsets_of_a_transaction_are_its_records_and_one_marker(log: UnifiedLog) -> None:
    """redpanda#13364: an abort uses as many offsets as in Kafka."""
    assert append_transactional(log, [b"a", b"b", b"c"], 1, 0).last_offset == 2
    assert append_marker(log, 1, committed=False).first_offset == 3
    assert append_transactional(log, [b"d"], 1, 3).first_offset == 4


# -- aborted transactions --------------------------------------------------------------------------


def test_aborted_transactions_are_those_that_overlap(log: UnifiedLog) -> None:
    append_transactional(log, [b"a", b"b"], 1, 0)
    append_transactional(log, [b"c"], 2, 0)
    append_marker(log, 1, committed=False)
    append_transactional(log, [b"d"], 3, 0)
    append_marker(log, 2, committed=True)
    append_marker(log, 3, committed=False)
    assert log.segments.aborted_transactions(0, END) == [(1, 0), (3, 4)]
    assert log.segments.aborted_transactions(0, 4) == [(1, 0)]
    assert log.segments.aborted_transactions(4, END) == [(3, 4)]
    assert log.segments.aborted_transactions(3, 4) == [(1, 0)]
    assert log.segments.aborted_transactions(7, END) == []


def test_transaction_that_spans_segments_is_found_from_each(log: UnifiedLog) -> None:
    sequence = 0
    while len(log.segments) < 4:
        append_transactional(log, [bytes(200)], 1, sequence)
        sequence += 1
    append_marker(log, 1, committed=False)
    last = log.segments[-1]
    assert [segment.txn_index is not None for segment in log.segments] == [False] * 3 + [True]
    for base in log.segments.bases:
        assert log.segments.aborted_transactions(base, base + 1) == [(1, 0)]
    assert log.segments.aborted_transactions(log.log_end_offset, END) == []
    assert last.txn_index is not None


def test_index_file_is_kafkas_byte_for_byte(log: UnifiedLog) -> None:
    """``AbortedTxn``: int16 version, and int64 producer id, first, last and last stable offset."""
    append_transactional(log, [b"a"], 7, 0)
    append_transactional(log, [b"b"], 8, 0)
    append_marker(log, 8, committed=False)
    append_marker(log, 7, committed=False)
    path = Path(log.directory) / f"{0:020d}.txnindex"
    expected = [(8, 1, 2, 0), (7, 0, 3, 4)]
    assert path.read_bytes() == b"".join(
        b"\0\0" + b"".join(number.to_bytes(8, "big") for number in entry) for entry in expected
    )


def test_marker_is_kafkas_control_batch_byte_for_byte(log: UnifiedLog) -> None:
    append_marker(log, 7, committed=True, epoch=2, coordinator_epoch=5)
    data = Path(log.segments.active.file.path).read_bytes()
    assert data[21:23] == b"\0\x30", "transactional and control"
    assert data[43:61] == (7).to_bytes(8, "big") + b"\0\2" + b"\xff" * 4 + (1).to_bytes(4, "big")
    # length 16, attributes, deltas, key of 4 bytes: version 0, type 1; value of 6: version, epoch
    assert data[61:] == b"\x20\0\0\0\x08\0\0\0\x01\x0c\0\0\0\0\0\x05\0"


# -- verification ----------------------------------------------------------------------------------


def test_late_batch_after_the_abort_opens_no_transaction(log: UnifiedLog) -> None:
    """KAFKA-12671: it would hold back the last stable offset forever."""
    append_transactional(log, [b"a"], 1, 0)
    append_marker(log, 1, committed=False)
    assert error_of(append_transactional, log, [b"late"], 1, 1, guard=NO_GUARD) is (
        ErrorCode.INVALID_TXN_STATE
    )
    assert log.last_stable_offset == log.log_end_offset == 2


def test_guard_is_invalid_after_a_marker(log: UnifiedLog) -> None:
    """The coordinator's response was about a transaction that has ended in the meantime."""
    old = log.producers.verifications.start(1, 0, 0, NOW_MS)
    append_marker(log, 1, committed=False)
    new = log.producers.verifications.start(1, 0, 0, NOW_MS)
    assert old != new
    assert error_of(append_transactional, log, [b"a"], 1, 0, guard=old) is (
        ErrorCode.INVALID_TXN_STATE
    )
    append_transactional(log, [b"a"], 1, 0, guard=new)
    append_transactional(log, [b"b"], 1, 1, guard=NO_GUARD)


def test_guard_of_the_next_transaction_is_valid_after_a_marker_of_version_2(
    log: UnifiedLog,
) -> None:
    """KAFKA-18654: the producer goes on before all markers of its last transaction are written."""
    append_transactional(log, [b"a"], 1, 0)
    guard = log.producers.verifications.start(1, 1, 0, NOW_MS, epoch_bump=True)
    append_marker(log, 1, committed=True, epoch=1, transaction_version=2)
    append_transactional(log, [b"b"], 1, 0, epoch=1, guard=guard)
    assert log.last_stable_offset == 2


def test_guard_is_invalid_after_the_end_of_its_transaction_of_version_2(log: UnifiedLog) -> None:
    guard = log.producers.verifications.start(1, 1, 0, NOW_MS, epoch_bump=True)
    append_marker(log, 1, committed=False, epoch=2, transaction_version=2)
    for epoch in (1, 2):
        with pytest.raises(KafkaError):
            append_transactional(log, [b"a"], 1, 0, epoch=epoch, guard=guard)
    assert log.last_stable_offset == log.log_end_offset == 1


def test_batch_of_a_former_epoch_has_an_error_that_producers_recover_from(log: UnifiedLog) -> None:
    """KAFKA-19690: the coordinator has aborted the transaction of a producer that stood still."""
    append_transactional(log, [b"a"], 1, 0)
    append_marker(log, 1, committed=False, epoch=1)
    for guard in (NO_GUARD, log.producers.verifications.start(1, 0, 1, NOW_MS)):
        assert error_of(append_transactional, log, [b"b"], 1, 1, guard=guard) is (
            ErrorCode.INVALID_PRODUCER_EPOCH
        )


def test_without_verification_any_first_batch_opens_a_transaction(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0, guard=NOT_VERIFIED)
    assert log.last_stable_offset == 0


def test_higher_sequence_waits_for_the_lowest_one_seen(log: UnifiedLog) -> None:
    """KAFKA-14920: the verification of the first batch failed, and the producer will retry it."""
    guard = log.producers.verifications.start(1, 0, 0, NOW_MS)
    assert guard == log.producers.verifications.start(1, 0, 1, NOW_MS)
    assert error_of(append_transactional, log, [b"b"], 1, 1, guard=guard) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    append_transactional(log, [b"a"], 1, 0, guard=guard)
    append_transactional(log, [b"b"], 1, 1, guard=NO_GUARD)


def test_a_lower_sequence_that_is_verified_later_is_appended_first(log: UnifiedLog) -> None:
    guard = log.producers.verifications.start(1, 0, 1, NOW_MS)
    assert guard == log.producers.verifications.start(1, 0, 0, NOW_MS)
    assert error_of(append_transactional, log, [b"b"], 1, 1, guard=guard) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    append_transactional(log, [b"a"], 1, 0, guard=guard)


def test_verifications_whose_batches_never_arrive_expire(log: UnifiedLog) -> None:
    """Otherwise one entry for each producer would stay forever, and its guard would stay valid."""
    old = log.producers.verifications.start(1, 0, 0, NOW_MS)
    log.producers.expire(NOW_MS + DAY_MS - 1, DAY_MS)
    assert log.producers.verifications.passes(1, old)
    log.producers.expire(NOW_MS + DAY_MS, DAY_MS)
    assert len(log.producers.verifications) == 0
    assert error_of(append_transactional, log, [b"a"], 1, 0, guard=old) is (
        ErrorCode.INVALID_TXN_STATE
    )


def test_new_epoch_forgets_the_lowest_sequence_of_the_old_one(log: UnifiedLog) -> None:
    log.producers.verifications.start(1, 0, 0, NOW_MS)
    guard = log.producers.verifications.start(1, 1, 5, NOW_MS)
    append_transactional(log, [b"a"], 1, 5, epoch=1, guard=guard)


def test_nontransactional_batch_in_an_open_transaction_is_refused(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0)
    options = {"producer_id": 1, "producer_epoch": 0}
    assert error_of(append, log, [b"b"], base_sequence=1, **options) is ErrorCode.INVALID_TXN_STATE
    append_marker(log, 1, committed=True)
    append(log, [b"b"], base_sequence=1, **options)


def test_a_marker_of_a_new_epoch_ends_the_sequences_of_the_old_epoch(log: UnifiedLog) -> None:
    append(log, [b"a"], producer_id=1, producer_epoch=0, base_sequence=0)
    append_marker(log, 1, committed=True, epoch=1)
    options = {"producer_id": 1, "producer_epoch": 1}
    error = error_of(append, log, [b"b"], base_sequence=1, **options)
    assert error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, [b"b"], base_sequence=0, **options)


def test_duplicate_is_a_duplicate_even_when_its_transaction_has_ended(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0)
    append_marker(log, 1, committed=True)
    info = append_transactional(log, [b"a"], 1, 0, guard=NO_GUARD)
    assert (info.duplicate, info.first_offset) == (True, 0)


def test_outdated_markers_are_fenced(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0, epoch=4)
    assert error_of(append_marker, log, 1, committed=True, epoch=3) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )
    append_marker(log, 1, committed=True, epoch=4, coordinator_epoch=2)
    assert error_of(append_marker, log, 1, committed=True, epoch=4, coordinator_epoch=1) is (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    assert log.last_stable_offset == 2


def test_late_marker_of_version_2_does_not_end_the_next_transaction(log: UnifiedLog) -> None:
    """With version 2 each transaction has its own epoch: the marker that ends epoch 4 carries 5."""
    append_transactional(log, [b"a"], 1, 0, epoch=4)
    append_marker(log, 1, committed=True, epoch=5, transaction_version=2)
    append_marker(log, 1, committed=True, epoch=5, transaction_version=2)
    append_transactional(log, [b"b"], 1, 0, epoch=5)
    assert (
        error_of(append_marker, log, 1, committed=False, epoch=5, transaction_version=2)
        is ErrorCode.INVALID_PRODUCER_EPOCH
    )
    append_marker(log, 1, committed=True, epoch=6, transaction_version=2)


# -- restart and recovery --------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_open_transaction_and_coordinator_epoch_survive_a_restart(
    tmp_path: Path, clean: bool
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append_transactional(log, [b"a"], 1, 0)
    append_marker(log, 1, committed=False, coordinator_epoch=6)
    append_transactional(log, [b"b"], 2, 0)
    manager.close(clean=clean)
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    assert log.producers.producers[1].coordinator_epoch == 6
    assert log.segments.aborted_transactions(0, END) == [(1, 0)]
    append_transactional(log, [b"c"], 2, 1, guard=NO_GUARD)
    append_marker(log, 2, committed=True)
    assert log.last_stable_offset == log.log_end_offset
    manager.close()


def test_producer_does_not_expire_while_its_transaction_is_open(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0)
    append(log, [b"b"], producer_id=2, producer_epoch=0, base_sequence=0)
    assert log.producers.expire(NOW_MS + DAY_MS, DAY_MS) == 1
    assert (set(log.producers.producers), log.last_stable_offset) == ({1}, 0)
    append_marker(log, 1, committed=True)
    assert log.producers.expire(NOW_MS + DAY_MS, DAY_MS) == 1


@pytest.mark.parametrize("clean", [True, False, None])
def test_marker_postpones_the_expiration_of_its_producer(
    tmp_path: Path, clean: bool | None
) -> None:
    """KAFKA-9144: if the producer expired by its last batch, its next marker or batch would pass
    with any epoch. The same holds after a clean stop and after a crash."""
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append_transactional(log, [b"a"], 1, 0, epoch=3)
    append_marker(log, 1, committed=True, epoch=3, now_ms=NOW_MS + DAY_MS // 2)
    if clean is not None:
        manager.close(clean=clean)
        manager = open_manager(tmp_path, CONFIG)
        log = open_log(manager)
    assert log.producers.expire(NOW_MS + DAY_MS, DAY_MS) == 0
    late = {"committed": False, "epoch": 2}
    assert error_of(append_marker, log, 1, **late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.producers.expire(NOW_MS + DAY_MS // 2 + DAY_MS, DAY_MS) == 1
    manager.close()


def test_recovery_rebuilds_the_index_even_if_the_transaction_began_earlier(
    tmp_path: Path,
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append_transactional(log, [bytes(300)], 1, 0)
    append_transactional(log, [bytes(300)], 2, 0)
    append_transactional(log, [bytes(300)], 2, 1)
    assert len(log.segments) == 2
    append_marker(log, 1, committed=False)
    append_marker(log, 2, committed=False)
    path = Path(log.segments.active.path(".txnindex"))
    written = path.read_bytes()
    log.flush_to(log.segments.active.base_offset)
    manager.checkpoint()
    manager.close(clean=False)
    path.write_bytes(b"\xff" * 40)
    manager = open_manager(tmp_path, CONFIG)
    assert path.read_bytes() == written
    assert open_log(manager).segments.aborted_transactions(0, END) == [(1, 0), (2, 1)]
    manager.close()


def test_damaged_index_is_rebuilt_after_a_clean_stop_too(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for at in range(12):
        append_transactional(log, [bytes(100)], 1, at)
        append_marker(log, 1, committed=False)
    paths = sorted(Path(log.directory).glob("*.txnindex"))
    assert len(paths) > 2
    written = [path.read_bytes() for path in paths]
    manager.close()
    paths[1].write_bytes(written[1][:-3])
    manager = open_manager(tmp_path, CONFIG)
    assert [path.read_bytes() for path in paths] == written
    manager.close()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("damaged", [0, 1])
def test_rebuilt_index_below_the_recovery_point_survives_a_power_cut_at_each_step(
    tmp_path: Path, seed: int, damaged: int
) -> None:
    """No flush of the log syncs these files again."""
    crash_at = 0
    while True:
        root, files = tmp_path / str(crash_at), CrashingFiles()
        manager = open_manager(root, CONFIG, files)
        log = open_log(manager)
        for at in range(6):
            append_transactional(log, [bytes(300)], 1, at)
            append_marker(log, 1, committed=False)
        log.flush()
        manager.checkpoint()
        aborted = log.segments.aborted_transactions(0, END)
        manager.close(clean=False)
        path = str(sorted(Path(log.directory).glob("*.txnindex"))[damaged])
        handle = OpenFile(files, files.open(path, READ_WRITE))
        files.pwrite(handle.fd, b"\xff" * 40, 0)
        files.fsync(handle.fd)
        files.crash_at, crashed = crash_at, False
        manager = LogManager([str(root)], CONFIG, ManualClock(NOW_MS), files=files)
        try:
            manager.load("cluster", 1)
        except Crashed:
            crashed = True
        files.crash_at = None
        manager.unlock()
        files.crash(root, random.Random(seed))
        manager = open_manager(root, CONFIG, files)
        log = open_log(manager)
        assert log.segments.aborted_transactions(0, END) == aborted, crash_at
        manager.close(clean=False)
        if not crashed:
            break
        crash_at += 1
    assert crash_at > 5


@pytest.mark.parametrize("is_damaged", [False, True])
def test_recovered_index_survives_a_power_cut_after_a_roll_at_the_recovery_point(
    tmp_path: Path, is_damaged: bool
) -> None:
    """The recovery point of a clean stop is inside of the segment that recovery reads.

    Args:
        is_damaged: The index of an earlier segment is rebuilt as well.
    """
    for seed in range(20):
        files = FaultyFiles(loses_names=True)
        root = tmp_path / str(seed)
        root.mkdir()
        config = replace(CONFIG, segment_bytes=600)
        manager = open_manager(root, config, files)
        log = open_log(manager)
        if is_damaged:
            append_transactional(log, [b"a" * 100], 1, 0)
            append_marker(log, 1, committed=False)
            append(log, [b"b" * 300])
        append_transactional(log, [b"c"], 2, 0)
        append_marker(log, 2, committed=False)
        end, count = log.log_end_offset, len(log.segments)
        manager.close()
        open_manager(root, config, files).close(clean=False)
        if is_damaged:
            (root / "topic-0" / f"{0:020}.txnindex").write_bytes(b"torn")
        manager = open_manager(root, config, files)
        log = open_log(manager)
        values = read_committed(log, 0)
        append(log, [b"d" * 450])
        assert log.segments.bases[-1] == end, "a roll at the recovery point"
        assert len(log.segments) == count + 1 == 2 + is_damaged
        manager.close(clean=False)
        files.crash(root, random.Random(seed))
        manager = open_manager(root, config, files)
        found = read_committed(open_log(manager), 0)
        manager.close(clean=False)
        assert [each for each in found if each[0] < end] == values, seed


def test_removed_index_does_not_hide_committed_records_after_another_power_cut(
    tmp_path: Path,
) -> None:
    """The first power cut loses the only marker of the segment, but not the entry of its index."""
    for seed in range(20):
        files = FaultyFiles(loses_names=True)
        root = tmp_path / str(seed)
        root.mkdir()
        manager = open_manager(root, CONFIG, files)
        log = open_log(manager)
        append_transactional(log, [b"c"], 2, 0)
        manager.close()
        log = open_log(manager := open_manager(root, CONFIG, files))
        segment = log.segments.active
        size = segment.size
        append_marker(log, 2, committed=False)
        assert segment.txn_index is not None
        segment.txn_index.sync()
        files.fsync_dir(log.directory)
        path = Path(segment.file.path)
        manager.close(clean=False)
        path.write_bytes(path.read_bytes()[:size])
        log = open_log(manager := open_manager(root, CONFIG, files))
        assert log.log_end_offset == log.recovery_point == 1
        log.roll(NOW_MS)
        append_marker(log, 2, committed=True)
        manager.close(clean=False)
        files.crash(root, random.Random(seed))
        log = open_log(manager := open_manager(root, CONFIG, files))
        if log.log_end_offset == 1:
            append_marker(log, 2, committed=True)
        log.advance_high_watermark(log.log_end_offset)
        found = read_committed(log, 0)
        manager.close(clean=False)
        assert [value for _, value in found] == [b"c"], seed


def test_truncation_cuts_the_index_and_reopens_the_ended_transaction(log: UnifiedLog) -> None:
    append_transactional(log, [b"a"], 1, 0)
    append_marker(log, 1, committed=False)
    append_transactional(log, [b"b"], 1, 1)
    append_marker(log, 1, committed=False)
    truncate_to(log, 3)
    assert log.segments.aborted_transactions(0, END) == [(1, 0)]
    assert log.last_stable_offset == 2
    truncate_to(log, 1)
    assert log.segments.aborted_transactions(0, END) == []
    assert log.last_stable_offset == 0
    append_marker(log, 1, committed=False)
    assert log.segments.aborted_transactions(0, END) == [(1, 0)]


def test_truncation_removes_the_producer_state_of_removed_batches(tmp_path: Path) -> None:
    """A removed batch is no duplicate when it is sent again, and a kept one still is. A start finds
    no snapshot above the log's end."""
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    sent = {"producer_id": 9, "producer_epoch": 0}
    for at in range(12):
        append(log, [bytes(300)], base_sequence=at, **sent)
    assert len(log.segments) > 2
    truncate_to(log, 5)
    snapshots = sorted(int(path.stem) for path in (tmp_path / str(TP)).glob("*.snapshot"))
    assert snapshots and snapshots[-1] <= 5
    for restarted in (False, True):
        if restarted:
            manager.close(clean=False)
            manager = open_manager(tmp_path, CONFIG)
            log = open_log(manager)
        assert append(log, [bytes(300)], base_sequence=4, **sent).duplicate
        gap = error_of(append, log, [bytes(300)], base_sequence=6, **sent)
        assert gap is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = append(log, [bytes(300)], base_sequence=5, **sent)
    assert (again.duplicate, again.first_offset) == (False, 5)
    manager.close()


def test_transaction_index_is_deleted_with_its_segment(tmp_path: Path, log: UnifiedLog) -> None:
    for at in range(12):
        append_transactional(log, [bytes(100)], 1, at)
        append_marker(log, 1, committed=False)
    log.delete_records(log.segments.bases[2])
    log.delete_old_segments(NOW_MS)
    log.log_dir.remove_due(NOW_MS)
    found = sorted(int(path.stem) for path in (tmp_path / str(TP)).glob("*.txnindex"))
    assert found == log.segments.bases


def test_full_disk_leaves_neither_marker_nor_entry(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    log = open_log(manager)
    append_transactional(log, [b"a"], 1, 0)
    for space in (10, 40):
        files.space_left = space
        assert error_of(append_marker, log, 1, committed=False) is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.last_stable_offset == 0
        assert log.segments.aborted_transactions(0, END) == []
    files.space_left = None
    append_marker(log, 1, committed=False)
    assert log.segments.aborted_transactions(0, END) == [(1, 0)]
    assert [record.offset for record in read_all(log)] == [0, 1]
    manager.close()


def test_lack_of_descriptors_leaves_neither_marker_nor_entry(tmp_path: Path) -> None:
    """An entry without its marker would mark too much as decided: a fetch of the first two offsets
    would miss what producer 2 aborts."""
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    log = open_log(manager)
    append_transactional(log, [b"a"], 1, 0)
    log.log_dir.pool.release(log.segments.active.file)

    def scarce(path: str, flags: int) -> int:
        if path.endswith(".log"):
            raise OSError(errno.EMFILE, "too many open files")
        return FaultyFiles.open(files, path, flags)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "open", scarce)
        assert error_of(append_marker, log, 1, committed=False) is ErrorCode.KAFKA_STORAGE_ERROR
    append_transactional(log, [b"b"], 2, 0)
    append_marker(log, 1, committed=False)
    append_marker(log, 2, committed=False)
    assert log.segments.aborted_transactions(0, 2) == [(1, 0), (2, 1)]
    manager.close()


def test_ended_transactions_are_removed_without_readers(log: UnifiedLog) -> None:
    for at in range(50):
        append_transactional(log, [b"a"], 1, at)
        append_marker(log, 1, committed=True)
    assert len(log.producers.unreplicated) <= 2


def test_a_marker_is_never_too_large(log: UnifiedLog) -> None:
    """`max.message.bytes` may be lowered while a transaction is open, but it has to end."""
    append_transactional(log, [b"a"], 1, 0)
    log.update_config(replace(CONFIG, max_message_bytes=10))
    append_marker(log, 1, committed=True)
    assert log.last_stable_offset == 2


def test_power_cut_after_all_records_were_deleted_brings_back_no_open_transaction(
    tmp_path: Path,
) -> None:
    """The snapshot at the log start is lost, and an earlier one with the transaction exists."""
    config = replace(CONFIG, segment_bytes=400)
    manager = open_manager(tmp_path, config)
    log = open_log(manager)
    append_transactional(log, [b"a" * 300], 7, 0)
    append(log, [b"b" * 300])
    directory = Path(log.directory)
    files = [*directory.glob("*.snapshot"), *directory.glob("*.odradek-window")]
    earlier = {path: path.read_bytes() for path in files}
    assert earlier
    append_marker(log, 7, committed=True)
    append(log, [b"b" * 300])
    log.flush()
    end = log.log_end_offset
    log.delete_records(end)
    log.roll(NOW_MS)
    retain(manager, NOW_MS)
    manager.checkpoint()
    manager.close(clean=False)
    for path in directory.glob(f"{end:020d}.*"):
        path.unlink()
    for path, data in earlier.items():
        path.write_bytes(data)
    for _ in range(2):
        manager = open_manager(tmp_path, config)
        log = open_log(manager)
        append(log, [b"c"])
        assert log.log_start_offset == end
        assert not log.producers.ongoing
        assert log.last_stable_offset == log.log_end_offset
        manager.close(clean=False)
