"""Group coordinators in a cluster: each shard is on the one broker that has its partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.broker.leadership_lease import Standing
from odradek.config.broker_coordinators import CLUSTER_DEFAULTS
from odradek.coordinator.runtime import partition_for
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.slicing import in_slices
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

IDS = (1, 2, 3)
PARTITIONS = 6
Test = Callable[[ClusterBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    config = {"offsets.topic.num.partitions": str(PARTITIONS)}
    return lambda test: run_with_cluster(tmp_path, test, config=config)


async def coordinator(cluster: ClusterBrokers, group: str, at: int) -> tuple[ErrorCode, int]:
    """Return the coordinator of a group as a broker names it."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    response = await cluster.call(at, request, FindCoordinatorResponse, version=4)
    (found,) = response.coordinators
    return ErrorCode(found.error_code), found.node_id


async def find(cluster: ClusterBrokers, group: str) -> int:
    """Return the coordinator of a group, when all running brokers name it."""
    while True:
        found = {await coordinator(cluster, group, each) for each in cluster.servers}
        if len(found) == 1:
            ((error, broker),) = found
            if error is ErrorCode.NONE:
                return broker


async def commit(cluster: ClusterBrokers, group: str, offset: int, at: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(0, committed_offset=offset)
    topic = OffsetCommitRequestTopic("t", partitions=[partition])
    request = OffsetCommitRequest(group, topics=[topic])
    response = await cluster.call(at, request, OffsetCommitResponse, version=9)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def committed(cluster: ClusterBrokers, group: str, at: int) -> int | ErrorCode:
    topic = OffsetFetchRequestTopics("t", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[topic])])
    response = await cluster.call(at, request, OffsetFetchResponse, version=9)
    (found,) = response.groups
    if found.error_code:
        return ErrorCode(found.error_code)
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


async def committed_after_loading(cluster: ClusterBrokers, group: str, at: int) -> int | ErrorCode:
    while True:
        found = await committed(cluster, group, at)
        if found is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return found


def group_of(cluster: ClusterBrokers, broker: int) -> str:
    """Return a group whose coordinator is the broker."""
    for number in range(100):
        group = f"group-{number}"
        if cluster.leader(CONSUMER_OFFSETS, partition_for(group, PARTITIONS)) == broker:
            return group
    raise AssertionError(f"broker {broker} leads no partition of {CONSUMER_OFFSETS}")


def test_other_brokers_are_not_the_coordinator(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        await find(cluster, "any")
        for broker in IDS:
            group = group_of(cluster, broker)
            assert await find(cluster, group) == broker
            for at in IDS:
                expected = ErrorCode.NONE if at == broker else ErrorCode.NOT_COORDINATOR
                assert await commit(cluster, group, 7, at) is expected
                assert await committed(cluster, group, at) == (expected or 7)

    run(test)


def test_coordinator_that_is_down_is_not_available_and_keeps_its_offsets(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        await find(cluster, "any")
        broker = next(each for each in IDS if each != cluster.controller_id)
        group = group_of(cluster, broker)
        assert await commit(cluster, group, 7, broker) is ErrorCode.NONE
        await cluster.stop(broker)
        for at in cluster.servers:
            expected = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            while await coordinator(cluster, group, at) != expected:
                pass
            assert await commit(cluster, group, 8, at) is ErrorCode.NOT_COORDINATOR
        await cluster.start(broker)
        assert await find(cluster, group) == broker
        assert await committed_after_loading(cluster, group, broker) == 7
        assert await commit(cluster, group, 8, broker) is ErrorCode.NONE

    run(test)


def test_coordinator_with_an_expired_session_resigns_and_loads_its_shards_again(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        await find(cluster, "any")
        broker = next(each for each in IDS if each != cluster.controller_id)
        group = group_of(cluster, broker)
        assert await commit(cluster, group, 7, broker) is ErrorCode.NONE
        partition = partition_for(group, PARTITIONS)
        runtime = cluster.servers[broker].services.coordinators.groups.runtime
        before = runtime.shard(partition)
        epoch = cluster.member(broker).broker_epoch
        cluster.expire(broker)
        await cluster.until(lambda: cluster.member(broker).broker_epoch > epoch)
        await cluster.until(
            lambda: (
                cluster.leader(CONSUMER_OFFSETS, partition) == broker
                and runtime.serves(partition, before) is False
            )
        )
        # No request has asked for the shard: the election begins to load it.
        await cluster.until(lambda: any(each.partition == partition for each in runtime.shards()))
        assert await find(cluster, group) == broker
        assert await committed_after_loading(cluster, group, broker) == 7

    run(test)


def test_coordinator_that_may_have_been_deposed_resigns(tmp_path: Path, patient: None) -> None:
    """A loaded shard of a partition with other replicas does not serve without a lease."""

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        broker = await find(cluster, "group")
        while await commit(cluster, "group", 7, broker) is not ErrorCode.NONE:
            pass
        partition = partition_for("group", 1)
        services = cluster.servers[broker].services
        replica = services.replica_manager.find(CONSUMER_OFFSETS, partition)
        assert replica is not None
        lease = cluster.member(broker)._lease
        assert lease is not None
        await in_slices(lease._suspend(Standing.EXPIRED))
        assert replica.is_suspended
        assert await committed(cluster, "group", broker) is ErrorCode.NOT_COORDINATOR
        await in_slices(lease._resume())
        assert not replica.is_suspended
        # No request has asked for the shard.
        await cluster.until(lambda: any(services.coordinators.groups.runtime.shards()))
        assert await committed_after_loading(cluster, "group", broker) == 7

    config = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "3"}
    run_with_cluster(tmp_path, test, config=config)


def test_coordinators_exist_with_leadership_and_without_a_request(
    run: Callable[[Test], None],
) -> None:
    """Prepared transactions, time-outs and the sessions of members wait in the logs."""

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic(CONSUMER_OFFSETS, PARTITIONS)
        await cluster.create_topic(TRANSACTION_STATE, PARTITIONS)
        for broker in IDS:
            await has_shards(cluster, broker)

    run(test)


async def has_shards(cluster: ClusterBrokers, broker: int) -> None:
    """Wait for the coordinators of a broker. They serve the partitions that it leads."""
    coordinators = cluster.servers[broker].services.coordinators
    await cluster.until(
        lambda: None not in (coordinators.made_groups, coordinators.made_transactions)
    )
    for topic, made in (
        (CONSUMER_OFFSETS, coordinators.groups),
        (TRANSACTION_STATE, coordinators.transactions),
    ):
        led = [each for each in range(PARTITIONS) if cluster.leader(topic, each) == broker]
        assert sorted(each.partition for each in made.runtime.shards()) == led


@pytest.mark.parametrize(("kind", "topic"), [(0, CONSUMER_OFFSETS), (1, TRANSACTION_STATE)])
def test_internal_topic_is_created_when_there_are_brokers_for_its_replicas(
    tmp_path: Path, patient: None, kind: int, topic: TopicName
) -> None:
    async def found(cluster: ClusterBrokers, at: int) -> ErrorCode:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
        response = await cluster.call(at, request, FindCoordinatorResponse, version=4)
        (coordinator,) = response.coordinators
        if coordinator.error_code and "registered" in coordinator.error_message:
            assert "needs 3 registered brokers, and 2 are registered" in coordinator.error_message
        return ErrorCode(coordinator.error_code)

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.until(lambda: all(len(cluster.image(each).brokers) == 2 for each in (1, 2)))
        for at in (1, 2):
            assert await found(cluster, at) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert topic not in cluster.image(at).topics_by_name
        await cluster.start(3)
        await cluster.until(lambda: all(len(cluster.image(each).brokers) == 3 for each in IDS))
        codes = await asyncio.gather(*(found(cluster, each) for each in IDS))
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        await cluster.until(lambda: topic in cluster.image(1).topics_by_name)
        partitions = cluster.image(1).topics_by_name[topic].partitions
        assert [set(each.replicas) for each in partitions] == [set(IDS)] * 2
        if topic == TRANSACTION_STATE:
            assert cluster.image(1).topic_configs[topic]["min.insync.replicas"] == "2"

    # The defaults of a broker with `zookeeper.connect`.
    config = {name: str(value) for name, value in CLUSTER_DEFAULTS.items()}
    run_with_cluster(tmp_path, test, config=config, count=2)
