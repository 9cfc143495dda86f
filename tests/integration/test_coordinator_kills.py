"""Groups of foreign clients while the broker of their coordinator is killed.

Commits survive, and the members go on at the new coordinator: it has loaded them with the group, so
there is no rebalance.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.coordinator.runtime import partition_for
from odradek.testing import Cluster

LIMIT_S = 60.0
PARTITIONS = 4
OFFSETS_PARTITIONS = 50
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}
CONFIG = {
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, CONFIG) as running:
        running.create_topic("t", PARTITIONS)
        yield running


class Member(Protocol):
    """A member of the group. `changes` counts the changes of its assignment."""

    changes: int

    def assigned(self) -> int:
        """Return the number of its partitions."""

    def poll(self) -> list[str]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class LibrdkafkaMember:
    def __init__(self, servers: str, group: str, **settings: object) -> None:
        self.changes = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                **QUIET,
                **settings,
            }
        )
        self._consumer.subscribe(["t"], on_assign=self._changed, on_revoke=self._changed)

    def _changed(self, *_: object) -> None:
        self.changes += 1

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def poll(self) -> list[str]:
        message = self._consumer.poll(0.1)
        if message is None or message.error() is not None:
            return []
        return [message.value().decode()]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    def __init__(self, servers: str, group: str) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer

        self.changes = 0
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                member.changes += 1

            def on_partitions_assigned(self, assigned: Any) -> None:
                member.changes += 1

        self._consumer = KafkaConsumer(
            bootstrap_servers=servers.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
        )
        # A leader of the group that does not know the topic yet assigns none of its partitions.
        assert self._consumer.partitions_for_topic("t")
        self._consumer.subscribe(["t"], listener=Listener())

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def poll(self) -> list[str]:
        found = self._consumer.poll(timeout_ms=100)
        return [each.value.decode() for records in found.values() for each in records]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def librdkafka_classic(servers: str) -> Member:
    return LibrdkafkaMember(servers, "g")


def librdkafka_consumer(servers: str) -> Member:
    return LibrdkafkaMember(servers, "g", **{"group.protocol": "consumer"})


def kafka_python(servers: str) -> Member:
    return KafkaPythonMember(servers, "g")


def produce(cluster: Cluster, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET})
    errors: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            "t",
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(LIMIT_S) == 0
    assert errors == []


def committed(cluster: Cluster) -> list[int]:
    """Return the committed offsets of the group, as a further client reads them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", **QUIET})
    try:
        partitions = [TopicPartition("t", each) for each in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(partitions, timeout=LIMIT_S)]
    finally:
        consumer.close()


def read(members: list[Member], values: list[str]) -> None:
    """Poll the members in turn until they have returned exactly these values."""
    missing = sorted(values)
    read = []
    while len(read) < len(missing):
        for member in members:
            read += member.poll()
    assert sorted(read) == missing


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("new_member", "members_count"),
    [
        (librdkafka_classic, 2),
        (librdkafka_consumer, 2),
        # It drops a response to JoinGroup that arrives between two polls, and joins again. Two
        # members that are polled in turn may do so for ever.
        (kafka_python, 1),
    ],
)
def test_commits_survive_and_members_go_on_when_the_coordinator_is_killed(
    cluster: Cluster,
    new_member: Callable[[str], Member],
    members_count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Log records would keep its sockets to the broker that is killed, which it does not close.
    caplog.set_level(logging.CRITICAL, "kafka")
    kill_the_coordinator(cluster, new_member, members_count)
    gc.collect()


def kill_the_coordinator(
    cluster: Cluster, new_member: Callable[[str], Member], members_count: int
) -> None:
    with ExitStack() as stack:
        members = [new_member(cluster.bootstrap_servers) for _ in range(members_count)]
        for member in members:
            stack.callback(member.close)
        while not all(each.assigned() == PARTITIONS // members_count for each in members):
            for member in members:
                assert member.poll() == []
        first = [f"first {number}" for number in range(40)]
        produce(cluster, first)
        read(members, first)
        for member in members:
            member.commit()
        changes = [each.changes for each in members]
        partition = partition_for("g", OFFSETS_PARTITIONS)
        cluster.wait_until_in_sync("__consumer_offsets")
        former = cluster.leader_of("__consumer_offsets", partition)
        assert former is not None
        cluster.kill(former)
        second = [f"second {number}" for number in range(40)]
        produce(cluster, second)
        assert committed(cluster) == [10] * PARTITIONS, "a commit was lost"
        assert cluster.leader_of("__consumer_offsets", partition) not in (None, former)
        read(members, second)
        for member in members:
            member.commit()
        assert committed(cluster) == [20] * PARTITIONS
        assert [each.changes for each in members] == changes, "the group rebalanced"
