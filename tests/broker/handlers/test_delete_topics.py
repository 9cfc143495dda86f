"""DeleteTopics over the wire: every version, by name and by id, and recreated topics."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient


def delete(version: int, *names: str) -> DeleteTopicsRequest:
    if version >= 6:
        return DeleteTopicsRequest([DeleteTopicState(name) for name in names])
    return DeleteTopicsRequest(topic_names=list(names))


def topics(client: WireClient) -> dict[str | None, Uuid]:
    response = client.call(MetadataRequest(None), 12)
    return {topic.name: topic.topic_id for topic in response.topics}


def end_offset(client: WireClient, topic: str) -> Any:
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0)])])
    request.topics[0].partitions[0].timestamp = -1
    return client.call(request, 5).topics[0].partitions[0].offset


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes_by_name(broker: Broker, client: WireClient, version: int) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    response = client.call(delete(version, "t", "nope"), version)
    assert {each.name: each.error_code for each in response.responses} == {
        "t": ErrorCode.NONE,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert list(topics(client)) == ["u"]


def test_topic_is_deleted_by_id(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    topic_id, other = topics(client)["t"], Uuid(b"x" * 16)
    states = [DeleteTopicState(None, topic_id), DeleteTopicState(None, other)]
    gone, unknown = client.call(DeleteTopicsRequest(states), 6).responses
    assert (gone.name, gone.topic_id, gone.error_code) == ("t", topic_id, ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert topics(client) == {}


def test_topic_requested_twice_is_not_deleted(broker: Broker, client: WireClient) -> None:
    for name in "tuv":
        broker.create_topic(name)
    ids = topics(client)
    states = [
        DeleteTopicState("t"),
        DeleteTopicState("t"),
        DeleteTopicState(None, ids["u"]),
        DeleteTopicState("u"),
        DeleteTopicState("v", ids["v"]),
        DeleteTopicState(None),
    ]
    responses = client.call(DeleteTopicsRequest(states), 6).responses
    assert {each.error_code for each in responses} == {ErrorCode.INVALID_REQUEST}
    assert len(responses) == 4
    assert all(each.error_message for each in responses)
    assert topics(client) == ids


@pytest.mark.parametrize("config", [{"delete.topic.enable": "false"}])
@pytest.mark.parametrize("version", range(1, 7))
def test_topic_deletion_can_be_disabled(broker: Broker, client: WireClient, version: int) -> None:
    broker.create_topic("t")
    (response,) = client.call(delete(version, "t"), version).responses
    expected = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    assert response.error_code == expected
    assert list(topics(client)) == ["t"]


def test_recreated_topic_has_a_new_id_and_no_records(broker: Broker, client: WireClient) -> None:
    ids = set()
    for _ in range(5):
        broker.create_topic("t")
        ids.add(topics(client)["t"])
        assert end_offset(client, "t") == 0
        (sent,) = client.call(produce("t"), 8).responses
        assert sent.partition_responses[0].base_offset == 0
        assert end_offset(client, "t") == 1
        (response,) = client.call(delete(6, "t"), 6).responses
        assert response.error_code == ErrorCode.NONE
    assert len(ids) == 5


def test_deleted_topic_accepts_no_records(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    client.call(delete(6, "t"), 6)
    (sent,) = client.call(produce("t"), 8).responses
    assert sent.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
