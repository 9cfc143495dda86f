"""Loads on a cluster of three brokers, as rows of paired runs.

All topics have three replicas, and acks=all needs two of them. Producers are idempotent. The CPU
time and the memory are those of all processes of the cluster, so ZooKeeper counts for Odradek.

`benchmarks.evidence.clusters` runs the rows and renders their table.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.coordination import TRANSACTION_METRICS, TRANSACTIONS, client, rate_of
from benchmarks.evidence.paired import LATENCIES, Row
from benchmarks.further_rows import PARTITIONS, PRODUCE_METRICS, PRODUCERS, producers, rate_and_cpu
from benchmarks.loads import IDEMPOTENT, MILLION, Driven, drop_topic, latency
from benchmarks.processes import cpu_nanoseconds, memory_bytes
from benchmarks.tables import MIB
from odradek.errors import ErrorCode
from odradek.launcher.plan import REPLICAS_MAX
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from testkit.peer.cluster import CLUSTER_STARTERS, ClusterProcesses
from testkit.requests import produce
from testkit.wire import ConnectionClosed, WireClient

BROKERS = 3
MEASURED = {name: partial(start, measured=True) for name, start in CLUSTER_STARTERS.items()}
RECORDS = 3 * MILLION
LATENCY_RATE = 2000
IDLE_S = 15.0
SETTLED_S = 2.0
DEADLINE_S = 120.0
AGAIN_S = 0.01
TRANSACTION_PARTITIONS = 2
TRANSACTIONAL_ID = 1
"""The key type of FindCoordinator for transactional ids."""
IDS_A_REQUEST = 50


def admin(cluster: Driven) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 3})


@contextlib.contextmanager
def topic_of(cluster: Driven, replicas: Sequence[Sequence[int]]) -> Iterator[str]:
    """A topic with these replicas of each partition, the leader first, during the context."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    config = {"file.delete.delay.ms": "1000"}
    assigned = [list(each) for each in replicas]
    new = NewTopic(name, len(assigned), replica_assignment=assigned, config=config)
    maker = admin(cluster)
    maker.create_topics([new])[name].result(30)
    try:
        await_leaders(cluster, name, assigned)
        yield name
    finally:
        drop_topic(cluster, name)


def spread(partitions: int, brokers: int = BROKERS) -> list[list[int]]:
    """Replicas of partitions, at most three, such that each broker leads as many as the others."""
    places = range(min(REPLICAS_MAX, brokers))
    return [[1 + (number + at) % brokers for at in places] for number in range(partitions)]


def await_leaders(cluster: Driven, topic: str, replicas: Sequence[Sequence[int]]) -> None:
    """Wait until each partition has a leader and all of its replicas in sync."""
    deadline = time.monotonic() + DEADLINE_S
    maker = admin(cluster)
    while True:
        found = maker.list_topics(topic, timeout=30).topics[topic].partitions
        ready = [
            number
            for number, each in found.items()
            if each.leader > 0 and len(each.isrs) == len(replicas[number])
        ]
        if len(ready) == len(replicas):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(ready)} of {len(replicas)} partitions of {topic} are in sync")
        time.sleep(0.05)


def leaders(cluster: Driven, topic: str) -> Counter[int]:
    """The number of partitions of a topic that each broker leads."""
    partitions = admin(cluster).list_topics(topic, timeout=30).topics[topic].partitions
    return Counter(each.leader for each in partitions.values())


def produced(
    cluster: Driven, _: str, scale: float, partitions: int, brokers: int = BROKERS
) -> dict[str, Any]:
    """Kafka's producers, batches of 50 records, and the memory of the cluster after the load."""
    records = max(int(RECORDS * scale), 1000 * PRODUCERS)
    with topic_of(cluster, spread(partitions, brokers)) as topic:
        os.sync()
        found = producers(cluster, topic, PRODUCERS, records, acknowledged=IDEMPOTENT)
        if partitions >= brokers and set(leaders(cluster, topic).values()) != {
            partitions // brokers
        }:
            raise RuntimeError("the leaders have moved during the load")
        memory = sum(map(memory_bytes, cluster.pids))
    return {**rate_and_cpu(found), "memory_mib": memory / MIB}


def steady_latency(cluster: Driven, topic: str, scale: float) -> dict[str, Any]:
    """librdkafka without linger at a constant rate."""
    found = latency(cluster, topic, scale, rate=LATENCY_RATE, idempotent=1)
    return {"cpu_s": found.cpu_per_unit_s, LATENCIES: found.latencies_us}


def idle(cluster: Driven, _: str, scale: float, partitions: int = PARTITIONS) -> dict[str, Any]:
    """The CPU time of a cluster without clients."""
    with topic_of(cluster, spread(partitions)):
        return idle_cpu(cluster, scale)


def idle_cpu(cluster: Driven, scale: float) -> dict[str, Any]:
    time.sleep(SETTLED_S)
    seconds = max(2.0, IDLE_S * scale)
    before, began = sum(map(cpu_nanoseconds, cluster.pids)), time.monotonic()
    time.sleep(seconds)
    used = sum(map(cpu_nanoseconds, cluster.pids)) - before
    return {"cpu_ms": used / 1e6 / (time.monotonic() - began)}


# --- transactions ---


def ids_of_coordinator(cluster: Driven, broker: int, count: int) -> list[str]:
    """New transactional ids whose coordinator is this broker. Creates the topic of transactions."""
    first = cluster.bootstrap.split(",")[0]
    deadline = time.monotonic() + DEADLINE_S
    found: list[str] = []
    with WireClient(first) as client:
        while len(found) < count:
            names = [f"bench-{uuid.uuid4().hex[:12]}" for _ in range(IDS_A_REQUEST)]
            request = FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=names)
            for each in client.call(request, 4).coordinators:
                if each.error_code == ErrorCode.NONE and each.node_id == broker:
                    found.append(each.key)
            if time.monotonic() > deadline:
                raise RuntimeError(f"broker {broker} coordinates {len(found)} of {count} ids")
            if not found:
                time.sleep(0.1)
    return found[:count]


def transactions(cluster: Driven, _: str, scale: float, producers: int) -> dict[str, Any]:
    """Transactions over two partitions. Their coordinators are on the third broker."""
    count = max(int(TRANSACTIONS * scale), 2) * producers
    coordinator = 1
    data = [[2, 3, 1], [3, 2, 1]]
    with topic_of(cluster, data) as topic:
        ids = ids_of_coordinator(cluster, coordinator, producers)
        seen = client(
            cluster, "transactions", topic,
            transactions=count, producers=producers, ids=",".join(ids),
        )  # fmt: skip
    return rate_of(seen, "transactions", 1)


# --- start ---


def first_response_s(start: Callable[[], ClusterProcesses]) -> float:
    """Start a cluster without data. Return the time from its start to the first acks=all response.

    A client creates a topic with three replicas as soon as a broker accepts that, and sends one
    record.
    """
    cluster = start()
    try:
        return await_acknowledged(cluster, f"first-{uuid.uuid4().hex[:8]}") - cluster.began_s
    finally:
        cluster.stop()


def await_acknowledged(cluster: ClusterProcesses, topic: str) -> float:
    """Create a topic and send one record. Return the monotonic time of its acks=all response."""
    deadline = time.monotonic() + DEADLINE_S
    addresses = {number: broker.bootstrap for number, broker in cluster.brokers.items()}
    while time.monotonic() < deadline:
        for broker in cluster.brokers.values():
            if broker.process.poll() is not None:
                raise RuntimeError(f"{cluster.name} ended: {broker.log_text()[-2000:]}")
        with contextlib.suppress(OSError, ConnectionClosed):
            if _send_first(addresses, topic):
                return time.monotonic()
        time.sleep(AGAIN_S)
    raise RuntimeError(f"{cluster.name} has not acknowledged a record in {DEADLINE_S:.0f} s")


def _send_first(addresses: dict[int, str], topic: str) -> bool:
    """Make one attempt. Return whether the record is acknowledged."""
    with WireClient(addresses[1]) as client:
        new = CreatableTopic(topic, 1, BROKERS, [], [])
        code = client.call(CreateTopicsRequest([new], 10_000), 5).topics[0].error_code
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return False
        found = client.call(MetadataRequest([MetadataRequestTopic(name=topic)], False), 9).topics[0]
    leader = found.partitions[0].leader_id if found.partitions else -1
    if leader not in addresses:
        return False
    with WireClient(addresses[leader]) as client:
        response = client.call(produce(topic, acks=-1), 9)
    return bool(response.responses[0].partition_responses[0].error_code == ErrorCode.NONE)


# --- the rows ---

LOAD_METRICS = {**PRODUCE_METRICS, "memory_mib": "MiB of all after the load"}
LATENCY_METRICS = {
    "p50": "p50, µs",
    "p99": "p99, µs",
    "p999": "p999, µs",
    "cpu_s": "CPU-s per million records",
}
IDLE_METRICS = {"cpu_ms": "CPU-ms a second"}
ROWS = (
    Row("produce_12", f"12 partitions, {PRODUCERS} producers, 200-byte records, batches of 50",
        LOAD_METRICS, partial(produced, partitions=PARTITIONS)),
    Row("produce_1", f"one partition, {PRODUCERS} producers, 200-byte records, batches of 50",
        LOAD_METRICS, partial(produced, partitions=1)),
    Row("latency", f"librdkafka: {LATENCY_RATE:,} records/s, no linger",
        LATENCY_METRICS, steady_latency),
    Row("idle_12", "no clients, 12 partitions", IDLE_METRICS, idle),
    Row("transactions_1", "transactions, one producer, coordinator on another broker",
        TRANSACTION_METRICS, partial(transactions, producers=1)),
    Row("transactions_10", "transactions, ten producers at once, coordinators on another broker",
        TRANSACTION_METRICS, partial(transactions, producers=10)),
)  # fmt: skip
