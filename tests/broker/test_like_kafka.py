"""Corner cases in which the broker does what Apache Kafka 4.3.0 does.

Kafka's behaviour was observed with `conformance.differential`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.errors import ErrorCode
from odradek.ids import uuid_from_string
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.records.batch import parse_header
from odradek.records.record import Record, build_batch
from testkit.requests import batch, fetch, produce
from testkit.wire import WireClient

T0 = 1_600_000_000_000
GROUP_TYPE = 0


def create(client: WireClient, partitions: int = 1, **configs: str) -> None:
    overrides = [
        CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
    ]
    topic = CreatableTopic("t", partitions, 1, [], overrides)
    assert client.call(CreateTopicsRequest([topic]), 7).topics[0].error_code == 0


def produced(client: WireClient, records: Any) -> Any:
    response = client.call(produce(records=records, acks=-1), 9)
    return response.responses[0].partition_responses[0]


def test_a_topic_that_is_requested_twice_has_one_result(client: WireClient) -> None:
    create(client, partitions=2)
    request = produce(partition=0)
    request.topic_data += produce(partition=1).topic_data
    [topic] = client.call(request, 9).responses
    assert [(p.index, p.error_code) for p in topic.partition_responses] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("epochs", [{"leader_epoch": -2}, {"last_fetched_epoch": -2}])
def test_any_negative_epoch_in_a_fetch_means_no_epoch(
    client: WireClient, epochs: dict[str, int]
) -> None:
    create(client)
    produced(client, batch(b"a"))
    partition = client.call(fetch(**epochs), 12).responses[0].partitions[0]  # type: ignore[arg-type]
    assert partition.error_code == 0
    assert partition.diverging_epoch is None
    assert parse_header(partition.records).base_offset == 0


def test_an_incomplete_batch_is_not_returned_after_another_partition(client: WireClient) -> None:
    create(client, partitions=2)
    for partition in (0, 1):
        client.call(produce(records=batch(b"a"), partition=partition), 9)
    requested = [FetchPartition(partition, partition_max_bytes=1) for partition in (0, 1)]
    request = FetchRequest(topics=[FetchTopic("t", partitions=requested)])
    first, second = client.call(request, 11).responses[0].partitions
    assert len(first.records) == parse_header(first.records).size_bytes
    assert not second.records


def test_the_response_to_a_duplicate_has_the_largest_timestamp_of_its_batch(
    client: WireClient,
) -> None:
    create(client)
    records = [Record(None, b"a", T0), Record(None, b"b", T0 + 7)]
    data = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    assert produced(client, bytearray(data)).log_append_time_ms == -1
    again = produced(client, bytearray(data))
    assert (again.base_offset, again.log_append_time_ms) == (0, T0 + 7)


def test_after_a_batch_without_epoch_a_producer_may_begin_at_any_sequence(
    client: WireClient,
) -> None:
    create(client)
    for epoch, sequence in ((-1, 0), (5, 3)):
        data = batch(producer_id=1, producer_epoch=epoch, base_sequence=sequence)
        assert produced(client, data).error_code == 0


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("compression_type", ["producer", "zstd"])
def test_a_compacted_topic_accepts_tombstones_and_refuses_records_without_a_key(
    client: WireClient, compression: str, compression_type: str
) -> None:
    create(client, cleanup_policy="compact", compression_type=compression_type)
    good = [Record(b"k", b"v", T0), Record(b"k", None, T0)]
    assert produced(client, build_batch(good, compression=compression)).error_code == 0
    bad = [Record(b"k", b"v", T0), Record(None, b"v", T0)]
    refused = produced(client, build_batch(bad, compression=compression))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in refused.record_errors] == [1]
    assert produced(client, build_batch(good)).base_offset == 2


@pytest.mark.parametrize(("version", "message"), [(1, "NONE"), (6, "")])
def test_find_coordinator_has_kafkas_message_without_an_error(
    client: WireClient, version: int, message: str
) -> None:
    batched = version >= 4
    request = FindCoordinatorRequest("" if batched else "g", GROUP_TYPE, ["g"] if batched else [])
    response = client.call(request, version)
    found = response.coordinators[0] if batched else response
    assert (found.error_code, found.error_message) == (0, message)


@pytest.mark.parametrize(("instance", "prefix"), [(None, "wire-"), ("i", "i-"), ("", "-")])
def test_a_member_id_is_the_instance_or_client_id_and_a_uuid(
    client: WireClient, instance: str | None, prefix: str
) -> None:
    client.call(FindCoordinatorRequest("g", GROUP_TYPE), 3)
    protocols = [JoinGroupRequestProtocol("range", b"")]
    request = JoinGroupRequest("g", 10_000, 10_000, "", instance, "consumer", protocols)
    member_id = client.call(request, 5).member_id
    assert member_id.startswith(prefix)
    assert str(UUID(member_id.removeprefix(prefix))) == member_id.removeprefix(prefix)


def test_a_consumer_without_member_id_gets_a_uuid_in_kafkas_format(
    client: WireClient,
) -> None:
    client.call(FindCoordinatorRequest("g", GROUP_TYPE), 3)
    request = ConsumerGroupHeartbeatRequest(
        "g", "", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    member_id = client.call(request, 0).member_id
    uuid_from_string(member_id)
    assert (len(member_id), member_id[0] != "-") == (22, True)
