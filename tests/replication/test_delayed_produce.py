"""Produce requests that wait for the high watermark."""

from __future__ import annotations

from typing import Any

from odradek.errors import ErrorCode
from odradek.replication.delayed_produce import DelayedProduce
from odradek.replication.partition import Partition
from tests.replication.builders import has_delayed_operations
from tests.replication.fakes import BATCH, ListLog, partition_of


def flushing(index: int) -> Partition:
    """Return a partition with one record that waits for a flush."""
    log = ListLog()
    log.must_flush = True
    partition = partition_of(log, index=index)
    partition.append(BATCH, -1, 0)
    return partition


def delayed(*partitions: Partition, offset: int = 1) -> tuple[DelayedProduce, list[Any]]:
    ended: list[Any] = []
    operation = DelayedProduce(dict.fromkeys(partitions, offset), ended.append)
    operation.watch()
    return operation, ended


def test_produce_completes_when_all_partitions_committed_or_failed() -> None:
    first, second = flushing(0), flushing(1)
    operation, ended = delayed(first, second)
    first.flushed(1)
    assert not ended
    second.stop(ErrorCode.KAFKA_STORAGE_ERROR)
    assert ended == [{second: ErrorCode.KAFKA_STORAGE_ERROR}]
    operation.expire()
    assert len(ended) == 1


def test_partition_that_has_not_committed_in_time_has_an_error() -> None:
    first, second = flushing(0), flushing(1)
    operation, ended = delayed(first, second)
    first.flushed(1)
    operation.expire()
    assert ended == [{second: ErrorCode.REQUEST_TIMED_OUT}]
    assert not has_delayed_operations(second)
    second.flushed(1)
    assert len(ended) == 1


def test_produce_that_is_committed_before_it_waits_completes_at_once() -> None:
    """A flush may end between the append of a long request and its wait."""
    first, second = flushing(0), flushing(1)
    first.flushed(1)
    second.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    _, ended = delayed(first, second)
    assert ended == [{second: ErrorCode.NOT_LEADER_OR_FOLLOWER}]


def test_produces_complete_in_the_order_of_their_offsets() -> None:
    partition = flushing(0)
    partition.append(BATCH, -1, 0)
    later, later_ended = delayed(partition, offset=2)
    _, earlier_ended = delayed(partition, offset=1)
    partition.flushed(1)
    assert (earlier_ended, later_ended) == ([{}], [])
    partition.flushed(2)
    assert later_ended == [{}]
    assert later.completed
