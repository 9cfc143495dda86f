"""Metadata over the wire: every version, requested topics, auto-creation, addresses."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.requests.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
)
from odradek.errors import ErrorCode
from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.testing import Broker
from testkit.wire import WireClient

ALL_VERSIONS = range(14)


def request_for(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics, allow_auto_topic_creation=create)


def summary(response: Any) -> dict[str | None, tuple[int, int]]:
    """Return error code and number of partitions by name."""
    return {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_every_version_returns_broker_and_leader(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 2)
    response = client.call(request_for("t"), version)
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, "t", False)
    for index, partition in enumerate(topic.partitions):
        assert (partition.partition_index, partition.error_code) == (index, ErrorCode.NONE)
        assert partition.leader_id == node.node_id == 1
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert bool(response.cluster_id) == (version >= 2)
    assert (topic.topic_id != ZERO_UUID) == (version >= 10)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_are_null_and_in_version_0_the_empty_list(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("a")
    broker.create_topic("b", 3)
    everything = {"a": (ErrorCode.NONE, 1), "b": (ErrorCode.NONE, 3)}
    assert summary(client.call(request_for(), version)) == (everything if version == 0 else {})
    if version > 0:
        assert summary(client.call(MetadataRequest(None), version)) == everything


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_response_that_creates_a_topic_is_unknown_and_the_next_one_has_its_leader(
    client: WireClient, version: int
) -> None:
    first = client.call(request_for("new"), version)
    assert summary(first) == {"new": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
    assert first.topics[0].topic_id == ZERO_UUID
    second = client.call(request_for("new"), version)
    assert summary(second) == {"new": (ErrorCode.NONE, 1)}
    assert second.topics[0].partitions[0].leader_id == 1


def test_deleted_topic_is_unknown_in_the_response_that_creates_it_again(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 2)
    client.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000), 6)
    assert summary(client.call(request_for("t"), 12)) == {
        "t": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    }
    assert summary(client.call(request_for("t"), 12)) == {"t": (ErrorCode.NONE, 1)}


def test_existing_topics_are_described_together_with_created_ones(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("old", 2)
    assert summary(client.call(request_for("new", "old", "a b"), 12)) == {
        "new": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        "old": (ErrorCode.NONE, 2),
        "a b": (ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
    }


def test_missing_topic_is_unknown_if_the_client_forbids_creation(client: WireClient) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    for _ in range(2):
        assert summary(client.call(request_for("new", create=False), 4)) == {"new": unknown}


@pytest.mark.parametrize("config", [{"auto.create.topics.enable": "false"}])
def test_missing_topic_is_unknown_if_the_broker_forbids_creation(client: WireClient) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert summary(client.call(request_for("new"), 12)) == {"new": unknown}


@pytest.mark.parametrize("create", [True, False])
def test_illegal_name_is_an_invalid_topic(client: WireClient, create: bool) -> None:
    response = client.call(request_for("a b", "x" * 250, "", create=create), 12)
    assert {code for code, _ in summary(response).values()} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_colliding_name_is_not_created(
    broker: Broker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("a.b")
    caplog.set_level("INFO")
    for _ in range(2):
        response = client.call(request_for("a_b"), 12)
        assert summary(response) == {"a_b": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
    assert "'a_b': Topic 'a_b' collides with existing topic: a.b" in caplog.text


@pytest.mark.parametrize("config", [{"default.replication.factor": "2"}])
def test_topic_that_cannot_be_replicated_is_not_created(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for _ in range(2):
        response = client.call(request_for("new"), 12)
        assert summary(response) == {"new": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
    assert "'new': Unable to replicate the partition 2 time(s)" in caplog.text


@pytest.mark.parametrize("config", [{"num.partitions": "3", "offsets.topic.num.partitions": "7"}])
def test_created_topics_have_the_brokers_partitions(client: WireClient) -> None:
    first = client.call(request_for("new", "__consumer_offsets"), 12)
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert summary(first) == {"new": unknown, "__consumer_offsets": unknown}
    assert [topic.is_internal for topic in first.topics] == [False, True]
    response = client.call(request_for("new", "__consumer_offsets"), 12)
    assert summary(response) == {
        "new": (ErrorCode.NONE, 3),
        "__consumer_offsets": (ErrorCode.NONE, 7),
    }
    assert [topic.is_internal for topic in response.topics] == [False, True]


def test_repeated_topic_has_one_result(client: WireClient) -> None:
    assert len(client.call(request_for("t", "t"), 12).topics) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(broker: Broker, client: WireClient, version: int) -> None:
    broker.create_topic("t")
    topic_id = client.call(request_for("t"), version).topics[0].topic_id
    other = Uuid(b"x" * 16)
    request = MetadataRequest(
        [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(other, None)]
    )
    found, unknown = client.call(request, version).topics
    assert (found.name, found.topic_id, found.error_code) == ("t", topic_id, ErrorCode.NONE)
    assert (unknown.name, unknown.topic_id) == (None, other)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_version_12_are_an_invalid_request(client: WireClient, version: int) -> None:
    for topic in (MetadataRequestTopic(name=None), MetadataRequestTopic(Uuid(b"x" * 16), "t")):
        response = client.call(MetadataRequest([topic]), version)
        assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST
        assert (response.brokers, response.controller_id) == ([], -1)


@pytest.mark.parametrize("version", [12, 13])
def test_neither_name_nor_id_is_an_invalid_request(client: WireClient, version: int) -> None:
    response = client.call(MetadataRequest([MetadataRequestTopic(name=None)]), version)
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_returned_on_request(client: WireClient, version: int) -> None:
    request = request_for("t")
    response = client.call(request, version)
    assert response.topics[0].topic_authorized_operations == NOT_REQUESTED
    assert response.cluster_authorized_operations == NOT_REQUESTED
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = version <= 10
    response = client.call(request, version)
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    expected = CLUSTER_OPERATIONS if version <= 10 else NOT_REQUESTED
    assert response.cluster_authorized_operations == expected


@pytest.mark.parametrize(
    "config", [{"advertised.listeners": "PLAINTEXT://broker.example:19092", "broker.rack": "r1"}]
)
def test_advertised_listener_and_rack_are_returned(client: WireClient) -> None:
    (node,) = client.call(request_for(), 12).brokers
    assert (node.host, node.port, node.rack) == ("broker.example", 19092, "r1")
