"""The broker on the log directory of a stopped Apache Kafka: clients see the same data as before.

`python -m conformance.from_kafka --bootstrap-server - --broker odradek`: every case starts its own
Apache Kafka, fills it, ends it, and starts the broker under test on the same log directory. With
`--broker kafka` the broker under test is Kafka itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from conformance.differential.wire import Wire
from conformance.harness import Case, Context, Skip, main
from odradek.protocol.messages import (
    alter_client_quotas_request,
    describe_client_quotas_request,
    describe_configs_request,
    fetch_request,
    incremental_alter_configs_request,
    offset_fetch_request,
)
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.records.batch import CONTROL_MASK, parse_header
from odradek.records.record import iter_batches, iter_records
from testkit.peer import PeerUnavailable
from testkit.peer.server import BrokerProcess, start_kafka, start_odradek

NODE_ID, GROUP = 7, "readers"
PROPERTIES = {
    "node.id": str(NODE_ID),
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # The metadata then has snapshots, and log records after the newest snapshot.
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}
TOPICS = (
    NewTopic("plain", 3, 1),
    NewTopic("gone", 2, 1),
    NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
    NewTopic("wide", 1, 1, config={"retention.ms": "-1", "max.message.bytes": "2000000"}),
    NewTopic("empty", 2, 1),
    NewTopic("in.out", 2, 1),
)
RESOURCES = (
    *((2, topic.topic) for topic in TOPICS if topic.topic != "gone"),
    (2, "__consumer_offsets"),
    (4, ""),
    (4, str(NODE_ID)),
    (16, "sub"),
    (32, GROUP),
)
# The config sources of values set on the resource itself: topic, broker, client metrics, group.
OWN_SOURCES = {2: (1,), 4: (2, 3), 16: (7,), 32: (8,)}
WAIT_S = 30.0
View = dict[str, Any]


# --- the data that Kafka is filled with ---


def fill(bootstrap: str) -> None:
    """Write topics, records, groups, transactions (one stays open), configs and quotas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _done(admin.create_topics(list(TOPICS)))
    _done(admin.create_partitions([NewPartitions("wide", 3)]))
    _done(admin.delete_topics(["gone"]))
    with _wire(bootstrap) as wire:
        _until(lambda: _topics(wire).get("wide", (b"", 0))[1] == 3 and "gone" not in _topics(wire))
    for name, key, value in (
        ("plain", "retention.ms", "123456789"),
        ("wide", "max.message.bytes", None),
    ):
        op = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=op)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        _done(admin.incremental_alter_configs([resource]))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for i in range(60):
        producer.produce("plain", f"v{i}", f"k{i}", i % 3)
    for i in range(20):
        producer.produce("compacted", f"x{i}", f"c{i % 5}", 0)
    for i in range(9):
        producer.produce("wide", f"w{i}", None, i % 3)
    assert producer.flush(WAIT_S) == 0
    _commit_and_move(bootstrap)
    _alter_the_rest(bootstrap)
    with _wire(bootstrap) as wire:
        for partition in range(2):  # The markers are written after the commit's response.
            moved = [f"{name}{partition + i}".encode() for name in ("yes", "more") for i in (0, 2)]
            _until(lambda p=partition, m=moved: _values(wire, "in.out", p) == m)
    hanging = Producer({"bootstrap.servers": bootstrap, "transactional.id": "hanging"})
    hanging.init_transactions(WAIT_S)
    hanging.begin_transaction()
    hanging.produce("in.out", "open", None, 1)
    assert hanging.flush(WAIT_S) == 0


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, "this never came"
        time.sleep(0.05)


def _done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(WAIT_S)


def _commit_and_move(bootstrap: str) -> None:
    """Commit offsets without and with a transaction, then abort and commit transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["plain"])
    try:
        deadline, count = time.monotonic() + WAIT_S, 0
        while count < 60:
            assert time.monotonic() < deadline, f"{count} records were read"
            count += len(consumer.consume(60, 1.0))
        offsets = [TopicPartition("plain", p, o) for p, o in ((0, 10), (1, 20), (2, 5))]
        consumer.commit(offsets=offsets, asynchronous=False)
        mover = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
        mover.init_transactions(WAIT_S)
        for name, commits in (("yes", True), ("no", False), ("more", True)):
            mover.begin_transaction()
            for i in range(4):
                mover.produce("in.out", f"{name}{i}", None, i % 2)
            if name == "yes":
                moved = [TopicPartition("plain", 2, 17)]
                mover.send_offsets_to_transaction(moved, consumer.consumer_group_metadata())
            assert mover.flush(WAIT_S) == 0
            mover.commit_transaction(WAIT_S) if commits else mover.abort_transaction(WAIT_S)
    finally:
        consumer.close()


def _alter_the_rest(bootstrap: str) -> None:
    """Alter the configs and quotas for which the client library has no calls."""
    configs, quotas = incremental_alter_configs_request, alter_client_quotas_request
    altered = (
        (4, "", "log.retention.ms", "987654321"),
        (4, str(NODE_ID), "log.cleaner.threads", "2"),
        (32, GROUP, "consumer.session.timeout.ms", "50000"),
        (16, "sub", "metrics", "org.apache"),
    )
    limited = (
        ((("client-id", "slow"),), "producer_byte_rate", 1048576.0),
        ((("user", None),), "consumer_byte_rate", 2097152.0),
        ((("user", "al ice"), ("client-id", None)), "consumer_byte_rate", 5000.0),
    )
    with _wire(bootstrap) as wire:
        for kind, name, key, value in altered:
            resource = configs.AlterConfigsResource(
                kind, name, [configs.AlterableConfig(key, 0, value)]
            )
            response = _call(wire, configs.IncrementalAlterConfigsRequest([resource]), 1)
            assert response.responses[0].error_code == 0, response
        for parts, key, rate in limited:
            entry = quotas.EntryData(
                [quotas.EntityData(kind, name) for kind, name in parts],
                [quotas.OpData(key, rate, remove=False)],
            )
            response = _call(wire, quotas.AlterClientQuotasRequest([entry]), 1)
            assert response.entries[0].error_code == 0, response


# --- the data that a client sees ---


def seen(bootstrap: str) -> View:
    """Return topics, ids, committed records, offsets, configs and quotas as comparable values."""
    with _wire(bootstrap) as wire:
        metadata = _call(wire, MetadataRequest(None), 12)
        topics = _topics(wire)
        return {
            "cluster": (metadata.cluster_id, [broker.node_id for broker in metadata.brokers]),
            "topics": topics,
            "records": {
                (name, partition): _values(wire, name, partition)
                for name, (_, count) in topics.items()
                if not name.startswith("__")
                for partition in range(count)
            },
            "offsets": _offsets(wire),
            "configs": _configs(wire),
            "quotas": _quotas(wire),
        }


@contextlib.contextmanager
def _wire(bootstrap: str) -> Iterator[Wire]:
    wire = Wire(bootstrap)
    try:
        yield wire
    finally:
        wire.close()


def _call(wire: Wire, request: Any, version: int) -> Any:
    wire.send(request, version)
    return wire.receive()


def _topics(wire: Wire) -> dict[str, tuple[bytes, int]]:
    """Return topic ids and partition counts by topic name."""
    topics = _call(wire, MetadataRequest(None), 12).topics
    return {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics}


def _values(wire: Wire, topic: str, partition: int) -> list[bytes | None]:
    part = fetch_request.FetchPartition(partition, -1, 0, -1, partition_max_bytes=1 << 20)
    request = fetch_request.FetchRequest(
        topics=[fetch_request.FetchTopic(topic, partitions=[part])],
        max_wait_ms=0,
        isolation_level=1,
    )
    (found,) = _call(wire, request, 12).responses[0].partitions
    assert found.error_code == 0, found.error_code
    aborted = {each.producer_id: each.first_offset for each in found.aborted_transactions or ()}
    values: list[bytes | None] = []
    for batch in iter_batches(bytes(found.records or b"")):
        header = parse_header(batch)
        if header.attributes & CONTROL_MASK:
            if header.base_offset > aborted.get(header.producer_id, header.base_offset):
                del aborted[header.producer_id]
        elif header.base_offset < aborted.get(header.producer_id, 1 << 62):
            values += [record.value for record in iter_records(batch)]
    return values


def _offsets(wire: Wire) -> list[int]:
    """Return the group's offsets after its coordinator has loaded."""
    expected = offset_fetch_request.OffsetFetchRequestTopics("plain", partition_indexes=[0, 1, 2])
    group = offset_fetch_request.OffsetFetchRequestGroup(GROUP, topics=[expected])
    deadline = time.monotonic() + WAIT_S
    while True:
        request = offset_fetch_request.OffsetFetchRequest(groups=[group], require_stable=True)
        (response,) = _call(wire, request, 8).groups
        parts = [part for topic in response.topics for part in topic.partitions]
        if parts and response.error_code == 0 and not any(part.error_code for part in parts):
            return [part.committed_offset for part in parts]
        assert time.monotonic() < deadline, response.error_code
        time.sleep(0.1)


def _configs(wire: Wire) -> dict[tuple[int, str], dict[str, str | None]]:
    """Return the configs that were set at run time."""
    resources = [describe_configs_request.DescribeConfigsResource(*each) for each in RESOURCES]
    response = _call(wire, describe_configs_request.DescribeConfigsRequest(resources), 4)
    return {
        (result.resource_type, result.resource_name): {
            config.name: config.value
            for config in result.configs
            if config.config_source in OWN_SOURCES[result.resource_type]
        }
        for result in response.results
    }


def _quotas(wire: Wire) -> dict[Any, dict[str, float]]:
    request = describe_client_quotas_request.DescribeClientQuotasRequest([], False)
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in _call(wire, request, 1).entries
    }


# --- the cases ---


def _start_on(context: Context, kafka: BrokerProcess, work: Path) -> BrokerProcess:
    """Start the broker under test on the log directory of the stopped Kafka."""
    if context.broker == "kafka":
        return kafka.restart()
    if context.broker != "odradek":
        raise Skip("needs --broker: it starts one on Kafka's log directory")
    kafka.log_dir.rename(work / "odradek-logs")
    return start_odradek(work)


def _served(context: Context, *, killed: bool) -> None:
    work = context.work / ("killed" if killed else "stopped")
    try:
        kafka = start_kafka(work, PROPERTIES)
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None
    with kafka:
        fill(kafka.bootstrap)
        before = seen(kafka.bootstrap)
        if killed:
            kafka.kill()
    with _start_on(context, kafka, work) as broker:
        after = seen(broker.bootstrap)
        for what, expected in before.items():
            assert after[what] == expected, f"{what}: {after[what]}, and not {expected}"
        _continue(broker.bootstrap)
    assert before["offsets"] == [10, 20, 17]


def _continue(bootstrap: str) -> None:
    """Continue a transactional id from Kafka, and append new records after the old records."""
    mover = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
    mover.init_transactions(WAIT_S)
    mover.begin_transaction()
    mover.produce("wide", "last", None, 0)
    mover.commit_transaction(WAIT_S)
    with _wire(bootstrap) as wire:
        _until(lambda: _values(wire, "wide", 0) == [b"w0", b"w3", b"w6", b"last"])


CASES = (
    Case("a directory that Kafka left at SIGTERM", lambda c: _served(c, killed=False)),
    Case("a directory that Kafka left at SIGKILL", lambda c: _served(c, killed=True)),
)

if __name__ == "__main__":
    main("from_kafka", CASES)
