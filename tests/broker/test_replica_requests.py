"""Requests in the name of a replica, in a cluster (CVE-2018-1288)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from odradek.records.record import iter_batches, iter_records
from testkit.requests import fetch as consumer_fetch
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

Test = Callable[[ClusterBrokers], Awaitable[None]]
LEADER, FOLLOWER, STRANGER = 1, 2, 3
LATEST, EARLIEST = -1, -2
VERIFICATION = -2


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    """Run with a topic that broker 1 leads and broker 2 follows, with one record."""

    def run(test: Test) -> None:
        async def with_topic(cluster: ClusterBrokers) -> None:
            await cluster.create_topic("t", assignment=[[LEADER, FOLLOWER]])
            result = await cluster.produce("t", b"value")
            assert result.error_code == ErrorCode.NONE
            await test(cluster)

        run_with_cluster(tmp_path, with_topic, config={"replica.fetch.wait.max.ms": "100"})

    return run


def topic_id(cluster: ClusterBrokers) -> Uuid:
    return cluster.image(LEADER).topics_by_name["t"].topic_id  # type: ignore[index]


def partition(cluster: ClusterBrokers, broker: int = LEADER) -> Any:
    return cluster.servers[broker].services.replica_manager.partition("t", 0)


async def fetch(
    cluster: ClusterBrokers,
    replica: int,
    *,
    epoch: int | None = None,
    listener: str = "BROKERS",
    offset: int = 0,
    at: int = LEADER,
) -> PartitionData:
    """Fetch in the name of a replica, by default with its current broker epoch."""
    if epoch is None:
        epoch = cluster.member(replica).broker_epoch if replica > 0 else -1
    found = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_state=ReplicaState(replica, epoch),
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=topic_id(cluster), partitions=[found])],
    )
    response = await cluster.call(at, request, FetchResponse, version=17, listener=listener)
    assert response.error_code == ErrorCode.NONE
    data: PartitionData = response.responses[0].partitions[0]
    return data


def follower_state(cluster: ClusterBrokers) -> tuple[Any, ...]:
    leading = partition(cluster).replication
    return tuple((each.broker_id, each.log_end_offset) for each in leading.state.followers)


def test_follower_fetches_on_the_listener_for_brokers_only(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        before = follower_state(cluster)
        data = await fetch(cluster, FOLLOWER, listener="CLIENTS")
        assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert follower_state(cluster) == before
        data = await fetch(cluster, FOLLOWER)
        assert data.error_code == ErrorCode.NONE
        assert data.records

    run(test)


def test_fetch_of_a_replica_that_is_not_assigned_or_is_outdated_is_refused(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        before = follower_state(cluster)
        data = await fetch(cluster, STRANGER)
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        for epoch in (-1, cluster.member(FOLLOWER).broker_epoch - 1):
            data = await fetch(cluster, FOLLOWER, epoch=epoch)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert follower_state(cluster) == before

    run(test)


def test_replica_verification_reads_committed_records_from_a_follower(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.until(lambda: partition(cluster, FOLLOWER).log.high_watermark == 1)
        data = await fetch(cluster, VERIFICATION, listener="CLIENTS", at=FOLLOWER)
        assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 1)
        assert data.records
        data = await fetch(cluster, -1, listener="CLIENTS", at=FOLLOWER)
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


async def list_offsets(
    cluster: ClusterBrokers, replica: int, listener: str, at: int = LEADER, *, current: int = -1
) -> tuple[int, int]:
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, current, LATEST)])
    request = ListOffsetsRequest(replica, 0, [wanted])
    response = await cluster.call(at, request, ListOffsetsResponse, version=8, listener=listener)
    found = response.topics[0].partitions[0]
    return found.error_code, found.offset


async def end_of_epoch(
    cluster: ClusterBrokers,
    replica: int,
    listener: str,
    at: int = LEADER,
    *,
    current: int = -1,
    version: int = 4,
) -> tuple[int, int]:
    wanted = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, current, 0)])
    request = OffsetForLeaderEpochRequest(replica, [wanted])
    response = await cluster.call(
        at, request, OffsetForLeaderEpochResponse, version=version, listener=listener
    )
    found = response.topics[0].partitions[0]
    return found.error_code, found.end_offset


@pytest.mark.parametrize("ask", [list_offsets, end_of_epoch])
def test_offsets_for_replicas_are_served_to_assigned_replicas_on_the_listener_for_brokers(
    run: Callable[[Test], None], ask: Callable[..., Awaitable[tuple[int, int]]]
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        refused = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
        assert await ask(cluster, FOLLOWER, "CLIENTS") == refused
        assert await ask(cluster, FOLLOWER, "BROKERS") == (ErrorCode.NONE, 1)
        stranger = await ask(cluster, STRANGER, "BROKERS")
        assert stranger[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await ask(cluster, -1, "CLIENTS") == (ErrorCode.NONE, 1)
        code, _ = await ask(cluster, -1, "CLIENTS", at=FOLLOWER)
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_replica_verification_gets_the_log_end_of_a_follower(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.until(lambda: partition(cluster, FOLLOWER).log.log_end_offset == 1)
        found = await list_offsets(cluster, VERIFICATION, "CLIENTS", at=FOLLOWER)
        assert found == (ErrorCode.NONE, 1)

    run(test)


def test_only_the_leader_returns_the_end_of_an_epoch(run: Callable[[Test], None]) -> None:
    """Version 2 has no replica id. A consumer must not be taken for a tool."""

    async def test(cluster: ClusterBrokers) -> None:
        refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        for version in (2, 4):
            ask = partial(end_of_epoch, cluster, VERIFICATION, "CLIENTS", version=version)
            assert await ask(at=FOLLOWER) == refused
            assert await ask(at=LEADER) == (ErrorCode.NONE, 1)

    run(test)


@pytest.mark.parametrize("ask", [list_offsets, end_of_epoch])
def test_f1_follower_that_does_not_know_the_leader_epoch_yet_is_asked_again(
    run: Callable[[Test], None], ask: Callable[..., Awaitable[tuple[int, int]]]
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        at_follower = partial(ask, cluster, -1, "CLIENTS", FOLLOWER)
        assert (await at_follower(current=1))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await at_follower(current=0))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


async def delete_records(cluster: ClusterBrokers, timeout_ms: int) -> tuple[int, int]:
    wanted = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])
    request = DeleteRecordsRequest([wanted], timeout_ms)
    response = await cluster.call(LEADER, request, DeleteRecordsResponse)
    found = response.topics[0].partitions[0]
    return found.error_code, found.low_watermark


def test_deletion_waits_for_the_follower(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        assert await delete_records(cluster, 30_000) == (ErrorCode.NONE, 1)
        assert partition(cluster, FOLLOWER).log.log_start_offset == 1

    run(test)


def test_append_below_min_isr_is_not_enough_replicas(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.stop(FOLLOWER)
        await cluster.until(lambda: partition(cluster).isr == (LEADER,))
        log = partition(cluster).log
        end_offset = log.log_end_offset
        log.update_config(replace(log.config, min_insync_replicas=2))
        partition(cluster).config_changed()
        result = await cluster.produce("t", b"refused", acks=-1)
        assert result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert log.log_end_offset == end_offset
        result = await cluster.produce("t", b"accepted", acks=1)
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, end_offset)

    run(test)


async def consume(
    cluster: ClusterBrokers, isolation: int, offset: int, session: tuple[int, int] = (0, -1)
) -> FetchResponse:
    """Fetch partition 0 of topic u from its leader, as a consumer in a session (id, epoch)."""
    request = consumer_fetch(
        "u",
        offset,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        partitions=(0,) if session[1] <= 0 else (),
    )
    response: FetchResponse = await cluster.call(LEADER, request, FetchResponse, version=12)
    assert response.error_code == ErrorCode.NONE
    return response


def read(response: FetchResponse) -> list[bytes]:
    """Return the values of all records. Each partition has the high watermark 1 then."""
    values: list[bytes] = []
    for topic in response.responses:
        each: Any
        for each in topic.partitions:
            assert (each.error_code, each.high_watermark) == (ErrorCode.NONE, 1)
            assert each.last_stable_offset <= 1
            for batch in iter_batches(bytes(each.records or b"")):
                values += [record.value or b"" for record in iter_records(batch)]
    return values


@pytest.mark.parametrize("isolation", [0, 1], ids=["read_uncommitted", "read_committed"])
def test_r7_consumer_never_reads_above_the_high_watermark(
    run: Callable[[Test], None], isolation: int
) -> None:
    """The ISR is below the minimum, so that the high watermark stands still."""

    async def test(cluster: ClusterBrokers) -> None:
        configs = {"min.insync.replicas": "2"}
        await cluster.create_topic("u", assignment=[[LEADER, FOLLOWER]], configs=configs)
        await cluster.produce("u", b"committed")
        led = cluster.servers[LEADER].services.replica_manager.partition("u", 0)
        await cluster.stop(FOLLOWER)
        await cluster.until(lambda: led.isr == (LEADER,))
        session_id = (await consume(cluster, isolation, 1, session=(0, 0))).session_id
        assert session_id
        for number in range(1, 4):
            value = b"not committed %d" % number
            result = await cluster.produce("u", value, acks=1)
            assert result.base_offset == number
            # The committed record, then the offsets from the high watermark to the log end.
            assert read(await consume(cluster, isolation, 0)) == [b"committed"]
            for offset in range(1, number + 2):
                assert read(await consume(cluster, isolation, offset)) == []
            assert read(await consume(cluster, isolation, 1, session=(session_id, number))) == []
            latest = ListOffsetsTopic("u", [ListOffsetsPartition(0, -1, LATEST)])
            ask = ListOffsetsRequest(-1, isolation, [latest])
            listed = await cluster.call(LEADER, ask, ListOffsetsResponse, version=8)
            assert listed.topics[0].partitions[0].offset == 1
        assert (led.log.high_watermark, led.log.log_end_offset) == (1, 4)
        await cluster.start(FOLLOWER)
        await cluster.until(lambda: led.log.high_watermark == 4)
        assert await cluster.fetch("u", at=LEADER) == [
            b"committed",
            b"not committed 1",
            b"not committed 2",
            b"not committed 3",
        ]

    run(test)
