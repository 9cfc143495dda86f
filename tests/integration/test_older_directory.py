"""Data directories written by an older commit can be opened, and all their data is served.

The directories are in tests/data/odradek-f800f9e, together with the script that wrote them.
"""

from __future__ import annotations

import base64
import json
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.broker.broker import BrokerServer
from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode
from odradek.ids import uuid_to_string
from odradek.protocol.messages import (
    add_partitions_to_txn_request,
    describe_client_quotas_request,
    describe_configs_request,
    describe_producers_request,
    describe_transactions_request,
    produce_request,
)
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.records.record import Record, build_batch
from testkit.requests import fetch
from testkit.wire import WireClient
from tests.helpers.kafka_directory import served

DATA = Path(__file__).parents[1] / "data" / "odradek-f800f9e"
KINDS = ("stopped", "killed")
READ_COMMITTED = 1
WINDOW = 5
"""Number of batches of a producer that are detected as duplicates."""


class Older:
    """A broker on a copy of a directory, its client, and the data that the writer expects."""

    def __init__(
        self, directory: Path, server: BrokerServer, client: WireClient, expected: Any
    ) -> None:
        self.directory = directory
        self.server = server
        self.client = client
        self.expected = expected
        self.address = server.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.address})

    def read(self, topic: str, isolation: str = "read_uncommitted") -> list[list[Any]]:
        """Return all records of a topic as [partition, offset, key, value], read by librdkafka."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": 10,
            }
        )
        partitions = range(len(self.expected["topics"][topic][1]))
        found: list[list[Any]] = []
        try:
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            at_end: set[int] = set()
            while len(at_end) < len(partitions):
                message = consumer.poll(60)
                assert message is not None, f"{topic}: {len(found)} records, then none"
                if message.error() is not None:
                    at_end.add(message.partition())
                    continue
                value = message.value()
                text = None if value is None else value.decode()
                found.append([message.partition(), message.offset(), message.key().decode(), text])
        finally:
            consumer.close()
        return sorted(found)

    def produce(self, topic: str, data: bytes) -> Any:
        partition = produce_request.PartitionProduceData(0, data)
        topics = [produce_request.TopicProduceData(topic, partition_data=[partition])]
        response = self.client.call(produce_request.ProduceRequest(None, -1, 60_000, topics), 9)
        return response.responses[0].partition_responses[0]


def config_for(directory: Path, node_id: int) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "log.dirs": str(directory),
            "node.id": str(node_id),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
        }
    )


def opened(kind: str, directory: Path) -> Iterator[Older]:
    expected = json.loads((DATA / f"{kind}.json").read_text("utf-8"))
    config = config_for(directory, expected["node_id"])
    with served(directory, config, expected["time_ms"]) as (server, client):
        yield Older(directory, server, client, expected)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def directory(kind: str, tmp_path: Path) -> Path:
    with tarfile.open(DATA / f"{kind}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def older(kind: str, directory: Path) -> Iterator[Older]:
    yield from opened(kind, directory)


def check_records(older: Older) -> None:
    assert sum(map(len, older.expected["records"].values())) > 200
    for topic, records in older.expected["records"].items():
        assert older.read(topic, "read_committed") == sorted(records), topic
    assert older.read("empty") == []
    last: dict[str, str | None] = {}
    for _, _, key, value in older.read("compacted"):
        last[key] = value
    assert {k: v for k, v in last.items() if v is not None} == older.expected["compacted"]


def test_topics_keep_ids_partitions_and_leader_epochs(older: Older) -> None:
    metadata = older.client.call(MetadataRequest(None), 12)
    assert metadata.cluster_id == older.expected["cluster_id"]
    found = {
        topic.name: (
            uuid_to_string(topic.topic_id),
            {p.partition_index: p.leader_epoch for p in topic.partitions},
        )
        for topic in metadata.topics
    }
    assert set(found) == set(older.expected["topics"]) and "gone" not in found
    for name, (topic_id, epochs) in older.expected["topics"].items():
        assert found[name][0] == topic_id
        assert len(found[name][1]) == len(epochs)
        assert all(found[name][1][int(p)] >= epoch for p, epoch in epochs.items())


def test_every_record_is_read(older: Older) -> None:
    check_records(older)


def test_a_directory_that_was_opened_and_closed_is_opened_again(kind: str, directory: Path) -> None:
    for _ in range(2):
        for older in opened(kind, directory):
            check_records(older)
            assert committed_offsets(older) == older.expected["offsets"]


def test_aborted_records_have_their_range_and_open_ones_are_not_returned(older: Older) -> None:
    written = [
        *older.expected["records"]["in.out"],
        *older.expected["aborted"],
        *older.expected["undecided"],
    ]
    assert older.read("in.out") == sorted(written)
    for partition in (0, 1):
        request = fetch("in.out", partitions=(partition,), isolation_level=READ_COMMITTED)
        (found,) = older.client.call(request, 12).responses[0].partitions
        first = min(o for p, o, _, _ in older.expected["aborted"] if p == partition)
        (aborted,) = found.aborted_transactions
        assert aborted.first_offset == first
        undecided = [o for p, o, _, _ in older.expected["undecided"] if p == partition]
        assert found.last_stable_offset == min(undecided)
        assert found.high_watermark == max(undecided) + 1


@pytest.mark.parametrize("committed", [True, False])
def test_the_open_transaction_is_continued_and_ended(older: Older, committed: bool) -> None:
    states = older.client.call(
        describe_transactions_request.DescribeTransactionsRequest(["mover", "open"]), 0
    ).transaction_states
    found = {
        state.transactional_id: [
            state.transaction_state,
            state.producer_id,
            state.producer_epoch,
            sorted(f"{t.topic}-{p}" for t in state.topics for p in t.partitions),
        ]
        for state in states
    }
    assert found == older.expected["transactions"]
    _, producer_id, epoch, _ = found["open"]
    module = add_partitions_to_txn_request
    partitions = [module.AddPartitionsToTxnTopic("in.out", [0, 1])]
    request = module.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="open",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=partitions,
    )
    response = older.client.call(request, 3)
    results = response.results_by_topic_v3_and_below[0].results_by_partition
    assert [result.partition_error_code for result in results] == [0, 0]
    response = older.client.call(EndTxnRequest("open", producer_id, epoch, committed), 3)
    assert response.error_code == 0
    after = older.expected["records"]["in.out"]
    after = after + older.expected["undecided"] if committed else after
    wait_until(lambda: not open_transactions(older))
    assert older.read("in.out", "read_committed") == sorted(after)


def open_transactions(older: Older) -> bool:
    module = describe_producers_request
    request = module.DescribeProducersRequest([module.TopicRequest("in.out", [0, 1])])
    (topic,) = older.client.call(request, 0).topics
    return any(
        producer.current_txn_start_offset >= 0
        for partition in topic.partitions
        for producer in partition.active_producers
    )


def wait_until(reached: Callable[[], bool]) -> None:
    """Wait until `reached()` is true. The time limit of the test ends an endless wait."""
    while not reached():
        pass


def test_a_new_producer_of_a_transactional_id_aborts_its_open_transaction(older: Older) -> None:
    producer = Producer({"bootstrap.servers": older.address, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    # The broker's clock does not advance, and a record of today would be too far ahead of it.
    time_ms = older.expected["time_ms"]
    producer.produce("in.out", b"afterwards", b"k", 0, timestamp=time_ms)
    producer.commit_transaction(60)
    wait_until(lambda: not open_transactions(older))
    found = [value for _, _, _, value in older.read("in.out", "read_committed")]
    assert found.count("afterwards") == 1
    assert not any(value.startswith("open") for value in found)


def test_an_idempotent_producer_continues_and_its_duplicates_are_detected(older: Older) -> None:
    producer = older.expected["idempotent"]
    batches = producer["batches"]
    for sent in batches[-WINDOW:]:
        again = older.produce("idempotent", base64.b64decode(sent["batch"]))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, sent["base_offset"])
    too_old = older.produce("idempotent", base64.b64decode(batches[0]["batch"]))
    assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def send(sequence: int) -> int:
        batch = build_batch(
            [Record(b"k", b"next")],
            timestamp_ms=older.expected["time_ms"],
            producer_id=producer["producer_id"],
            producer_epoch=producer["producer_epoch"],
            base_sequence=sequence,
        )
        return int(older.produce("idempotent", batch).error_code)

    assert send(producer["next_sequence"] + 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(producer["next_sequence"]) == ErrorCode.NONE
    expected = older.expected["records"]["idempotent"]
    end = len(expected)
    assert older.read("idempotent") == [*sorted(expected), [0, end, "k", "next"]]


def test_no_producer_id_is_allocated_twice(older: Older) -> None:
    known = {producer_id for _, producer_id, _, _ in older.expected["transactions"].values()}
    known.add(older.expected["idempotent"]["producer_id"])
    response = older.client.call(InitProducerIdRequest(None, 0), 4)
    assert response.producer_id > max(known)


def committed_offsets(older: Older) -> dict[str, Any]:
    found: dict[str, Any] = defaultdict(dict)
    for group in older.expected["offsets"]:
        request = ConsumerGroupTopicPartitions(group)
        (future,) = older.admin.list_consumer_group_offsets([request]).values()
        for partition in future.result(60).topic_partitions:
            assert partition.error is None
            found[group][f"{partition.topic}-{partition.partition}"] = [
                partition.offset,
                partition.metadata or "",
            ]
    return dict(found)


def test_groups_keep_their_offsets(older: Older) -> None:
    assert committed_offsets(older) == older.expected["offsets"]


def test_groups_keep_their_type_and_their_static_member(older: Older) -> None:
    listed = older.admin.list_consumer_groups().result(60)
    types = {group.group_id: group.type.name.lower() for group in listed.valid}
    kinds = older.expected["groups"]
    assert set(types) == set(older.expected["offsets"])
    assert {group: types[group] for group in kinds} == kinds
    for group, future in older.admin.describe_consumer_groups(list(kinds)).items():
        described = future.result(60)
        (member,) = described.members
        assert member.group_instance_id == f"{group}-1"
        assigned = {(p.topic, p.partition) for p in member.assignment.topic_partitions}
        assert assigned == {("plain", partition) for partition in range(3)}


def test_configs_are_kept(older: Older) -> None:
    module = describe_configs_request
    resources = [
        module.DescribeConfigsResource(kind, name) for kind, name, _ in older.expected["configs"]
    ]
    response = older.client.call(module.DescribeConfigsRequest(resources), 4)
    for (_, _, expected), result in zip(older.expected["configs"], response.results, strict=True):
        found = {config.name: config.value for config in result.configs}
        assert expected == {name: found[name] for name in expected}
    for topic, name, value in (
        ("plain", "max.message.bytes", "2000000"),
        ("wide", "retention.ms", "-1"),
        ("compacted", "cleanup.policy", "compact"),
        ("lz4", "compression.type", "lz4"),
        ("appended", "message.timestamp.type", "LogAppendTime"),
    ):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configs = older.admin.describe_configs([resource])[resource].result(60)
        assert configs[name].value == value


def test_quotas_are_kept(older: Older) -> None:
    request = describe_client_quotas_request.DescribeClientQuotasRequest([], False)
    found = [
        [{e.entity_type: e.entity_name for e in entry.entity}, value.key, value.value]
        for entry in older.client.call(request, 1).entries
        for value in entry.values
    ]
    assert sorted(found, key=str) == sorted(older.expected["quotas"], key=str)


def test_the_deleted_topic_stays_deleted_and_its_name_is_free(older: Older) -> None:
    name = "gone"
    assert name not in older.admin.list_topics(timeout=60).topics
    producer = Producer({"bootstrap.servers": older.address})
    producer.produce(name, b"new", b"k", 0, timestamp=older.expected["time_ms"])
    assert producer.flush(60) == 0
    older.expected["topics"][name] = [None, {"0": 0}]
    assert older.read(name) == [[0, 0, "k", "new"]]
