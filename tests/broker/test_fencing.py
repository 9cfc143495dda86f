"""Requests of processes that do not know yet that they were replaced: each one is refused.

Each test is a pair of such a process and the receiver of its request. The pair of a former
controller and a broker is in `tests/metadata/test_feed_client.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.transactions.markers import write_markers
from odradek.coordinator.runtime import partition_for
from odradek.coordinator.transaction.transaction_marker import TransactionMarker
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.metadata.image import PartitionImage
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.codec import Message
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
)
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_request import ReplicaState
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import MetadataFeedResponse
from odradek.result_tasks import wait
from testkit.requests import fetch
from tests.helpers import cluster_transactions as txn
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

IDS = (1, 2, 3)
Test = Callable[[ClusterBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    config = {"broker.session.timeout.ms": "1000", "replica.fetch.wait.max.ms": "100"}
    return lambda test: run_with_cluster(tmp_path, test, config=config)


def partition(cluster: ClusterBrokers, at: int) -> PartitionImage:
    found = cluster.image(at).partition("t", 0)
    assert found is not None
    return found


def topic_id(cluster: ClusterBrokers, at: int) -> Uuid:
    return cluster.image(at).topics_by_name[TopicName("t")].topic_id


async def fetched(
    cluster: ClusterBrokers,
    at: int,
    *,
    leader_epoch: int = -1,
    replica: ReplicaState | None = None,
    of: Uuid | None = None,
) -> ErrorCode:
    """Fetch as a follower or as a consumer. Return the error of the partition."""
    request = fetch(
        topic_id=of or topic_id(cluster, at), leader_epoch=leader_epoch, replica_state=replica
    )
    listener = "CLIENTS" if replica is None else "BROKERS"
    response = await cluster.call(at, request, FetchResponse, version=17, listener=listener)
    return ErrorCode(response.error_code or response.responses[0].partitions[0].error_code)


def test_fencing_old_leader_and_follower(run: Callable[[Test], None]) -> None:
    """A deposed leader commits nothing: its former followers are in a newer epoch."""

    async def test(cluster: ClusterBrokers) -> None:
        old = next(each for each in IDS if each != cluster.controller_id)
        others = [each for each in IDS if each != old]
        await cluster.create_topic("t", assignment=[[old, *others]])
        assert (await cluster.produce("t", b"before", at=old)).error_code == ErrorCode.NONE
        before = partition(cluster, old)
        await cluster.member(old)._feed.stop()  # type: ignore[union-attr]
        await cluster.until(lambda: partition(cluster, others[0]).leader in others)
        leader_epoch = partition(cluster, others[0]).leader_epoch
        assert leader_epoch > before.leader_epoch
        assert partition(cluster, old) == before
        # It still appends with acks=1. With acks=all nothing is acknowledged.
        unacknowledged = asyncio.ensure_future(cluster.produce("t", b"lost", at=old))
        replica = cluster.servers[old].services.replica_manager.find("t", 0)
        assert replica is not None
        await cluster.until(lambda: replica.log.log_end_offset == 2)
        follower = ReplicaState(others[0], cluster.member(others[0]).broker_epoch)
        error = await fetched(cluster, old, leader_epoch=leader_epoch, replica=follower)
        assert error is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert replica.log.high_watermark == 1
        assert not unacknowledged.done()
        unacknowledged.cancel()
        await asyncio.wait([unacknowledged])

    run(test)


def test_fencing_old_incarnation_of_a_broker_and_controller(run: Callable[[Test], None]) -> None:
    """The controller refuses each request with an earlier broker epoch."""

    async def test(cluster: ClusterBrokers) -> None:
        controller = cluster.controller_id
        broker = next(each for each in IDS if each != controller)
        await cluster.create_topic("t", assignment=[[broker, controller]])
        old_epoch = cluster.member(broker).broker_epoch
        cluster.expire(broker)
        await cluster.until(lambda: cluster.member(broker).broker_epoch > old_epoch)
        await cluster.until(lambda: cluster.image(controller).brokers[broker].epoch > old_epoch)  # type: ignore[index]
        image = cluster.image(controller)
        now = partition(cluster, controller)
        change = PartitionData(
            0,
            now.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker, old_epoch)],
            partition_epoch=now.partition_epoch,
        )
        alter = [TopicData(topic_id(cluster, controller), [change])]
        requests: list[tuple[Message, type[Any]]] = [
            (AlterPartitionRequest(broker, old_epoch, alter), AlterPartitionResponse),
            (
                BrokerHeartbeatRequest(broker, old_epoch, image.offset, want_shut_down=True),
                BrokerHeartbeatResponse,
            ),
            (AssignReplicasToDirsRequest(broker, old_epoch), AssignReplicasToDirsResponse),
            (AllocateProducerIdsRequest(broker, old_epoch), AllocateProducerIdsResponse),
            (FinishDeletionsRequest(broker, old_epoch), FinishDeletionsResponse),
            (
                MetadataFeedRequest(
                    cluster.member(broker).cluster_id,
                    broker,
                    old_epoch,
                    image.controller_epoch,
                    image.offset,
                    1,
                    1,
                ),
                MetadataFeedResponse,
            ),
        ]
        for request, response_class in requests:
            response = await cluster.call(controller, request, response_class, listener="BROKERS")
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH, request
        assert not cluster.image(controller).brokers[broker].in_controlled_shutdown  # type: ignore[index]

    run(test)


def test_fencing_old_incarnation_of_a_broker_and_leader(run: Callable[[Test], None]) -> None:
    """A fetch of an earlier process of a follower does not count."""

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[1, 2]])
        leader = cluster.leader("t")
        follower = 3 - leader
        epoch = cluster.member(follower).broker_epoch
        for old in (epoch - 1, epoch + 1, -1):
            error = await fetched(cluster, leader, replica=ReplicaState(follower, old))
            assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (
            await fetched(cluster, leader, replica=ReplicaState(follower, epoch)) is ErrorCode.NONE
        )
        assert await fetched(cluster, leader, replica=ReplicaState(3, epoch)) is not ErrorCode.NONE

    run(test)


def test_fencing_deleted_topic_and_its_successor(run: Callable[[Test], None]) -> None:
    """Requests with the id of a deleted topic do not reach a topic of the same name."""

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[1, 2]])
        old = topic_id(cluster, 1)
        request = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=30_000)
        await cluster.call(1, request, DeleteTopicsResponse)
        await cluster.until(
            lambda: all("t" not in cluster.image(each).topics_by_name for each in IDS)
        )
        await cluster.create_topic("t", assignment=[[1, 2]])
        leader = cluster.leader("t")
        follower = ReplicaState(3 - leader, cluster.member(3 - leader).broker_epoch)
        assert await fetched(cluster, leader, of=old) is ErrorCode.UNKNOWN_TOPIC_ID
        error = await fetched(cluster, leader, of=old, replica=follower)
        assert error is ErrorCode.UNKNOWN_TOPIC_ID
        change = PartitionData(0, 0, new_isr_with_epochs=[BrokerState(leader)], partition_epoch=0)
        epoch = cluster.member(leader).broker_epoch
        response = await cluster.call(
            cluster.controller_id,
            AlterPartitionRequest(leader, epoch, [TopicData(old, [change])]),
            AlterPartitionResponse,
            listener="BROKERS",
        )
        assert not response.error_code
        found = response.topics[0].partitions[0].error_code
        assert found == ErrorCode.UNKNOWN_TOPIC_ID
        assert len(partition(cluster, leader).isr) == 2

    run(test)


def test_fencing_consumer_with_old_metadata_and_leader(run: Callable[[Test], None]) -> None:
    """A consumer that knows an earlier leader epoch has to fetch metadata first."""

    async def test(cluster: ClusterBrokers) -> None:
        old = next(each for each in IDS if each != cluster.controller_id)
        others = [each for each in IDS if each != old]
        await cluster.create_topic("t", assignment=[[old, *others]])
        known = partition(cluster, others[0]).leader_epoch
        await cluster.stop(old)
        await cluster.until(lambda: cluster.leader("t") in others)
        leader = cluster.leader("t")
        await cluster.until(lambda: partition(cluster, leader).leader == leader)
        newer = partition(cluster, leader).leader_epoch
        for epoch, expected in (
            (known, ErrorCode.FENCED_LEADER_EPOCH),
            (newer, ErrorCode.NONE),
            (newer + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert await fetched(cluster, leader, leader_epoch=epoch) is expected
            topic = ListOffsetsTopic("t", [ListOffsetsPartition(0, epoch, timestamp=-2)])
            request = ListOffsetsRequest(-1, topics=[topic])
            response = await cluster.call(leader, request, ListOffsetsResponse, version=7)
            assert response.topics[0].partitions[0].error_code == expected

    run(test)


COORDINATORS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.session.timeout.ms": "1000",
    "replica.fetch.wait.max.ms": "100",
}


class OldCoordinator:
    """A coordinator that does not know yet that another broker has replaced it."""

    def __init__(self, cluster: ClusterBrokers, broker: int, name: str) -> None:
        self.cluster = cluster
        self.broker = broker
        self.name = name
        self.partition = partition_for(name, 3)
        self.leader_epoch = self.state(broker).leader_epoch

    def state(self, at: int) -> PartitionImage:
        found = self.cluster.image(at).partition(TRANSACTION_STATE, self.partition)
        assert found is not None
        return found

    async def depose(self) -> int:
        """Let it miss all later metadata. Return the new coordinator."""
        other = next(each for each in IDS if each != self.broker)
        await self.cluster.member(self.broker)._feed.stop()  # type: ignore[union-attr]
        await self.cluster.until(lambda: self.state(other).leader not in (self.broker, -1))
        assert self.state(self.broker).leader == self.broker
        return self.state(other).leader

    async def mark(self, who: txn.Who, partition: TopicPartition) -> ErrorCode:
        """Have it send a marker with its epoch. Return the code of the partition's leader."""
        services = self.cluster.servers[self.broker].services
        assert services.cluster is not None
        codes = await services.cluster.transaction_peers.markers.write(
            lambda markers: write_markers(
                services.replica_manager, lambda: services.groups, markers
            ),
            [TransactionMarker(*who, self.leader_epoch, True, [partition], 2)],
        )
        return codes[who.producer_id][partition]


async def old_coordinator(cluster: ClusterBrokers) -> OldCoordinator:
    """Return a coordinator that is not the controller. Broker 1 is asked for coordinators."""
    await txn.coordinator(cluster)
    for number in range(100):
        name = f"x{number}"
        broker = await txn.coordinator(cluster, name)
        if broker not in (1, cluster.controller_id):
            return OldCoordinator(cluster, broker, name)
    raise AssertionError("two brokers are the coordinators of all ids")


@pytest.mark.parametrize("topic", ["t", CONSUMER_OFFSETS])
def test_fencing_old_coordinator_and_partition_leader(
    tmp_path: Path, patient: None, topic: str
) -> None:
    """The partition has a marker of the new coordinator, whose epoch is higher.

    The leader of a partition of the offsets topic is a group coordinator.
    """

    async def test(cluster: ClusterBrokers) -> None:
        old = await old_coordinator(cluster)
        leader = next(each for each in IDS if each != old.broker)
        await cluster.create_topic(topic, assignment=[[leader]])
        who = await txn.producer(cluster, old.name)
        if topic == "t":
            code = await txn.write(cluster, who, b"a", name=old.name)
        else:
            await cluster.create_topic("t", assignment=[[leader]])
            code = await txn.commit_offsets(cluster, who, name=old.name)
        assert code is ErrorCode.NONE
        assert await old.depose() != old.broker
        who = await txn.producer(cluster, old.name)  # the new coordinator aborts the transaction
        assert await txn.state(cluster, old.name) == "Empty"
        assert await txn.stable_offset(cluster, topic=topic) == 2
        later = who._replace(epoch=who.epoch + 1)
        code = await old.mark(later, TopicPartition(topic, 0))
        assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await txn.stable_offset(cluster, topic=topic) == 2

    run_with_cluster(tmp_path, test, config=COORDINATORS)


def test_fencing_old_coordinator_and_producer(tmp_path: Path, patient: None) -> None:
    """A deposed coordinator acknowledges nothing: it cannot commit its records."""

    async def test(cluster: ClusterBrokers) -> None:
        old = await old_coordinator(cluster)
        leader = next(each for each in IDS if each != old.broker)
        await cluster.create_topic("t", assignment=[[leader]])
        who = await txn.producer(cluster, old.name)
        assert await txn.write(cluster, who, b"a", name=old.name) is ErrorCode.NONE
        await old.depose()
        request = EndTxnRequest(old.name, *who, True)
        unacknowledged = asyncio.ensure_future(
            cluster.call(old.broker, request, EndTxnResponse, version=5)
        )
        await txn.producer(cluster, old.name)  # the new coordinator aborts the transaction
        assert not unacknowledged.done()
        unacknowledged.cancel()
        await asyncio.wait([unacknowledged])

    run_with_cluster(tmp_path, test, config=COORDINATORS)


def test_fencing_old_coordinator_and_leader_that_verifies(tmp_path: Path, patient: None) -> None:
    """A leader with old metadata asks a broker that knows that it is no longer the coordinator."""

    async def test(cluster: ClusterBrokers) -> None:
        old = await old_coordinator(cluster)
        leader = next(each for each in IDS if each not in (1, old.broker))
        await cluster.create_topic("t", assignment=[[leader]])
        who = await txn.producer(cluster, old.name)
        services = cluster.servers[leader].services
        assert services.cluster is not None
        verifications = services.cluster.transaction_peers.verifications
        other = next(each for each in IDS if each not in (leader, old.broker))
        partition = TopicPartition("t", 0)
        for add in (False, True):
            asked = verifications.verify(BrokerId(other), old.name, *who, [partition], add=add)
            assert await wait(asked) == {partition: ErrorCode.NOT_COORDINATOR}

    run_with_cluster(tmp_path, test, config=COORDINATORS)
