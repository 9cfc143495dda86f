"""OffsetDelete over the wire: deleted offsets, and offsets of subscribed topics."""

from __future__ import annotations

import struct

from odradek.errors import ErrorCode
from odradek.protocol import codec
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.join_group_request import JoinGroupRequestProtocol
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, committed, find, join, sync

E = ErrorCode
Codes = dict[tuple[str, int], ErrorCode]


def delete(
    client: WireClient, *partitions: tuple[str, int], group_id: str = "g"
) -> tuple[ErrorCode, Codes]:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition))
    request = OffsetDeleteRequest(
        group_id, [OffsetDeleteRequestTopic(name, parts) for name, parts in topics.items()]
    )
    response = client.call(request, 0)
    codes = {
        (topic.name, part.partition_index): ErrorCode(part.error_code)
        for topic in response.topics
        for part in topic.partitions
    }
    return ErrorCode(response.error_code), codes


def test_single_offsets_are_deleted(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 3)
    find(client)
    commit(client, partition=0)
    commit(client, partition=1)
    assert delete(client, ("t", 1), ("t", 2), ("t", 3), ("none", 0)) == (
        E.NONE,
        {
            ("t", 1): E.NONE,
            ("t", 2): E.NONE,
            ("t", 3): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert committed(client, partition=0).committed_offset == 5
    assert committed(client, partition=1).committed_offset == -1


def test_topics_that_consumers_read_keep_their_offsets(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    find(client)
    subscription = codec.encode(ConsumerProtocolSubscription(topics=["t"]), 0)
    protocol = JoinGroupRequestProtocol("range", struct.pack(">h", 0) + subscription)
    joined = join(client, protocols=[protocol])
    sync(client, joined)
    for topic in ("t", "u"):
        own = {
            "member_id": joined.member_id,
            "generation_id_or_member_epoch": joined.generation_id,
        }
        assert commit(client, topic=topic, **own) is E.NONE
    assert delete(client, ("t", 0), ("u", 0)) == (
        E.NONE,
        {("t", 0): E.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): E.NONE},
    )
    assert committed(client, "u").committed_offset == -1


def test_errors_of_the_whole_request(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    find(client)
    assert delete(client, ("t", 0)) == (E.GROUP_ID_NOT_FOUND, {})
    assert delete(client, ("t", 0), group_id="") == (E.INVALID_GROUP_ID, {})
    joined = join(client, protocol_type="connect")
    sync(client, joined, protocol_type="connect")
    assert delete(client, ("t", 0), ("none", 0)) == (E.NON_EMPTY_GROUP, {})
