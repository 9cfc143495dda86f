"""A broker on the log directory of a stopped Apache Kafka serves the same data as Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import STORE_FILE, BrokerServer
from odradek.errors import ErrorCode
from odradek.ids import uuid_to_string
from odradek.protocol.messages import (
    describe_client_quotas_request,
    describe_configs_request,
    describe_producers_request,
    describe_transactions_request,
    offset_fetch_request,
)
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.records.batch import CONTROL_MASK, parse_header
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from testkit.requests import fetch, produce
from testkit.wire import WireClient
from tests.helpers.kafka_directory import CLUSTER_ID, KINDS, NODE_ID, PLAIN_ID, served, unpack

TOPICS = {
    "__consumer_offsets": 2,
    "__transaction_state": 2,
    "compacted": 1,
    "empty": 2,
    "in.out": 2,
    "plain": 3,
    "wide": 3,
}
READ_COMMITTED = 1


@pytest.fixture(params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


@pytest.fixture
def running(directory: Path) -> Iterator[tuple[BrokerServer, WireClient]]:
    with served(directory) as both:
        yield both


@pytest.fixture
def client(running: tuple[BrokerServer, WireClient]) -> WireClient:
    return running[1]


def described(client: WireClient) -> dict[str, Any]:
    return {topic.name: topic for topic in client.call(MetadataRequest(None), 12).topics}


def fetched(client: WireClient, topic: str, partition: int, isolation_level: int = 0) -> Any:
    request = fetch(topic, partitions=(partition,), isolation_level=isolation_level)
    (found,) = client.call(request, 12).responses[0].partitions
    assert found.error_code == ErrorCode.NONE
    return found


def read_values(client: WireClient, topic: str, partition: int) -> list[bytes | None]:
    return [
        record.value
        for batch in iter_batches(bytes(fetched(client, topic, partition).records))
        if not parse_header(batch).attributes & CONTROL_MASK
        for record in iter_records(batch)
    ]


def test_topics_have_kafkas_ids_partitions_and_leaders(client: WireClient) -> None:
    topics = described(client)
    assert {name: len(topic.partitions) for name, topic in topics.items()} == TOPICS
    assert uuid_to_string(topics["plain"].topic_id) == PLAIN_ID
    leaders = {p.leader_id for topic in topics.values() for p in topic.partitions}
    assert leaders == {NODE_ID}
    assert client.call(MetadataRequest(None), 12).cluster_id == CLUSTER_ID


def test_leader_epochs_rise_above_those_of_kafka(directory: Path, client: WireClient) -> None:
    checkpoint = (directory / "plain-0" / "leader-epoch-checkpoint").read_text().split()
    (epoch,) = {p.leader_epoch for p in described(client)["plain"].partitions}
    assert epoch > int(checkpoint[-2])


def test_every_record_is_read(client: WireClient) -> None:
    for partition in range(3):
        expected = [b"v%d" % i for i in range(60) if i % 3 == partition]
        assert read_values(client, "plain", partition) == expected
        assert read_values(client, "wide", partition) == [
            b"w%d" % i for i in range(partition, 9, 3)
        ]
    assert read_values(client, "compacted", 0) == [b"x%d" % i for i in range(20)]
    assert read_values(client, "empty", 1) == []


def test_aborted_and_open_transactions_are_known(client: WireClient) -> None:
    found = fetched(client, "in.out", 1, READ_COMMITTED)
    (aborted,) = found.aborted_transactions
    assert found.last_stable_offset < found.high_watermark
    values = [
        record.value
        for batch in iter_batches(bytes(found.records))
        if not parse_header(batch).attributes & CONTROL_MASK
        for record in iter_records(batch)
    ]
    assert values == [b"yes1", b"yes3", b"yes5", b"no1", b"no3", b"more1"]
    assert aborted.first_offset == 4


def test_offsets_of_kafkas_groups_are_served(client: WireClient) -> None:
    requested = offset_fetch_request.OffsetFetchRequestTopics("plain", partition_indexes=[0, 1, 2])
    group = offset_fetch_request.OffsetFetchRequestGroup("readers", topics=[requested])
    response = client.call(offset_fetch_request.OffsetFetchRequest(groups=[group]), 8)
    offsets = [p.committed_offset for p in response.groups[0].topics[0].partitions]
    assert offsets == [10, 20, 17]


def test_transactions_of_kafka_exist_and_can_be_aborted(client: WireClient) -> None:
    request = describe_transactions_request.DescribeTransactionsRequest(["mover", "hanging"])
    states = client.call(request, 0).transaction_states
    assert [s.transaction_state for s in states] == ["CompleteCommit", "Ongoing"]
    assert [t.topic for t in states[1].topics] == ["in.out"]


def test_producers_continue_their_sequences(client: WireClient) -> None:
    topic = describe_producers_request.TopicRequest("plain", [0])
    request = describe_producers_request.DescribeProducersRequest([topic])
    (producer,) = client.call(request, 0).topics[0].partitions[0].active_producers
    assert producer.last_sequence == 19

    def send(sequence: int) -> int:
        batch = build_batch(
            [Record(None, b"next")],
            timestamp_ms=producer.last_timestamp,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        code: int = (
            client.call(produce("plain", batch), 9).responses[0].partition_responses[0].error_code
        )
        return code

    assert send(25) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(20) == ErrorCode.NONE


def test_no_producer_id_is_allocated_twice(client: WireClient) -> None:
    response = client.call(InitProducerIdRequest(None, 0), 4)
    assert response.producer_id >= 1000


def test_configs_are_those_of_kafka(client: WireClient) -> None:
    resources = [
        describe_configs_request.DescribeConfigsResource(kind, name)
        for kind, name in (
            (2, "plain"),
            (2, "wide"),
            (4, "7"),
            (4, ""),
            (16, "sub"),
            (32, "readers"),
        )
    ]
    response = client.call(describe_configs_request.DescribeConfigsRequest(resources), 4)
    plain, wide, broker, cluster, sub, group = (
        {config.name: config.value for config in result.configs} for result in response.results
    )
    assert (plain["retention.ms"], plain["segment.bytes"]) == ("123456789", "1048600")
    assert (wide["retention.ms"], wide["max.message.bytes"]) == ("-1", "1048588")
    assert broker["log.cleaner.threads"] == "2"
    assert cluster["log.retention.ms"] == "987654321"
    assert (sub["metrics"], sub["interval.ms"]) == ("org.apache", "60000")
    assert group["consumer.session.timeout.ms"] == "50000"


def test_quotas_are_those_of_kafka(client: WireClient) -> None:
    request = describe_client_quotas_request.DescribeClientQuotasRequest([], False)
    found = {
        tuple((e.entity_type, e.entity_name) for e in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in client.call(request, 1).entries
    }
    assert found == {
        (("client-id", "slow"),): {"producer_byte_rate": 1048576.0},
        (("user", None),): {"consumer_byte_rate": 2097152.0},
        (("client-id", None), ("user", "al ice")): {"consumer_byte_rate": 5000.0},
    }


def test_features_that_exist_in_odradek_have_kafkas_levels(client: WireClient) -> None:
    features = client.call(ApiVersionsRequest("t", "1"), 3).finalized_features
    levels = {feature.name: feature.max_version_level for feature in features}
    assert levels == {"group.version": 1, "transaction.version": 2, "metadata.version": 27}


def test_kafkas_metadata_is_read_once_and_not_changed(directory: Path) -> None:
    metadata = directory / "__cluster_metadata-0"
    before = {path.name: path.read_bytes() for path in metadata.iterdir()}
    with served(directory) as (_, client):
        ids = {name: topic.topic_id for name, topic in described(client).items()}
    assert {path.name: path.read_bytes() for path in metadata.iterdir()} == before
    for path in metadata.iterdir():
        path.write_bytes(b"nobody reads this again")
    with served(directory) as (_, client):
        assert {name: topic.topic_id for name, topic in described(client).items()} == ids


def test_without_kafkas_metadata_configs_are_defaults_and_a_warning_is_logged(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = directory / "__cluster_metadata-0"
    for path in metadata.iterdir():
        path.unlink()
    metadata.rmdir()
    with caplog.at_level(logging.WARNING), served(directory) as (server, client):
        topics = described(client)
        assert read_values(client, "plain", 0) == [b"v%d" % i for i in range(0, 60, 3)]
        configs = server.services.image().topic_configs
    assert {name: len(topic.partitions) for name, topic in topics.items()} == TOPICS
    assert uuid_to_string(topics["plain"].topic_id) == PLAIN_ID
    assert "their configs, with retention, are the defaults" in caplog.text
    assert "plain" not in configs
    assert configs["__consumer_offsets"]["cleanup.policy"] == "compact"  # type: ignore[index]
    assert (directory / STORE_FILE).exists()
