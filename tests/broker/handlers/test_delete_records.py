"""DeleteRecords over the wire: every version, the high watermark, and refused requests."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import WireClient

NO_PARTITIONS = -1


def delete(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        [DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])]
    )


def deleted(client: WireClient, request: DeleteRecordsRequest, version: int = 2) -> tuple[int, int]:
    (topic,) = client.call(request, version).topics
    (partition,) = topic.partitions
    return partition.error_code, partition.low_watermark


def fetched(client: WireClient, offset: int) -> Any:
    return client.call(fetch("t", offset), 11).responses[0].partitions[0]


@pytest.fixture
def records(broker: Broker, client: WireClient) -> None:
    """Write ten records in ten batches to partition 0 of t."""
    broker.create_topic("t", 2)
    for _ in range(10):
        client.call(produce("t", batch(b"v")), 8)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.usefixtures("records")
def test_every_version_deletes_records_below_the_offset(client: WireClient, version: int) -> None:
    assert deleted(client, delete("t", 4), version) == (ErrorCode.NONE, 4)
    assert fetched(client, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(client, 4).error_code == ErrorCode.NONE
    assert fetched(client, 4).log_start_offset == 4


@pytest.mark.usefixtures("records")
def test_deleting_below_the_log_start_changes_nothing(client: WireClient) -> None:
    assert deleted(client, delete("t", 4)) == (ErrorCode.NONE, 4)
    assert deleted(client, delete("t", 2)) == (ErrorCode.NONE, 4)


@pytest.mark.usefixtures("records")
def test_minus_one_deletes_up_to_the_high_watermark(client: WireClient) -> None:
    assert deleted(client, delete("t", -1)) == (ErrorCode.NONE, 10)
    (sent,) = client.call(produce("t"), 8).responses
    assert sent.partition_responses[0].base_offset == 10


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("offset", [11, 2**63 - 1, -2, -(2**63)])
def test_offset_outside_the_log_is_out_of_range(client: WireClient, offset: int) -> None:
    assert deleted(client, delete("t", offset)) == (ErrorCode.OFFSET_OUT_OF_RANGE, NO_PARTITIONS)
    assert fetched(client, 0).error_code == ErrorCode.NONE


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize(("topic", "partition"), [("t", 2), ("t", -1), ("nope", 0)])
def test_partition_that_does_not_exist_is_unknown(
    client: WireClient, topic: str, partition: int
) -> None:
    request = delete(topic, 0, partition)
    assert deleted(client, request) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITIONS)


def test_records_of_compacted_topics_are_not_deleted(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 1, {"cleanup.policy": "compact"})
    assert deleted(client, delete("t", -1)) == (ErrorCode.POLICY_VIOLATION, NO_PARTITIONS)


def test_records_of_internal_topics_are_not_deleted(broker: Broker, client: WireClient) -> None:
    broker.create_topic("__consumer_offsets", 1)
    request = delete("__consumer_offsets", -1)
    assert deleted(client, request) == (ErrorCode.INVALID_TOPIC_EXCEPTION, NO_PARTITIONS)


@pytest.mark.usefixtures("records")
def test_repeated_partition_has_one_result(client: WireClient) -> None:
    request = delete("t", 2)
    request.topics[0].partitions.append(DeleteRecordsPartition(0, 3))
    request.topics.append(DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 4)]))
    assert deleted(client, request) == (ErrorCode.NONE, 4)
