"""CreatePartitions over the wire: every version, and refused requests."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient


def partitions(client: WireClient) -> dict[str | None, int]:
    response = client.call(MetadataRequest(None), 12)
    return {topic.name: len(topic.partitions) for topic in response.topics}


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions_that_accept_records_immediately(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")
    request = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)])
    (result,) = client.call(request, version).results
    assert (result.name, result.error_code, result.error_message) == ("t", ErrorCode.NONE, None)
    (sent,) = client.call(produce("t", partition=2), 8).responses
    assert sent.partition_responses[0].error_code == ErrorCode.NONE
    assert partitions(client) == {"t": 3}


def test_each_topic_has_its_own_error(broker: Broker, client: WireClient) -> None:
    for name in ("same", "fewer", "assigned", "wrong", "twice"):
        broker.create_topic(name, 2)
    own, foreign = CreatePartitionsAssignment([1]), CreatePartitionsAssignment([9])
    topics = [
        CreatePartitionsTopic("same", 2, None),
        CreatePartitionsTopic("fewer", 1, None),
        CreatePartitionsTopic("assigned", 3, [own]),
        CreatePartitionsTopic("wrong", 3, [foreign]),
        CreatePartitionsTopic("twice", 3, None),
        CreatePartitionsTopic("twice", 4, None),
        CreatePartitionsTopic("nope", 4, None),
    ]
    results = client.call(CreatePartitionsRequest(topics), 3).results
    assert {each.name: each.error_code for each in results} == {
        "same": ErrorCode.INVALID_PARTITIONS,
        "fewer": ErrorCode.INVALID_PARTITIONS,
        "assigned": ErrorCode.NONE,
        "wrong": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "twice": ErrorCode.INVALID_REQUEST,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert partitions(client) == {"same": 2, "fewer": 2, "assigned": 3, "wrong": 2, "twice": 2}


def test_validate_only_adds_nothing(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    topic = CreatePartitionsTopic("t", 3, None)
    request = CreatePartitionsRequest([topic], validate_only=True)
    assert client.call(request, 3).results[0].error_code == ErrorCode.NONE
    assert partitions(client) == {"t": 1}
