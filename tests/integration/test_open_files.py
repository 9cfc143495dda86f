"""A broker with 2,000 partitions under ``ulimit -n 1024``, and clients that use all of them."""

from __future__ import annotations

import resource
import socket
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from testkit.wire import WireClient
from tests.hostile.process import TIMEOUT_S, BrokerProcess

OPEN_FILES = 1024
TOPICS, PARTITIONS = 4, 500
ROUNDS = 2
CONNECTIONS = 100
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "num.partitions": 1,
}
ValuesByPartition = dict[tuple[str, int], list[bytes]]


def expected() -> ValuesByPartition:
    return {
        (f"many-{topic}", partition): [b"%d %d" % (partition, n) for n in range(ROUNDS)]
        for topic in range(TOPICS)
        for partition in range(PARTITIONS)
    }


def create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = [NewTopic(f"many-{topic}", PARTITIONS, 1) for topic in range(TOPICS)]
    for future in admin.create_topics(new, request_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)


def write(address: str) -> None:
    """Write one record to each partition in each round, so that each round opens each log again."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "acks": "all"})
    errors: list[Any] = []
    for number in range(ROUNDS):
        for topic, partition in expected():
            producer.produce(
                topic,
                b"%d %d" % (partition, number),
                partition=partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(TIMEOUT_S) == 0
    assert not errors, errors[:3]


def read(address: str, group: str) -> ValuesByPartition:
    """Return all records, read by two members of a group that share the partitions."""
    members = [
        Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "roundrobin",
            }
        )
        for _ in range(2)
    ]
    found: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    count = sum(map(len, expected().values()))
    deadline = time.monotonic() + TIMEOUT_S
    try:
        for member in members:
            member.subscribe([f"many-{topic}" for topic in range(TOPICS)])
        # When the second member joins, a record may be delivered again at the same offset.
        while sum(map(len, found.values())) < count:
            assert time.monotonic() < deadline, f"{sum(map(len, found.values()))} records"
            for member in members:
                for message in member.consume(500, 0.05):
                    assert message.error() is None, message.error()
                    partition = found[message.topic(), message.partition()]
                    partition[message.offset()] = message.value()
    finally:
        for member in members:
            member.close()
    return {
        partition: [records[at] for at in sorted(records)] for partition, records in found.items()
    }


def assert_room_for_clients(process: BrokerProcess) -> None:
    """Check that descriptors for many connections are left while all logs are in use."""
    host, _, port = process.bootstrap_servers.rpartition(":")
    peers = [socket.create_connection((host, int(port)), TIMEOUT_S) for _ in range(CONNECTIONS)]
    try:
        assert read(process.bootstrap_servers, "beside-others") == expected()
        assert process.descriptors() < OPEN_FILES
    finally:
        for peer in peers:
            peer.close()


def fetch_all_at_once(process: BrokerProcess) -> None:
    """Fetch all partitions with requests that name all remaining ones.

    A response does not hold as many files as there are partitions. A partition that got no records
    from one response gets them from a later one.
    """
    offsets = dict.fromkeys(expected(), 0)
    with WireClient(process.bootstrap_servers) as client:
        for _ in range(ROUNDS * TOPICS * PARTITIONS):
            topics: dict[str, list[FetchPartition]] = defaultdict(list)
            for (topic, partition), offset in offsets.items():
                part = FetchPartition(partition, -1, offset, partition_max_bytes=1 << 20)
                topics[topic].append(part)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 30,
                topics=[FetchTopic(topic, partitions=parts) for topic, parts in topics.items()],
            )
            for topic in client.call(request, 12).responses:
                for data in topic.partitions:
                    assert data.error_code == 0
                    if data.records:
                        del offsets[topic.topic, data.partition_index]
            assert process.descriptors() < OPEN_FILES
            if not offsets:
                return
    raise AssertionError(f"{len(offsets)} partitions were never sent")


def assert_no_file_was_missed(process: BrokerProcess) -> None:
    missed = [line for line in process.lines if "Too many open files" in line]
    assert not missed, "".join(missed[:3])


def test_two_thousand_partitions_are_written_and_read_with_a_thousand_descriptors(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path, CONFIG, open_files=OPEN_FILES) as process:
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] == OPEN_FILES
        create_topics(process.bootstrap_servers)
        write(process.bootstrap_servers)
        assert read(process.bootstrap_servers, "readers") == expected()
        assert_room_for_clients(process)
        fetch_all_at_once(process)
        assert_no_file_was_missed(process)
        process.kill()
        process.close()
    # Recovery opens every log, and a clean stop closes every log.
    for _ in range(2):
        with BrokerProcess(tmp_path, CONFIG, open_files=OPEN_FILES) as process:
            assert read(process.bootstrap_servers, f"after-{process.pid}") == expected()
        assert_no_file_was_missed(process)
