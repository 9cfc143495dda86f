"""DescribeTopicPartitions over the wire: pages, cursors, and refused requests."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.requests.authorized_operations import TOPIC_OPERATIONS
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.testing import Broker
from testkit.wire import WireClient


def describe(
    client: WireClient, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> Any:
    topics = [TopicRequest(name) for name in names]
    return client.call(DescribeTopicPartitionsRequest(topics, limit, cursor), 0)


def pages(client: WireClient, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    """Return the (topic, partition) of each page, following the cursors."""
    found = []
    cursor = None
    while True:
        response = describe(client, *names, limit=limit, cursor=cursor)
        found.append(
            [(topic.name, p.partition_index) for topic in response.topics for p in topic.partitions]
        )
        if response.next_cursor is None:
            return found
        cursor = Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)


@pytest.fixture
def topics(broker: Broker) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        broker.create_topic(name, count)


@pytest.mark.usefixtures("topics")
def test_all_topics_are_sorted_by_name(client: WireClient) -> None:
    response = describe(client)
    assert [topic.name for topic in response.topics] == ["a", "b", "c"]
    partition = response.topics[1].partitions[2]
    assert (partition.partition_index, partition.leader_id, partition.leader_epoch) == (2, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert partition.eligible_leader_replicas == partition.last_known_elr == []
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_pages_have_every_partition_once(client: WireClient, limit: int) -> None:
    found = pages(client, limit=limit)
    expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert [partition for page in found for partition in page] == expected
    assert all(len(page) == limit for page in found[:-1])


@pytest.mark.usefixtures("topics")
def test_a_limit_below_one_counts_as_one(client: WireClient) -> None:
    assert len(pages(client, "a", limit=-5)) == 2


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("config", [{"max.request.partition.size.limit": "4"}])
def test_the_brokers_limit_applies_too(client: WireClient) -> None:
    assert [len(page) for page in pages(client, limit=2000)] == [4, 2]


@pytest.mark.usefixtures("topics")
def test_only_requested_topics_are_described(client: WireClient) -> None:
    response = describe(client, "c", "nope", "b d", "c")
    assert {topic.name: topic.error_code for topic in response.topics} == {
        "b d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": ErrorCode.NONE,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("cursor", [Cursor("a", 0), Cursor("b", -1)])
def test_invalid_cursor_is_an_invalid_request(client: WireClient, cursor: Cursor) -> None:
    response = describe(client, "b", "c", cursor=cursor)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.usefixtures("topics")
def test_cursor_after_the_last_partition_continues_with_the_next_topic(client: WireClient) -> None:
    response = describe(client, cursor=Cursor("b", 99))
    assert [(t.name, len(t.partitions)) for t in response.topics] == [("b", 0), ("c", 1)]
