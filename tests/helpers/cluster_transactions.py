"""Requests of transactional producers to the brokers of a cluster, without a client library."""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.errors import ErrorCode
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.protocol.codec import Message
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.result_tasks import wait
from testkit.requests import batch, fetch, produce
from tests.helpers.broker_channels import channel_to
from tests.helpers.cluster_brokers import ClusterBrokers

TRIED_AGAIN = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class Who(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int


async def call(
    cluster: ClusterBrokers,
    at: int,
    request: Message,
    response: type[Any],
    *,
    version: int | None = None,
    listener: str = "CLIENTS",
) -> Any:
    """Send a request over a connection of its own. Tests ask again and again."""
    channel = channel_to(cluster.servers[at], listener)
    try:
        return await wait(channel.send(request, response, version=version))
    finally:
        channel.close()


async def coordinator(cluster: ClusterBrokers, name: str = "x") -> int:
    """Return the coordinator of a transactional id. The first call creates the internal topic."""
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    at = next(iter(cluster.servers))
    while True:
        response = await call(cluster, at, request, FindCoordinatorResponse, version=4)
        (found,) = response.coordinators
        if not found.error_code:
            await cluster.until(
                lambda: all(
                    cluster.image(each).partition_count(TRANSACTION_STATE)
                    for each in cluster.servers
                )
            )
            return int(found.node_id)


async def producer(cluster: ClusterBrokers, name: str = "x") -> Who:
    """Return a new producer of a transactional id."""
    at = await coordinator(cluster, name)
    while True:
        request = InitProducerIdRequest(name, 60_000)
        response = await call(cluster, at, request, InitProducerIdResponse, version=4)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            return Who(response.producer_id, response.producer_epoch)
        assert code in TRIED_AGAIN, code


async def write(
    cluster: ClusterBrokers,
    who: Who,
    value: bytes,
    *,
    partition: int = 0,
    sequence: int = 0,
    version: int = 12,
    name: str = "x",
    topic: str = "t",
) -> ErrorCode:
    """Send one record to the leader. Since version 12 it adds the partition to the transaction."""
    data = batch(
        value,
        transactional=True,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=sequence,
    )
    request = produce(topic, data, partition=partition, acks=-1)
    request.transactional_id = name
    at = cluster.leader(topic, partition)
    response = await call(cluster, at, request, ProduceResponse, version=version)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def commit_offsets(
    cluster: ClusterBrokers, who: Who, *, version: int = 5, name: str = "x", group: str = "g"
) -> ErrorCode:
    """Commit an offset in the transaction. Version 5 adds the partition of the group."""
    while True:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        found = await call(
            cluster, next(iter(cluster.servers)), find, FindCoordinatorResponse, version=4
        )
        if not found.coordinators[0].error_code:
            break
    topic = TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 7)])
    request = TxnOffsetCommitRequest(name, group, *who, topics=[topic])
    at = found.coordinators[0].node_id
    while True:
        response = await call(cluster, at, request, TxnOffsetCommitResponse, version=version)
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            return code


async def add(
    cluster: ClusterBrokers, who: Who, *partitions: int, topic: str = "t", name: str = "x"
) -> ErrorCode:
    """Add partitions as a producer of version 1 does."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(partitions))],
    )
    at = await coordinator(cluster, name)
    response = await call(cluster, at, request, AddPartitionsToTxnResponse, version=3)
    found = response.results_by_topic_v3_and_below[0].results_by_partition
    (code,) = {each.partition_error_code for each in found}
    return ErrorCode(code)


async def end(
    cluster: ClusterBrokers, who: Who, *, committed: bool = True, version: int = 5, name: str = "x"
) -> Who:
    """End a transaction. Return the identity for the next one."""
    request = EndTxnRequest(name, *who, committed)
    at = await coordinator(cluster, name)
    response = await call(cluster, at, request, EndTxnResponse, version=version)
    assert not response.error_code, ErrorCode(response.error_code)
    return Who(response.producer_id, response.producer_epoch) if version >= 5 else who


async def state(cluster: ClusterBrokers, name: str = "x") -> str:
    """Return the state of a transactional id, or the name of an error."""
    at = await coordinator(cluster, name)
    request = DescribeTransactionsRequest([name])
    response = await call(cluster, at, request, DescribeTransactionsResponse)
    (found,) = response.transaction_states
    return found.transaction_state or ErrorCode(found.error_code).name


async def completed(cluster: ClusterBrokers, name: str = "x") -> str:
    """Wait until the transaction is complete. Return its state."""
    while not (found := await state(cluster, name)).startswith("Complete"):
        pass
    return found


async def mark(
    cluster: ClusterBrokers, at: int, marker: WritableTxnMarker, *, version: int = 2
) -> ErrorCode:
    """Send a marker for one partition to a broker, as another broker does."""
    response = await call(
        cluster,
        at,
        WriteTxnMarkersRequest([marker]),
        WriteTxnMarkersResponse,
        version=version,
        listener="BROKERS" if version > 1 else "CLIENTS",
    )
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


def marker_of(
    who: Who,
    topic: str = "t",
    partition: int = 0,
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(topic, [partition])]
    return WritableTxnMarker(*who, committed, topics, coordinator_epoch, version)


async def stable_offset(cluster: ClusterBrokers, partition: int = 0, topic: str = "t") -> int:
    """Return the last stable offset that the leader of a partition reports."""
    request = fetch(topic, partitions=(partition,))
    at = cluster.leader(topic, partition)
    response = await call(cluster, at, request, FetchResponse, version=12)
    return int(response.responses[0].partitions[0].last_stable_offset)
