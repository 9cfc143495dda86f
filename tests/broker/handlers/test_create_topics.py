"""CreateTopics over the wire: every version, defaults, configs in the response, refusals."""

from __future__ import annotations

import pytest

from odradek.config.broker import ConfigSource
from odradek.errors import ErrorCode
from odradek.ids import ZERO_UUID
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    pairs = [CreatableTopicConfig(key.replace("_", "."), it) for key, it in configs.items()]
    return CreatableTopic(name, partitions, replicas, [], pairs)


def names(client: WireClient) -> list[str | None]:
    return [found.name for found in client.call(MetadataRequest(None), 12).topics]


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_a_topic_that_accepts_records_immediately(
    client: WireClient, version: int
) -> None:
    request = CreateTopicsRequest([topic("t", 3, retention_ms="5")])
    (response,) = client.call(request, version).topics
    assert (response.name, response.error_code, response.error_message) == (
        "t",
        ErrorCode.NONE,
        None,
    )
    (sent,) = client.call(produce("t", partition=2), 8).responses
    assert sent.partition_responses[0].error_code == ErrorCode.NONE
    assert (response.topic_id != ZERO_UUID) == (version >= 7)
    if version < 5:
        return
    assert (response.num_partitions, response.replication_factor) == (3, 1)
    configs = {config.name: config for config in response.configs}
    assert len(configs) == 33
    retention = configs["retention.ms"]
    assert (retention.value, retention.read_only, retention.is_sensitive) == ("5", False, False)
    assert retention.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert configs["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize("config", [{"num.partitions": "4", "log.segment.bytes": "2000000"}])
def test_minus_one_means_the_brokers_defaults(client: WireClient) -> None:
    (response,) = client.call(CreateTopicsRequest([topic("t", -1, -1)]), 7).topics
    assert (response.num_partitions, response.replication_factor) == (4, 1)
    (size,) = [each for each in response.configs if each.name == "segment.bytes"]
    assert (size.value, size.config_source) == ("2000000", ConfigSource.STATIC_BROKER_CONFIG)


def test_each_topic_has_its_own_error(client: WireClient) -> None:
    topics = [
        topic("good"),
        topic("twice"),
        topic("twice", 2),
        topic("bad name"),
        topic("many", 1, 2),
        topic("none", 0),
        topic("wrong", segment_bytes="1"),
        topic("unknown", what="1"),
        topic("__cluster_metadata"),
    ]
    response = client.call(CreateTopicsRequest(topics), 7)
    assert {each.name: each.error_code for each in response.topics} == {
        "good": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        "none": ErrorCode.INVALID_PARTITIONS,
        "wrong": ErrorCode.INVALID_CONFIG,
        "unknown": ErrorCode.INVALID_CONFIG,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
    }
    assert all(each.error_message for each in response.topics if each.error_code)
    assert names(client) == ["good"]
    (again,) = client.call(CreateTopicsRequest([topic("good")]), 7).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_null_config_is_refused(client: WireClient) -> None:
    null_config = CreatableTopic("t", 1, 1, [], [CreatableTopicConfig("retention.ms", None)])
    (response,) = client.call(CreateTopicsRequest([null_config]), 7).topics
    assert response.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", range(2, 8))
def test_validate_only_creates_nothing(client: WireClient, version: int) -> None:
    request = CreateTopicsRequest([topic("t"), topic("b d")], validate_only=True)
    good, bad = client.call(request, version).topics
    assert good.error_code == ErrorCode.NONE
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert names(client) == []


def test_manual_assignment_needs_the_counts_unset(client: WireClient) -> None:
    assignments = [CreatableReplicaAssignment(number, [1]) for number in range(3)]
    good = CreatableTopic("t", -1, -1, assignments)
    bad = CreatableTopic("u", 3, 1, assignments)
    other = CreatableTopic("v", -1, -1, [CreatableReplicaAssignment(0, [9])])
    response = client.call(CreateTopicsRequest([good, bad, other]), 7)
    assert [each.error_code for each in response.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert response.topics[0].num_partitions == 3


def test_empty_request_has_an_empty_response(client: WireClient) -> None:
    assert client.call(CreateTopicsRequest(), 7).topics == []


def test_topic_id_equals_the_one_in_metadata(broker: Broker, client: WireClient) -> None:
    (response,) = client.call(CreateTopicsRequest([topic("t")]), 7).topics
    request = MetadataRequest([MetadataRequestTopic(response.topic_id, None)])
    assert client.call(request, 12).topics[0].name == "t"
