"""Transactions whose partitions are led by other brokers than their coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster
from tests.helpers.cluster_transactions import (
    Who,
    add,
    commit_offsets,
    completed,
    coordinator,
    end,
    mark,
    marker_of,
    producer,
    stable_offset,
    state,
    write,
)

E = ErrorCode
IDS = (1, 2, 3)
Test = Callable[[ClusterBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    config = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "request.timeout.ms": "5000",
    }
    return lambda test: run_with_cluster(tmp_path, test, config=config)


async def topic_on_all(cluster: ClusterBrokers) -> None:
    """Create topic t, whose partitions 0 to 2 are on brokers 1 to 3."""
    await cluster.create_topic("t", assignment=[[each] for each in IDS])


async def not_coordinator(cluster: ClusterBrokers) -> int:
    """Return a partition of t whose leader is neither the coordinator nor the controller."""
    taken = (await coordinator(cluster), cluster.controller_id)
    return next(each for each in IDS if each not in taken) - 1


@pytest.mark.parametrize("committed", [True, False])
def test_all_leaders_write_the_markers_of_a_producer_of_version_1(
    run: Callable[[Test], None], committed: bool
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        assert await add(cluster, who, 0, 1, 2) is E.NONE
        for partition in range(3):
            code = await write(cluster, who, b"a", partition=partition, version=11)
            assert code is E.NONE
            assert await stable_offset(cluster, partition) == 0
        await end(cluster, who, committed=committed, version=4)
        assert await completed(cluster) == ("CompleteCommit" if committed else "CompleteAbort")
        assert [await stable_offset(cluster, each) for each in range(3)] == [2, 2, 2]

    run(test)


def test_a_write_of_version_2_adds_its_partition_at_the_coordinator(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        for number in range(3):
            for partition in range(3):
                while (code := await write(cluster, who, b"a", partition=partition)) is not E.NONE:
                    # The markers of the previous transaction are in flight.
                    assert code is E.CONCURRENT_TRANSACTIONS
            following = await end(cluster, who)
            assert following.epoch == who.epoch + 1
            who = following
            await completed(cluster)
            offsets = [await stable_offset(cluster, each) for each in range(3)]
            assert offsets == [2 * number + 2] * 3

    run(test)


def test_partition_outside_of_the_transaction_is_refused_by_its_leader(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        partition = await not_coordinator(cluster)
        code = await write(cluster, who, b"a", partition=partition, version=11)
        assert code is E.TRANSACTION_ABORTABLE
        code = await write(cluster, who, b"a", partition=partition, version=10)
        assert code is E.INVALID_TXN_STATE
        old, who = who, await producer(cluster)
        for version in (10, 11, 12):
            code = await write(cluster, old, b"a", partition=partition, version=version)
            assert code is E.INVALID_PRODUCER_EPOCH
        unknown = Who(who.producer_id + 1_000, 0)
        code = await write(cluster, unknown, b"a", partition=partition, version=11)
        assert code is E.INVALID_PRODUCER_ID_MAPPING

    run(test)


def test_without_its_coordinator_a_producer_gets_kafkas_errors(run: Callable[[Test], None]) -> None:
    """Every client tries again after these codes."""

    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        assert await add(cluster, who, 0, 1, 2) is E.NONE
        down = await coordinator(cluster)
        partition = next(each for each in IDS if each != down) - 1
        await cluster.stop(down)
        assert await write(cluster, who, b"a", partition=partition) is E.NOT_ENOUGH_REPLICAS
        await cluster.start(down)
        while (code := await write(cluster, who, b"a", partition=partition)) is not E.NONE:
            assert code is E.NOT_ENOUGH_REPLICAS
        await end(cluster, who)
        await completed(cluster)

    run(test)


def test_offsets_of_a_transaction_are_verified_and_marked_by_other_brokers(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        assert await commit_offsets(cluster, who, version=4) is E.TRANSACTION_ABORTABLE
        assert await commit_offsets(cluster, who) is E.NONE
        strict = marker_of(who, CONSUMER_OFFSETS, version=2)
        at = cluster.leader(CONSUMER_OFFSETS)
        assert await mark(cluster, at, strict) is E.INVALID_PRODUCER_EPOCH
        assert await stable_offset(cluster, topic=CONSUMER_OFFSETS) == 0
        await end(cluster, who)
        await completed(cluster)
        assert await stable_offset(cluster, topic=CONSUMER_OFFSETS) == 2

    run(test)


def test_transaction_is_completed_when_the_leader_of_a_partition_returns(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        for partition in range(3):
            assert await write(cluster, who, b"a", partition=partition) is E.NONE
        away = await not_coordinator(cluster)
        await cluster.stop(away + 1)
        await end(cluster, who)
        others = [each for each in range(3) if each != away]
        for partition in others:
            while await stable_offset(cluster, partition) != 2:
                pass
        assert await state(cluster) == "PrepareCommit"
        await cluster.start(away + 1)
        assert await completed(cluster) == "CompleteCommit"
        assert await stable_offset(cluster, away) == 2

    run(test)


def test_topic_that_is_deleted_while_its_leader_is_away_counts_as_done(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        away = await not_coordinator(cluster)
        await cluster.create_topic("u", assignment=[[away + 1]])
        assert await write(cluster, who, b"a", topic="u") is E.NONE
        await cluster.stop(away + 1)
        await end(cluster, who)
        assert await state(cluster) == "PrepareCommit"
        request = DeleteTopicsRequest([DeleteTopicState("u")], timeout_ms=30_000)
        at = next(iter(cluster.servers))
        response = await cluster.call(at, request, DeleteTopicsResponse)
        assert response.responses[0].error_code == E.NONE
        assert await completed(cluster) == "CompleteCommit"

    run(test)


def test_version_2_of_markers_is_served_to_brokers_only(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = Who(1, 0)
        assert await mark(cluster, 1, marker_of(who, version=2)) is E.NONE
        assert await mark(cluster, 1, marker_of(who), version=1) is E.NONE
        for listener, expected in (("CLIENTS", (1, 1)), ("BROKERS", (1, 2))):
            request = ApiVersionsRequest("a", "1")
            listed = await cluster.call(1, request, ApiVersionsResponse, listener=listener)
            (found,) = [
                each for each in listed.api_keys if each.api_key == ApiKey.WRITE_TXN_MARKERS
            ]
            assert (found.min_version, found.max_version) == expected

    run(test)


@pytest.mark.parametrize(("version", "expected"), [(1, E.NONE), (2, E.INVALID_PRODUCER_EPOCH)])
def test_marker_of_version_2_must_have_the_next_epoch(
    run: Callable[[Test], None], version: int, expected: ErrorCode
) -> None:
    """KIP-1228: a late marker of the previous transaction has the epoch of the open one."""

    async def test(cluster: ClusterBrokers) -> None:
        await topic_on_all(cluster)
        who = await producer(cluster)
        partition = await not_coordinator(cluster)
        assert await write(cluster, who, b"a", partition=partition) is E.NONE
        late = marker_of(who, partition=partition, version=version)
        assert await mark(cluster, partition + 1, late) is expected
        assert await stable_offset(cluster, partition) == (2 if expected is E.NONE else 0)

    run(test)
