"""DescribeQuorum over the wire, and with admin clients."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import ZERO_UUID, uuid_to_string
from odradek.metadata.store.interface import StoreFailure
from odradek.protocol.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from odradek.testing import Broker
from testkit.wire import WireClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient


def request(*partitions: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        [TopicData(name, [PartitionData(each) for each in numbers]) for name, numbers in partitions]
    )


METADATA = ("__cluster_metadata", [0])


def described(client: WireClient, version: int = 2) -> Any:
    response = client.call(request(METADATA), version)
    assert response.error_code == 0
    [topic] = response.topics
    [partition] = topic.partitions
    assert (topic.topic_name, partition.partition_index) == ("__cluster_metadata", 0)
    return partition


@pytest.mark.parametrize("version", range(3))
def test_this_node_leads_and_is_the_only_voter(
    broker: Broker, client: WireClient, version: int
) -> None:
    found = described(client, version)
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 1, 1)
    [voter] = found.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, found.high_watermark)
    assert found.observers == []
    assert (voter.last_caught_up_timestamp > 0) is (version >= 1)
    assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp
    assert (voter.replica_directory_id != ZERO_UUID) is (version >= 2)


def test_voter_is_caught_up_by_the_brokers_clock(broker: Broker, client: WireClient) -> None:
    before = described(client).current_voters[0].last_caught_up_timestamp
    broker.advance(3600)
    after = described(client).current_voters[0].last_caught_up_timestamp
    assert after - before >= 3_600_000


def test_nodes_have_the_address_that_the_client_reaches(broker: Broker, client: WireClient) -> None:
    [node] = client.call(request(METADATA), 2).nodes
    [listener] = node.listeners
    assert (node.node_id, listener.name) == (1, "PLAINTEXT")
    assert f"{listener.host}:{listener.port}" == broker.bootstrap_servers
    assert client.call(request(METADATA), 1).nodes == []


def test_offsets_grow_with_the_metadata(broker: Broker, client: WireClient) -> None:
    before = described(client).high_watermark
    assert described(client).high_watermark == before > 0
    broker.create_topic("pages")
    after = described(client)
    assert after.high_watermark > before
    assert after.current_voters[0].log_end_offset == after.high_watermark


def test_a_restart_raises_the_epoch_and_keeps_offsets_and_directory(tmp_path: Path) -> None:
    def look() -> Any:
        with Broker(data_dir=tmp_path) as broker:
            with WireClient(broker.bootstrap_servers) as client:
                return described(client)

    first, second = look(), look()
    assert (first.leader_epoch, second.leader_epoch) == (1, 2)
    assert second.high_watermark > first.high_watermark
    ids = {each.current_voters[0].replica_directory_id for each in (first, second)}
    properties = (tmp_path / "meta.properties").read_text("utf-8")
    assert [f"directory.id={uuid_to_string(each)}" in properties for each in ids] == [True]


def test_an_administrators_client_describes_the_quorum(broker: Broker) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers,
        request_timeout_ms=120_000,
        bootstrap_timeout_ms=120_000,
    )
    try:
        quorum = admin.describe_metadata_quorum()
    finally:
        admin.close()
    [partition] = quorum["topics"][0]["partitions"]
    assert (partition["error"], partition["leader_id"]) == (None, 1)
    assert [each["replica_id"] for each in partition["current_voters"]] == [1]


@pytest.mark.parametrize(
    "requested",
    [
        [("pages", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [0, 1])],
        [METADATA, METADATA],
        [METADATA, ("pages", [0])],
        [METADATA, ("pages", [])],
    ],
)
def test_any_other_partition_is_unknown(
    client: WireClient, requested: list[tuple[str, list[int]]]
) -> None:
    response = client.call(request(*requested), 2)
    assert response.error_code == 0
    returned = [(t.topic_name, [p.partition_index for p in t.partitions]) for t in response.topics]
    assert returned == requested
    codes = {p.error_code for t in response.topics for p in t.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_request_without_partitions_has_an_empty_response(client: WireClient) -> None:
    response = client.call(request(), 2)
    assert (response.error_code, response.topics, response.nodes) == (0, [], [])


def test_an_unreadable_store_is_a_storage_error(broker: Broker, client: WireClient) -> None:
    async def fail() -> int:
        raise StoreFailure("no disk")

    async def break_store(server: Any) -> None:
        server.services.controller._store.change_count = fail

    broker.call(break_store)
    response = client.call(request(METADATA), 2)
    assert (response.error_code, response.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
