"""Search for hanging transactions: open in a partition, and unknown to coordinators (KIP-664).

The leaders of partitions report the open transactions with the timestamps of their last records.
The coordinators report the partitions of the transactions that they know. A coordinator ends each
of these transactions eventually, so the others are hanging.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypedDict

from odradek.cli.failures import Subject, missing_partition, partition_subject
from odradek.cli.wire import WireClient, check
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from odradek.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    ProducerState,
)
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse

METADATA_VERSION = 9
PARTITIONS_PER_REQUEST_MAX = 500
MS_PER_MINUTE = 60_000


class OpenTransaction(TypedDict):
    """An open transaction as the partition's leader reports it; `last_timestamp` in ms."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


class HangingTransaction(OpenTransaction):
    """A transaction that no coordinator will end, and the minutes since its last record."""

    duration_min: int


def find_hanging(
    bootstrap_server: str,
    topic: str | None,
    partition: int | None,
    max_timeout_ms: int,
    now_ms: int,
) -> list[HangingTransaction]:
    """Return the hanging transactions whose last record is older than `max_timeout_ms`.

    Args:
        bootstrap_server: Address of a broker.
        topic: Topic to search, or None for all topics.
        partition: Partition of `topic` to search, or None for all its partitions.
        max_timeout_ms: Least age of the last record.
        now_ms: The present, in milliseconds since 1970.

    Raises:
        CommandError: A broker did not respond or returned an error.
    """
    with WireClient(bootstrap_server) as client:
        metadata = _metadata(client, topic)
        addresses = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
        candidates: list[OpenTransaction] = []
        for leader, partitions in _by_leader(metadata, partition).items():
            with WireClient(addresses[leader]) as broker:
                candidates += _open_transactions(broker, partitions, now_ms - max_timeout_ms)
        if not candidates:
            return []
        producer_ids = sorted({each["producer_id"] for each in candidates})
        expected = {
            producer_id: _partitions(client, transactional_id)
            for address in addresses.values()
            for producer_id, transactional_id in _transactional_ids(address, producer_ids)
        }
    hanging = [
        HangingTransaction(**each, duration_min=(now_ms - each["last_timestamp"]) // MS_PER_MINUTE)
        for each in candidates
        if (each["topic"], each["partition"]) not in expected.get(each["producer_id"], ())
    ]
    return sorted(hanging, key=lambda each: (each["topic"], each["partition"]))


def _metadata(client: WireClient, topic: str | None) -> MetadataResponse:
    topics = None if topic is None else [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return client.call(request, MetadataResponse, METADATA_VERSION)


def _by_leader(metadata: MetadataResponse, only: int | None) -> dict[int, list[tuple[str, int]]]:
    """Return the partitions by leader. Raise CommandError for a missing one, or without leader."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for topic in metadata.topics:
        name = topic.name or ""  # only a topic that was requested by id can lack a name
        check(topic.error_code, Subject("topic", name))
        if only is not None and only not in {each.partition_index for each in topic.partitions}:
            raise missing_partition(name, only)
        for each in topic.partitions:
            if only in (None, each.partition_index):
                check(each.error_code, partition_subject(name, each.partition_index))
                found[each.leader_id].append((name, each.partition_index))
    return found


def _open_transactions(
    leader: WireClient, partitions: list[tuple[str, int]], latest_ms: int
) -> list[OpenTransaction]:
    """Return the open transactions to which nothing was written after `latest_ms`."""
    found = []
    for at in range(0, len(partitions), PARTITIONS_PER_REQUEST_MAX):
        topics: dict[str, TopicRequest] = {}
        for name, number in partitions[at : at + PARTITIONS_PER_REQUEST_MAX]:
            topics.setdefault(name, TopicRequest(name)).partition_indexes.append(number)
        response = leader.call(
            DescribeProducersRequest(list(topics.values())), DescribeProducersResponse, 0
        )
        for topic in response.topics:
            for state in topic.partitions:
                subject = partition_subject(topic.name, state.partition_index)
                check(state.error_code, subject, state.error_message)
                found += [
                    _candidate(topic.name, state.partition_index, each)
                    for each in state.active_producers
                    if each.current_txn_start_offset >= 0 and each.last_timestamp < latest_ms
                ]
    return found


def _candidate(topic: str, partition: int, producer: ProducerState) -> OpenTransaction:
    return {
        "topic": topic,
        "partition": partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.current_txn_start_offset,
        "last_timestamp": producer.last_timestamp,
    }


def _transactional_ids(address: str, producer_ids: list[int]) -> list[tuple[int, str]]:
    """Return (producer id, transactional id) of the producers that a broker coordinates."""
    with WireClient(address) as broker:
        response = broker.call(
            ListTransactionsRequest(producer_id_filters=producer_ids), ListTransactionsResponse, 0
        )
    check(response.error_code, Subject("broker", address))
    return [(each.producer_id, each.transactional_id) for each in response.transaction_states]


def _partitions(client: WireClient, transactional_id: str) -> set[tuple[str, int]]:
    """Return the partitions to which the coordinator will write a marker for this id."""
    with client.coordinator_of(transactional_id) as coordinator:
        response = coordinator.call(
            DescribeTransactionsRequest([transactional_id]), DescribeTransactionsResponse, 0
        )
    found = response.transaction_states[0]
    if found.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        check(found.error_code, Subject("transactional id", transactional_id))
    return {(each.topic, number) for each in found.topics for number in each.partitions}
