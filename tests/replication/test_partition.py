"""The rules of one partition: acks, high watermark and flushes, leader epochs, diverging
readers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode
from odradek.ids import ZERO_UUID, TopicPartition
from odradek.replication.delayed_fetch import refuse_replica
from odradek.replication.fetch_data import FetchIsolation
from odradek.replication.partition import Partition
from tests.helpers.led_partitions import led
from tests.replication.cluster_fakes import refused
from tests.replication.fakes import BATCH, FakeDelayedOperation, ListLog, partition_of

CONSUMER = FetchIsolation.HIGH_WATERMARK


def diverging(partition: Partition, offset: int, epoch: int) -> tuple[int, int]:
    """Return the divergence of a reader whose last record has `epoch`."""
    data = partition.read(offset, 1, True, CONSUMER, -1, epoch)
    return data.diverging_epoch, data.diverging_end_offset


def test_high_watermark_follows_the_append_and_completes_fetches() -> None:
    log, fetch = ListLog(), FakeDelayedOperation()
    partition = partition_of(log)
    partition.watch_fetch(fetch, CONSUMER)
    partition.append(BATCH, 1, 0)
    assert (log.high_watermark, fetch.size_bytes) == (1, 100)


def test_nothing_is_served_before_leadership() -> None:
    partition = Partition(TopicPartition("t", 0), ZERO_UUID, ListLog())  # type: ignore[arg-type]
    for call in (
        lambda: partition.append(BATCH, 1, 0),
        lambda: partition.read(0, 1, True, CONSUMER),
        lambda: partition.check_leader_epoch(-1),
    ):
        assert refused(call) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_leader_epoch_is_recorded_before_the_partition_serves() -> None:
    log = ListLog()
    log.log_end_offset = 3
    partition_of(log)
    assert log.epochs == [(5, 3)]


def test_empty_log_has_had_no_epoch_but_the_current_one() -> None:
    log = ListLog()
    partition = partition_of(log)
    assert log.epochs == []
    assert partition.earliest_epoch == 5
    assert partition.end_offset_for_epoch(5) == (5, 0)
    assert partition.end_offset_for_epoch(4) == (4, 0)
    assert partition.end_offset_for_epoch(6) == (-1, -1)


@pytest.mark.parametrize(
    ("acks", "isr", "minimum", "replicas", "accepted"),
    [
        (-1, (1,), 2, (1, 2), False),
        (-1, (1, 2), 2, (1, 2), True),
        (-1, (1,), 2, (1,), True),
        (1, (1,), 2, (1, 2), True),
    ],
)
def test_acks_all_needs_min_insync_replicas_but_at_most_all_replicas(
    acks: int, isr: tuple[int, ...], minimum: int, replicas: tuple[int, ...], accepted: bool
) -> None:
    log = ListLog(replace(LogConfig(), min_insync_replicas=minimum))
    partition = partition_of(log, isr, replicas)
    if accepted:
        partition.append(BATCH, acks, 0)
    else:
        code = refused(lambda: partition.append(BATCH, acks, 0))
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.log_end_offset == int(accepted)


def test_high_watermark_waits_for_the_flush_that_is_due() -> None:
    log, reader, producer = ListLog(), FakeDelayedOperation(), FakeDelayedOperation()
    partition = partition_of(log)
    partition.watch_fetch(reader, CONSUMER)
    log.must_flush = True
    partition.append(BATCH, -1, 0)
    partition.watch_produce(producer, 1)
    log.must_flush = False
    partition.append(BATCH, 1, 0)
    assert (log.high_watermark, reader.size_bytes, producer.ended) == (0, 0, [])
    partition.flushed(1)
    assert not partition.flush_due_offset
    assert log.high_watermark == 2
    assert reader.size_bytes > 0
    assert producer.ended == [ErrorCode.NONE]


def test_flush_covers_only_appends_before_it_began() -> None:
    log, first, second = ListLog(), FakeDelayedOperation(), FakeDelayedOperation()
    partition = partition_of(log)
    log.must_flush = True
    partition.append(BATCH, -1, 0)
    partition.append(BATCH, -1, 0)
    partition.watch_produce(first, 1)
    partition.watch_produce(second, 2)
    partition.flushed(1)
    assert partition.flush_due_offset
    assert (log.high_watermark, first.ended, second.ended) == (1, [ErrorCode.NONE], [])
    partition.flushed(2)
    assert not partition.flush_due_offset
    assert second.ended == [ErrorCode.NONE]


def test_repeated_batch_does_not_end_the_flush_that_later_records_wait_for() -> None:
    """A producer sends its batch again while the flush runs, after another producer's batch."""
    log, producer = ListLog(), FakeDelayedOperation()
    partition = partition_of(log)
    log.must_flush = True
    partition.append(BATCH, -1, 0)
    partition.append(BATCH, -1, 0)
    partition.watch_produce(producer, 2)
    log.repeated_offset = 0
    assert partition.append(BATCH, -1, 0).duplicate
    partition.flushed(1)
    assert partition.flush_due_offset
    assert (log.high_watermark, producer.ended) == (1, [])
    partition.flushed(2)
    assert not partition.flush_due_offset
    assert producer.ended == [ErrorCode.NONE]


def test_unchanged_leader_epoch_updates_only_replicas_and_isr() -> None:
    log, reader, producer = ListLog(), FakeDelayedOperation(), FakeDelayedOperation()
    partition = partition_of(log)
    log.must_flush = True
    partition.append(BATCH, -1, 0)
    partition.watch_fetch(reader, CONSUMER)
    partition.watch_produce(producer, 1)
    epochs = list(log.epochs)
    partition.become_leader(led(5, (1, 2), (1, 2)))
    assert (partition.replicas, partition.isr) == ((1, 2), (1, 2))
    assert not partition.commits_on_append
    assert (log.high_watermark, reader.size_bytes, producer.ended) == (0, 0, [])
    assert log.epochs == epochs
    partition.flushed(1)
    assert not partition.flush_due_offset
    assert producer.ended == [ErrorCode.NONE]


def test_new_leader_epoch_waits_for_the_flush_that_is_due() -> None:
    log, producer = ListLog(), FakeDelayedOperation()
    partition = partition_of(log)
    log.must_flush = True
    partition.append(BATCH, -1, 0)
    partition.watch_produce(producer, 1)
    partition.become_leader(led(6))
    assert (partition.leader_epoch, log.epochs) == (6, [(6, 1)])
    assert (log.high_watermark, producer.ended) == (0, [])


def test_older_leader_epoch_changes_nothing() -> None:
    partition = partition_of(ListLog())
    partition.become_leader(led(4, (1, 2), (1, 2)))
    assert (partition.leader_epoch, partition.replicas) == (5, (1,))


@pytest.mark.parametrize("epoch", [0, 5])
def test_partition_is_led_from_the_first_epoch_of_a_topic_on(epoch: int) -> None:
    partition = Partition(TopicPartition("t", 0), ZERO_UUID, ListLog())  # type: ignore[arg-type]
    partition.become_leader(led(epoch))
    partition.append(BATCH, 1, 0)
    partition.check_leader_epoch(epoch)


def test_append_while_a_flush_completes_makes_another_one_due() -> None:
    log = ListLog()
    partition = partition_of(log)
    log.must_flush = True
    partition.append(BATCH, -1, 0)

    class Appender(FakeDelayedOperation):
        def resolve(self, partition: Partition, error: ErrorCode) -> None:
            partition.append(BATCH, -1, 0)

    partition.watch_produce(Appender(), 1)
    partition.flushed(1)
    assert partition.flush_due_offset
    assert log.high_watermark == 1
    partition.flushed(2)
    assert not partition.flush_due_offset


def test_stop_of_the_partition_completes_all_delayed_operations() -> None:
    log, reader, producer = ListLog(), FakeDelayedOperation(), FakeDelayedOperation()
    partition = partition_of(log)
    partition.watch_fetch(reader, CONSUMER)
    partition.watch_produce(producer, 1)
    partition.stop(ErrorCode.KAFKA_STORAGE_ERROR)
    assert reader.interrupts == 1
    assert producer.ended == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert refused(lambda: partition.append(BATCH, 1, 0)) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_reader_with_another_leader_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    partition = partition_of(ListLog())
    assert refused(lambda: partition.read(0, 1, True, CONSUMER, epoch)) is code
    partition.read(0, 1, True, CONSUMER, 5)
    partition.read(0, 1, True, CONSUMER, -1)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (5, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (7, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_f1_follower_compares_the_leader_epoch_first(epoch: int, code: ErrorCode) -> None:
    partition = partition_of(ListLog())
    partition.become_follower(led(6, (1, 2), (1, 2), leader=2))
    assert refused(lambda: partition.check_leader_epoch(epoch)) is code
    assert refused(lambda: partition.read(0, 1, True, CONSUMER, epoch)) is code
    assert refused(lambda: refuse_replica(partition, epoch)) is code


def test_f1_storage_error_precedes_the_leader_epoch() -> None:
    partition = partition_of(ListLog())
    partition.storage_failed()
    for epoch in (-1, 4, 5, 6):
        found = refused(partial(partition.check_leader_epoch, epoch, or_follower=True))
        assert found is ErrorCode.KAFKA_STORAGE_ERROR


def test_r7_readers_see_only_committed_records() -> None:
    log = ListLog()
    partition = partition_of(log)
    partition.append(BATCH, 1, 0)
    log.log_end_offset = 9
    partition.read(0, 77, True, CONSUMER)
    partition.read(0, 77, True, FetchIsolation.LOG_END)
    assert log.reads == [(0, 77, 1, True), (0, 77, 9, True)]


def test_f2_reader_of_an_unknown_epoch_diverges_at_every_offset() -> None:
    """This log has none of its records of that epoch, at any offset."""
    log = ListLog()
    log.log_end_offset = 20
    partition = partition_of(log)
    log.epochs = [(2, 0), (4, 10)]
    for offset in (1, 9, 10, 15):
        assert diverging(partition, offset, 3) == (2, 10)


def test_diverging_reader_gets_the_end_of_its_epoch() -> None:
    log = ListLog()
    log.epochs = [(2, 0), (4, 10)]
    log.log_end_offset = 20
    partition = partition_of(log)
    log.epochs = [(2, 0), (4, 10)]
    assert diverging(partition, 15, 3) == (2, 10)
    assert diverging(partition, 15, 2) == (2, 10)
    assert diverging(partition, 10, 2) == (-1, -1)
    assert (
        refused(lambda: partition.read(0, 1, True, CONSUMER, -1, 1))
        is ErrorCode.OFFSET_OUT_OF_RANGE
    )
    log.log_start_offset = 12
    assert refused(lambda: diverging(partition, 10, 2)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_internal_and_recompressed_partitions_are_opened() -> None:
    log = ListLog()
    partition = partition_of(log)
    assert partition.appends_as_received
    log.config = replace(LogConfig(), compression_type="zstd")
    partition.config_changed()
    assert partition.needs_recompression
    assert not partition.appends_as_received
    topic_partition = TopicPartition("__consumer_offsets", 0)
    offsets = Partition(topic_partition, ZERO_UUID, ListLog())  # type: ignore[arg-type]
    assert offsets.internal
    assert not offsets.appends_as_received
