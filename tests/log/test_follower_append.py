"""Appends as follower: a log that is fed with a leader's bytes equals the leader's log."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_BYTES,
    LEADER_FIELDS,
    LOG_OVERHEAD,
    Compression,
    parse_header,
    write_crc,
)
from odradek.records.batch_run import BATCHES_A_RUN_MAX
from odradek.records.checksum import crc32c
from odradek.records.record import iter_batches
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_marker,
    append_transactional,
    batch_of,
    offset_for_timestamp,
    open_manager,
    read_committed,
)

LEADER, FOLLOWER = TopicPartition("leader", 0), TopicPartition("follower", 0)
CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=100)
EPOCH = 99

steps = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.lists(st.integers(0, 90), min_size=1, max_size=4)),
        st.tuples(st.just("packed"), st.lists(st.integers(0, 90), min_size=1, max_size=4)),
        st.tuples(st.just("idempotent"), st.sampled_from([1, 2])),
        st.tuples(st.just("transactional"), st.sampled_from([3, 4])),
        st.tuples(st.just("commit"), st.sampled_from([3, 4])),
        st.tuples(st.just("abort"), st.sampled_from([3, 4])),
        st.tuples(st.just("epoch"), st.integers(1, 3)),
        st.tuples(st.just("producer epoch"), st.sampled_from([1, 2])),
    ),
    min_size=1,
    max_size=40,
)


class Leader:
    """A leader's log that takes the steps of a test."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.epoch = 0
        self.producer_epochs = {1: 0, 2: 0}

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        entry = self.log.producers.producers.get(producer_id)
        return 0 if entry is None or entry.epoch != epoch else entry.last_sequence + 1

    def take(self, kind: str, value: object) -> None:
        log = self.log
        if kind in ("plain", "packed"):
            assert isinstance(value, list)
            values = [b"%d" % log.log_end_offset + b"." * size for size in value]
            stamps = [NOW_MS + size for size in value]
            packed = Compression.ZSTD if kind == "packed" else Compression.NONE
            batch = batch_of(values, timestamps=stamps, compression=packed)
            log.append_as_leader(memoryview(batch), self.epoch, now_ms=NOW_MS)
            return
        assert isinstance(value, int)
        if kind == "epoch":
            self.epoch += value
        elif kind == "producer epoch":
            self.producer_epochs[value] += 1
        elif kind == "idempotent":
            epoch = self.producer_epochs[value]
            sequence = self.next_sequence(value, epoch)
            options = {"producer_id": value, "producer_epoch": epoch, "base_sequence": sequence}
            append(log, [b"idempotent"] * 2, self.epoch, **options)
        elif kind == "transactional":
            sequence = self.next_sequence(value, 0)
            append_transactional(log, [b"txn"] * 2, value, sequence, leader_epoch=self.epoch)
        else:
            committed = kind == "commit"
            append_marker(log, value, committed=committed, leader_epoch=self.epoch)


def bytes_of(log: UnifiedLog) -> bytes:
    return b"".join(
        Path(segment.file.path).read_bytes() for segment in log.segments if segment.size
    )


def feed(follower: UnifiedLog, records: bytes, sizes: list[int], leader_epoch: int = EPOCH) -> None:
    """Append the records in responses of these sizes, in turn."""
    position, at = 0, 0
    while position < len(records):
        first = parse_header(records, position).size_bytes
        size = max(sizes[at % len(sizes)], first)
        response = memoryview(records)[position : position + size]
        info = follower.append_as_follower(response, leader_epoch, now_ms=NOW_MS)
        assert 0 < info.size_bytes <= size
        assert info.log_end_offset == follower.log_end_offset
        position, at = position + info.size_bytes, at + 1


def assert_equal(follower: UnifiedLog, leader: UnifiedLog) -> None:
    end = leader.log_end_offset
    assert follower.log_end_offset == end
    assert bytes_of(follower) == bytes_of(leader)
    assert follower.epochs.entries() == leader.epochs.entries()
    assert follower.producers.encode_snapshot() == leader.producers.encode_snapshot()
    assert follower.producers.encode_window() == leader.producers.encode_window()
    assert follower.producers.ongoing == leader.producers.ongoing
    follower.advance_high_watermark(end)
    leader.advance_high_watermark(end)
    assert follower.last_stable_offset == leader.last_stable_offset
    assert read_committed(follower, 0) == read_committed(leader, 0)
    for first in range(0, end, 7):
        found = [log.segments.aborted_transactions(first, end) for log in (leader, follower)]
        assert found[0] == found[1]
    for age in range(0, 95, 9):
        assert offset_for_timestamp(follower, NOW_MS + age) == offset_for_timestamp(
            leader, NOW_MS + age
        )


def open_logs(root: Path, **config: int) -> tuple[LogManager, UnifiedLog, UnifiedLog]:
    manager = open_manager(root, CONFIG)
    other = LogConfig(**{"segment_bytes": 1_000, "index_interval_bytes": 100, **config})  # type: ignore[arg-type]
    leader = manager.create(LEADER, TOPIC_ID, CONFIG)
    return manager, leader, manager.create(FOLLOWER, TOPIC_ID, other)


@settings(max_examples=60, deadline=None)
@given(
    steps=steps,
    sizes=st.lists(st.sampled_from([1, 100, 300, 1_000, 10_000]), min_size=1, max_size=5),
    segment_bytes=st.sampled_from([80, 600, 1_000, 100_000]),
    interval=st.sampled_from([0, 100, 4_096]),
)
def test_follower_equals_its_leader_with_runs_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, object]],
    sizes: list[int],
    segment_bytes: int,
    interval: int,
) -> None:
    root = tmp_path_factory.mktemp("follower")
    manager, log, follower = open_logs(
        root, segment_bytes=segment_bytes, index_interval_bytes=interval
    )
    leader = Leader(log)
    for kind, value in steps:
        leader.take(kind, value)
    feed(follower, bytes_of(log), sizes)
    assert_equal(follower, log)
    manager.close(clean=False)
    manager = open_manager(root, CONFIG)
    found = [manager.get(tp) for tp in (FOLLOWER, LEADER)]
    if log.log_end_offset:
        assert found[0] is not None and found[1] is not None
        assert_equal(found[0], found[1])
    manager.close()


@pytest.mark.parametrize("size", [1, 300, 10_000])
def test_follower_maintains_the_aborted_index(tmp_path: Path, size: int) -> None:
    """Producer 4 commits, and its records are between those of producer 3, which aborts."""
    manager, log, follower = open_logs(tmp_path)
    leader = Leader(log)
    for kind, producer_id in (
        ("transactional", 3),
        ("transactional", 4),
        ("commit", 4),
        ("abort", 3),
    ):
        leader.take(kind, producer_id)
    leader.take("plain", [1])
    feed(follower, bytes_of(log), [size])
    assert follower.segments.aborted_transactions(0, 7) == [(3, 0)]
    follower.advance_high_watermark(7)
    assert [offset for offset, _ in read_committed(follower, 0)] == [2, 3, 6]
    assert_equal(follower, log)
    manager.close()
    manager = open_manager(tmp_path, CONFIG)
    found = manager.get(FOLLOWER)
    assert found is not None
    assert found.segments.aborted_transactions(0, 7) == [(3, 0)]
    manager.close()


def filled(log: UnifiedLog, count: int) -> bytes:
    """Append batches of an idempotent producer in three epochs. Return their bytes."""
    leader = Leader(log)
    for at in range(count):
        leader.epoch = 3 * at // count
        leader.take("idempotent", 1)
    return bytes_of(log)


def state_of(log: UnifiedLog) -> tuple[object, ...]:
    on_disk = bytes_of(log) if log.log_end_offset else b""
    return (
        log.log_end_offset,
        on_disk,
        log.epochs.entries(),
        log.producers.encode_window(),
        len(log.segments),
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_run_with_an_invalid_batch_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    manager, leader, follower = open_logs(tmp_path_factory.mktemp("torn"))
    records = filled(leader, 12)
    batches = list(iter_batches(records))
    known = data.draw(st.integers(0, 6), label="batches of the follower")
    if known:
        feed(follower, b"".join(batches[:known]), [10_000])
    run = bytearray(b"".join(batches[known:]))
    kind = data.draw(st.sampled_from(["flip", "offset", "epoch falls", "epoch ahead", "again"]))
    number = data.draw(st.integers(0, 11 - known), label="batch")
    position = sum(map(len, batches[known : known + number]))
    leader_epoch = 2
    if kind == "flip":
        # A wrong length or offset looks like a part of a batch or a gap, which are allowed.
        at = data.draw(st.integers(16, len(batches[known + number]) - 1), label="byte")
        run[position + at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    elif kind == "offset":
        first = parse_header(run, position).base_offset
        run[position : position + 8] = max(first - 1, -1).to_bytes(8, "big", signed=True)
    elif kind == "epoch falls":
        run[position + 12 : position + 16] = (2).to_bytes(4, "big")
        run += run[-len(batches[-1]) :]
        run[-len(batches[-1]) : -len(batches[-1]) + 8] = (24).to_bytes(8, "big")
        run[-len(batches[-1]) + 12 : -len(batches[-1]) + 16] = (1).to_bytes(4, "big")
    elif kind == "epoch ahead":
        run[position + 12 : position + 16] = (3).to_bytes(4, "big")
    else:
        run[position:position] = batches[known - 1] if known else batches[-1]
    before = state_of(follower)
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(run), leader_epoch, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert state_of(follower) == before
    feed(follower, b"".join(batches[known:]), [300])
    assert_equal(follower, leader)
    manager.close()


@pytest.mark.parametrize("cut", [1, 60, HEADER_BYTES, HEADER_BYTES + 3])
def test_part_of_a_batch_at_the_end_is_left_out(tmp_path: Path, cut: int) -> None:
    """A leader cuts its response at the size limit of the fetch."""
    manager, leader, follower = open_logs(tmp_path)
    batches = list(iter_batches(filled(leader, 3)))
    response = memoryview(bytes(batches[0]) + bytes(batches[1]) + bytes(batches[2][:cut]))
    info = follower.append_as_follower(response, EPOCH, now_ms=NOW_MS)
    assert (info.log_end_offset, info.batches) == (4, 2)
    assert info.size_bytes == len(batches[0]) + len(batches[1])
    with pytest.raises(KafkaError):
        follower.append_as_follower(memoryview(bytes(batches[2][:cut])), EPOCH, now_ms=NOW_MS)
    assert follower.log_end_offset == 4
    manager.close()


@pytest.mark.parametrize("size", [-1, 0, LOG_OVERHEAD, ATTRIBUTES_POSITION, HEADER_BYTES - 1])
def test_batch_that_is_shorter_than_a_header_is_refused(tmp_path: Path, size: int) -> None:
    manager, _, follower = open_logs(tmp_path)
    batch = batch_of([b"x"])
    LEADER_FIELDS.pack_into(batch, 0, 0, size - LOG_OVERHEAD, 0)
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION : max(size, ATTRIBUTES_POSITION)])
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(batch), EPOCH, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.log_end_offset == 0
    manager.close()


@pytest.mark.parametrize("base_offset", [0, 9])
@pytest.mark.parametrize("delta", [-1, -9, 2**31 - 1])
def test_batch_that_ends_before_it_begins_or_is_too_long_is_refused(
    tmp_path: Path, base_offset: int, delta: int
) -> None:
    manager, leader, follower = open_logs(tmp_path)
    before = filled(leader, 2) if base_offset else b""
    header = parse_header(batch := batch_of([b"x"]))
    header = header._replace(base_offset=base_offset, last_offset_delta=delta)
    HEADER.pack_into(batch, 0, *header._replace(partition_leader_epoch=EPOCH))
    write_crc(batch)
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(before + batch), EPOCH, now_ms=NOW_MS)
    assert type(caught.value) is KafkaError
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.log_end_offset == 0
    manager.close()


@pytest.mark.parametrize("others", [0, 2])
def test_batch_without_records_at_the_end_is_appended(tmp_path: Path, others: int) -> None:
    """Compaction keeps the header of some batches without their records."""
    manager, leader, follower = open_logs(tmp_path)
    before = filled(leader, others)
    header = parse_header(batch_of([b"x"]))
    empty = bytearray(HEADER_BYTES)
    header = header._replace(base_offset=9, batch_length=HEADER_BYTES - LOG_OVERHEAD)
    HEADER.pack_into(empty, 0, *header._replace(partition_leader_epoch=EPOCH, record_count=0))
    write_crc(empty)
    info = follower.append_as_follower(memoryview(before + empty), EPOCH, now_ms=NOW_MS)
    assert (info.batches, info.log_end_offset) == (others + 1, 10)
    assert bytes_of(follower) == before + empty
    manager.close()


def test_run_is_written_with_one_system_call_for_each_segment(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    records = filled(manager.create(LEADER, TOPIC_ID, CONFIG), 9)
    follower = manager.create(FOLLOWER, TOPIC_ID, LogConfig())
    first = parse_header(records).size_bytes
    follower.append_as_follower(memoryview(records[:first]), EPOCH, now_ms=NOW_MS)
    follower.epochs.assign(1, 6)
    follower.epochs.assign(2, 12)
    follower.write_leader_epochs()
    writes = files.writes
    follower.append_as_follower(memoryview(records[first:]), EPOCH, now_ms=NOW_MS)
    assert (files.writes, follower.log_end_offset) == (writes + 1, 18)
    manager.close()


def test_run_of_many_batches_is_appended_in_parts(tmp_path: Path) -> None:
    manager, leader, follower = open_logs(tmp_path, segment_bytes=10**6)
    leader.update_config(LogConfig())
    for _ in range(BATCHES_A_RUN_MAX + 5):
        append(leader, [b""])
    records = bytes_of(leader)
    info = follower.append_as_follower(memoryview(records), EPOCH, now_ms=NOW_MS)
    assert info.log_end_offset == BATCHES_A_RUN_MAX
    feed(follower, records[info.size_bytes :], [10**6])
    assert_equal(follower, leader)
    manager.close()


def test_gap_of_compaction_is_accepted_also_if_no_index_entry_can_express_it(
    tmp_path: Path,
) -> None:
    manager, _, follower = open_logs(tmp_path)
    for offset in (5, 9, 2**31 + 3, 2**33):
        batch = batch_of([b"kept"])
        batch[:8] = offset.to_bytes(8, "big")
        batch[12:16] = bytes(4)
        follower.append_as_follower(memoryview(batch), 0, now_ms=NOW_MS)
    assert [base for base in follower.segments.bases if base] == [10, 2**33]
    assert [value for _, value in read_committed(follower, 0)] == []
    follower.advance_high_watermark(2**34)
    assert [offset for offset, _ in read_committed(follower, 0)] == [5, 9, 2**31 + 3, 2**33]
    manager.close()


def test_full_disk_keeps_whole_batches_and_the_next_append_continues(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    leader = manager.create(LEADER, TOPIC_ID, CONFIG)
    records = filled(leader, 30)
    follower = manager.create(FOLLOWER, TOPIC_ID, CONFIG)
    rng = random.Random(7)
    position = 0
    while position < len(records):
        files.space_left = rng.choice([0, 50, 300, 1_500, None])
        try:
            info = follower.append_as_follower(memoryview(records)[position:], EPOCH, now_ms=NOW_MS)
            position += info.size_bytes
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            position = len(bytes_of(follower)) if follower.log_end_offset else 0
            assert records.startswith(bytes_of(follower)) if position else True
        assert not follower.log_dir.offline
    files.space_left = None
    assert_equal(follower, leader)
    manager.close(clean=False)


def test_io_error_takes_the_directory_offline(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    records = filled(manager.create(LEADER, TOPIC_ID, CONFIG), 3)
    follower = manager.create(FOLLOWER, TOPIC_ID, CONFIG)
    files.fail_pwrite = OSError(errno.EIO, "input/output error")
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(memoryview(records), EPOCH, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert follower.log_dir.offline
    manager.close(clean=False)


def test_flush_is_due_after_flush_messages(tmp_path: Path) -> None:
    """The follower's next fetch must not precede the flush."""
    manager, leader, follower = open_logs(tmp_path, flush_messages=4)
    batches = list(iter_batches(filled(leader, 3)))
    due = [
        follower.append_as_follower(memoryview(batch), EPOCH, now_ms=NOW_MS).must_flush
        for batch in batches
    ]
    assert due == [False, True, True]
    follower.flush()
    assert follower.unflushed_messages == 0
    manager.close()


def test_log_append_time_of_the_leader_is_not_changed(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    config = LogConfig(message_timestamp_type="LogAppendTime")
    leader, follower = (manager.create(tp, TOPIC_ID, config) for tp in (LEADER, FOLLOWER))
    append(leader, [b"x"], now_ms=NOW_MS + 5)
    follower.append_as_follower(memoryview(bytes_of(leader)), EPOCH, now_ms=NOW_MS + 999)
    assert bytes_of(follower) == bytes_of(leader)
    manager.close()


def test_follower_takes_high_watermark_and_log_start_of_its_leader(tmp_path: Path) -> None:
    """The high watermark is at most the follower's own log end (rule R8)."""
    manager, leader, follower = open_logs(tmp_path)
    batches = list(iter_batches(filled(leader, 6)))
    feed(follower, b"".join(batches[:4]), [10_000])
    assert follower.advance_high_watermark(12)
    assert follower.high_watermark == follower.log_end_offset == 8
    assert not follower.advance_high_watermark(5)
    follower.raise_log_start(3)
    manager.maintain(NOW_MS)
    manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG)
    found = manager.get(FOLLOWER)
    assert found is not None
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (3, 8, 8)
    manager.close(clean=False)
