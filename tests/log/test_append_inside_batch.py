"""Logs that begin inside a batch of their leader, because DeleteRecords moved its start there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import LogManager
from odradek.log.truncation import LogTruncations
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import LEADER_FIELDS, parse_header
from odradek.records.batch_run import UnexpectedAppendOffset
from tests.helpers.crashing_files import Crashed, CrashingFiles
from tests.log.builders import NOW_MS, TOPIC_ID, append, batch_of, open_manager, values_of

LEADER, FOLLOWER = TopicPartition("leader", 0), TopicPartition("follower", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)
EPOCH = 9


def values_from(first: int, end: int) -> list[bytes]:
    return [b"record %d " % offset * 4 for offset in range(first, end)]


def filled(manager: LogManager, sizes: list[int]) -> UnifiedLog:
    """Return a leader's log with batches of so many records. Each batch has an epoch of its own."""
    log = manager.create(LEADER, TOPIC_ID)
    for epoch, size in enumerate(sizes):
        end = log.log_end_offset
        options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": end}
        append(log, values_from(end, end + size), epoch, **options)
    return log


def sent(leader: UnifiedLog, offset: int) -> memoryview:
    """Return what the leader sends for a fetch at the offset."""
    found = leader.read(offset, 10**6, leader.log_end_offset, min_one_message=True)
    assert found.region is not None
    data = found.region.read()
    found.region.close()
    return memoryview(bytearray(data))


def take(follower: UnifiedLog, leader: UnifiedLog) -> None:
    """Fetch from the leader as a `ReplicaFetcher` does, until the log ends are equal."""
    if follower.log_end_offset < leader.log_start_offset:
        begin_at(follower, leader.log_start_offset)
    while follower.log_end_offset < leader.log_end_offset:
        records = sent(leader, follower.log_end_offset)
        try:
            follower.append_as_follower(records, EPOCH, now_ms=NOW_MS)
        except UnexpectedAppendOffset as error:
            begin_at(follower, follower.log_end_offset, error.first_offset)
    follower.advance_high_watermark(leader.high_watermark)
    follower.raise_log_start(leader.log_start_offset)


def begin_at(log: UnifiedLog, offset: int, base_offset: int | None = None) -> None:
    truncations = LogTruncations()
    truncations.truncate_fully_and_start_at(log, offset, base_offset)
    assert truncations.execute() == {}
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset,) * 3


def assert_follows(follower: UnifiedLog, leader: UnifiedLog) -> None:
    assert follower.log_start_offset == leader.log_start_offset
    assert follower.log_end_offset == leader.log_end_offset
    assert values_of(follower) == values_from(leader.log_start_offset, leader.log_end_offset)
    assert follower.epochs.entries() == leader.epochs.entries()
    sequences = [each.producers.producers[1].last_sequence for each in (follower, leader)]
    assert sequences[0] == sequences[1]


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    start=st.integers(0, 40),
    own=st.integers(0, 40),
    stop=st.sampled_from(["clean", "kill"]),
)
def test_follower_of_a_leader_that_starts_inside_a_batch_equals_it(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], start: int, own: int, stop: str
) -> None:
    """The follower has `own` records of an earlier leader, or none."""
    root = tmp_path_factory.mktemp("inside")
    manager = open_manager(root, CONFIG)
    leader, follower = filled(manager, sizes), manager.create(FOLLOWER, TOPIC_ID)
    leader.delete_records(min(start, leader.log_end_offset - 1))
    for _ in range(min(own, leader.log_start_offset)):
        append(follower, [b"of an earlier leader"])
    take(follower, leader)
    assert_follows(follower, leader)
    first = leader.log_start_offset
    manager.close(clean=stop == "clean")
    manager = open_manager(root, CONFIG)
    leader, follower = manager.create(LEADER, TOPIC_ID), manager.create(FOLLOWER, TOPIC_ID)
    for log in (leader, follower):
        log.advance_high_watermark(log.log_end_offset)
        log.raise_log_start(first)  # a kill can lose it, as in Kafka
    assert_follows(follower, leader)
    manager.close()


@settings(max_examples=100, deadline=None)
@given(
    at=st.integers(0, 40),
    seed=st.none() | st.integers(0, 2**16),
    own=st.sampled_from([0, 3, 6]),
    flushed=st.booleans(),
)
def test_crash_at_any_step_leaves_a_log_that_begins_there_again(
    tmp_path_factory: pytest.TempPathFactory, at: int, seed: int | None, own: int, flushed: bool
) -> None:
    """A SIGKILL (no seed) or a power cut, in the truncation, the append or the flush."""
    root = tmp_path_factory.mktemp("inside")
    leaders = open_manager(root / "leader", CONFIG)
    leader = filled(leaders, [2, 3, 4, 2])
    leader.delete_records(6)
    files = CrashingFiles()
    manager = open_manager(root / "follower", CONFIG, files)
    follower = manager.create(FOLLOWER, TOPIC_ID)
    for number in range(own):
        append(follower, [b"of an earlier leader %d" % number])
    if flushed:
        follower.flush()
        manager.checkpoint()
    files.crash_at, has_crashed = at, False
    try:
        take(follower, leader)
        follower.flush()
    except Crashed:
        has_crashed = True
    files.crash_at = None
    manager.close(clean=False)
    if seed is not None:
        files.crash(root / "follower", random.Random(seed))
    manager = open_manager(root / "follower", CONFIG, files)
    follower = manager.create(FOLLOWER, TOPIC_ID)
    if not has_crashed:
        assert_follows(follower, leader)
    elif follower.log_start_offset < 6:
        assert follower.log_end_offset <= own, "no record of the leader without its log start"
        expected = [b"of an earlier leader %d" % number for number in range(own)]
        assert values_of(follower) == expected[: follower.log_end_offset]
    else:
        assert values_of(follower) == values_from(6, follower.log_end_offset)
    take(follower, leader)
    assert_follows(follower, leader)
    manager.close()
    manager = open_manager(root / "follower", CONFIG, files)
    assert_follows(manager.create(FOLLOWER, TOPIC_ID), leader)
    manager.close()
    leaders.close()


@pytest.mark.parametrize("stop", ["clean", "kill"])
@pytest.mark.parametrize("base_offset", [0, 2])
def test_empty_log_inside_a_batch_keeps_its_start_over_a_restart(
    tmp_path: Path, base_offset: int, stop: str
) -> None:
    """The restart comes between the truncation and the append."""
    manager = open_manager(tmp_path, CONFIG)
    leader, follower = filled(manager, [2, 4]), manager.create(FOLLOWER, TOPIC_ID)
    leader.delete_records(4)
    begin_at(follower, 4, base_offset)
    manager.close(clean=stop == "clean")
    manager = open_manager(tmp_path, CONFIG)
    leader, follower = manager.create(LEADER, TOPIC_ID), manager.create(FOLLOWER, TOPIC_ID)
    assert (follower.log_start_offset, follower.log_end_offset) == (4, 4)
    take(follower, leader)
    assert values_of(follower) == values_from(4, 6)
    manager.close()


def test_leader_appends_to_an_empty_log_inside_a_batch(tmp_path: Path) -> None:
    """The follower was elected before the batch came."""
    manager = open_manager(tmp_path, CONFIG)
    log = manager.create(FOLLOWER, TOPIC_ID)
    begin_at(log, 4, 2)
    assert append(log, [b"first"], 1).first_offset == 4
    assert values_of(log) == [b"first"]
    manager.close(clean=False)
    log = open_manager(tmp_path, CONFIG).create(FOLLOWER, TOPIC_ID)
    assert (log.log_start_offset, values_of(log)) == (4, [b"first"])


def test_batch_that_begins_below_the_end_of_a_log_is_refused_before_anything_changes(
    tmp_path: Path,
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    leader, follower = filled(manager, [2, 4]), manager.create(FOLLOWER, TOPIC_ID)
    append(follower, [b"own"] * 4)
    records = sent(leader, 4)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        follower.append_as_follower(records, EPOCH, now_ms=NOW_MS)
    assert (caught.value.first_offset, caught.value.code) == (2, ErrorCode.CORRUPT_MESSAGE)
    assert values_of(follower) == [b"own"] * 4
    manager.close()


@pytest.mark.parametrize(
    ("base_offset", "records", "is_refused"),
    [(2, 2, True), (2, 3, False), (1, 4, True), (3, 2, False), (-1, 8, True)],
)
def test_first_batch_must_reach_the_end_of_an_empty_log(
    tmp_path: Path, base_offset: int, records: int, is_refused: bool
) -> None:
    """The log ends at 4, and its segment begins at 2."""
    manager = open_manager(tmp_path, CONFIG)
    log = manager.create(FOLLOWER, TOPIC_ID)
    begin_at(log, 4, 2)
    batch = batch_of([b"x"] * records)
    LEADER_FIELDS.pack_into(batch, 0, base_offset, parse_header(batch).batch_length, 0)
    if is_refused:
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(memoryview(batch), EPOCH, now_ms=NOW_MS)
        assert isinstance(caught.value, UnexpectedAppendOffset) == (base_offset == 1)
        assert log.log_end_offset == 4
    else:
        log.append_as_follower(memoryview(batch), EPOCH, now_ms=NOW_MS)
        assert log.log_end_offset == base_offset + records
        assert values_of(log) == [b"x"] * (log.log_end_offset - 4)
    manager.close()


def test_batch_inside_a_log_whose_records_are_all_deleted_is_refused(tmp_path: Path) -> None:
    """The deleted batches are still in the segment, so the log has to be emptied first."""
    manager = open_manager(tmp_path, CONFIG)
    leader, follower = filled(manager, [2, 4]), manager.create(FOLLOWER, TOPIC_ID)
    for _ in range(4):
        append(follower, [b"own"])
    follower.delete_records(4)
    with pytest.raises(UnexpectedAppendOffset):
        follower.append_as_follower(sent(leader, 4), EPOCH, now_ms=NOW_MS)
    manager.close()
