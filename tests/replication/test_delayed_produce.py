"""Produce requests that wait for the high watermark."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.replication import delayed_produce
from odradek.replication.delayed_produce import DelayedProduce
from odradek.replication.partition import Partition
from tests.helpers.time_slices import count_slices
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


@pytest.mark.parametrize("change", ["commit", "new epoch", "failure", "timeout", "nothing"])
def test_many_partitions_are_watched_in_time_slices(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(delayed_produce, "WATCHES_PER_SLICE", 2)
    slices = count_slices(monkeypatch)
    partitions = [flushing(index) for index in range(5)]
    last = partitions[-1]

    async def main() -> list[Any]:
        operation, ended = delayed(*partitions)
        for each in partitions[:-1]:
            each.flushed(1)
        assert not ended, "the last one is not watched yet"
        if change == "commit":
            last.flushed(1)
        elif change == "new epoch":
            last.flushed(1)
            last.leader_epoch += 1  # the committed record may be another one
        elif change == "failure":
            last.stop(ErrorCode.KAFKA_STORAGE_ERROR)
        elif change == "timeout":
            operation.expire()
        for _ in range(10):
            await asyncio.sleep(0)
        if change == "nothing":
            assert not ended
            last.flushed(1)
        return ended

    expected = {
        "new epoch": {last: ErrorCode.NOT_LEADER_OR_FOLLOWER},
        "failure": {last: ErrorCode.KAFKA_STORAGE_ERROR},
        "timeout": {last: ErrorCode.REQUEST_TIMED_OUT},
    }
    assert asyncio.run(main()) == [expected.get(change, {})]
    assert len(slices) == 2
    assert not any(map(has_delayed_operations, partitions))


def test_many_partitions_are_left_in_time_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_produce, "WATCHES_PER_SLICE", 2)
    partitions = [flushing(index) for index in range(5)]

    async def main() -> None:
        operation, ended = delayed(*partitions)
        for _ in range(10):
            await asyncio.sleep(0)
        operation.expire()
        timed_out = dict.fromkeys(partitions, ErrorCode.REQUEST_TIMED_OUT)
        assert ended == [timed_out]
        assert list(map(has_delayed_operations, partitions)) == [False] * 2 + [True] * 3
        partitions[-1].stop(ErrorCode.KAFKA_STORAGE_ERROR)
        for _ in range(10):
            await asyncio.sleep(0)
        assert ended == [timed_out], "the response is made already"
        assert not any(map(has_delayed_operations, partitions))

    asyncio.run(main())


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
