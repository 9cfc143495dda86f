"""The consumer protocol (KIP-848) with librdkafka, alone and mixed with the classic protocol."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing import Broker
from testkit.peer.server import free_ports
from tests.integration.test_group_clients import (
    DEADLINE_S,
    PARTITIONS,
    RECORDS,
    Member,
    produce,
    until,
)

OFTEN = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.session.timeout.ms": 60_000,
}
SHORT = {
    **OFTEN,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 2_000,
}


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(getattr(request, "param", OFTEN)) as running:
        running.create_topic("t", PARTITIONS)
        produce(running.bootstrap_servers)
        yield running


class Reader:
    """A consumer of the new protocol that records the values that it has read."""

    def __init__(self, broker: Broker, *topics: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **config,
            }
        )
        self.values: list[int] = []
        self.consumer.subscribe(list(topics or ("t",)))

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.values.append(int(message.value() or b""))

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}


def described(broker: Broker) -> Any:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return admin.describe_consumer_groups(["g"])["g"].result()


def poll_all(*members: Any) -> Any:
    return lambda: [member.poll() for member in members]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_partitions_and_take_over(broker: Broker, assignor: str) -> None:
    config = {"group.remote.assignor": assignor}
    first = Reader(broker, **config)
    until(lambda: len(first.values) == RECORDS, first.poll)
    first.consumer.commit(asynchronous=False)
    second = Reader(broker, **config)
    half = PARTITIONS // 2
    until(lambda: len(first.owned) == len(second.owned) == half, poll_all(first, second))
    assert not first.owned & second.owned
    group = described(broker)
    assert (group.type, group.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert group.partition_assignor == assignor
    second.consumer.close()
    until(lambda: len(first.owned) == PARTITIONS, first.poll)
    first.consumer.close()
    assert (sorted(first.values), second.values) == (list(range(RECORDS)), [])
    broker.wait_until_group_empty("g", timeout_s=DEADLINE_S)
    assert described(broker).state is ConsumerGroupState.EMPTY


def test_regular_expression_matches_topics_created_later(broker: Broker) -> None:
    broker.create_topic("topic-a")
    reader = Reader(broker, "^topic-[ab]$")
    until(lambda: reader.owned == {("topic-a", 0)}, reader.poll)
    broker.create_topic("topic-b")
    broker.create_topic("topic-c")
    until(lambda: reader.owned == {("topic-a", 0), ("topic-b", 0)}, reader.poll)
    reader.consumer.close()


def test_static_member_comes_back_to_its_partitions(broker: Broker) -> None:
    first = Reader(broker, **{"group.instance.id": "one"})
    other = Reader(broker)
    both = poll_all(first, other)
    until(lambda: len(first.owned) == len(other.owned) == PARTITIONS // 2, both)
    before = first.owned
    first.consumer.close()
    again = Reader(broker, **{"group.instance.id": "one"})
    until(lambda: again.owned == before, poll_all(again, other))
    assert len(other.owned) == PARTITIONS // 2
    for reader in (again, other):
        reader.consumer.close()


# On a slow machine the live member may be expelled, too. It then rejoins and gets all partitions.
@pytest.mark.parametrize("broker", [SHORT], indirect=True, ids=["session of 2 s"])
def test_silent_member_loses_its_partitions(broker: Broker) -> None:
    first = Reader(broker)
    where = ["--broker", broker.bootstrap_servers]
    source = Path(__file__).parent / "silent_reader.py"
    with subprocess.Popen(
        [sys.executable, str(source), *where], stdout=subprocess.PIPE, text=True
    ) as silent:
        assert silent.stdout is not None
        until(lambda: len(first.owned) == PARTITIONS // 2, first.poll)
        silent.kill()
        until(lambda: len(first.owned) == PARTITIONS, first.poll)
    first.consumer.close()


def test_group_changes_its_protocol_while_it_has_members(broker: Broker) -> None:
    classic = Member(broker.bootstrap_servers)
    until(lambda: len(classic.values) == RECORDS, classic.poll)
    classic.consumer.commit(asynchronous=False)
    modern = Reader(broker)
    half = PARTITIONS // 2
    both = poll_all(classic, modern)
    until(lambda: len(classic.owned) == len(modern.owned) == half, both)
    assert described(broker).type is ConsumerGroupType.CONSUMER
    assert not {("t", each) for each in classic.owned} & modern.owned
    modern.consumer.close()
    until(lambda: len(classic.owned) == PARTITIONS, classic.poll)
    assert described(broker).type is ConsumerGroupType.CLASSIC
    classic.consumer.close()
    assert modern.values == [], "committed offsets are where it began"


def test_classic_members_join_a_consumer_group(broker: Broker) -> None:
    modern = Reader(broker)
    until(lambda: len(modern.values) == RECORDS, modern.poll)
    modern.consumer.commit(asynchronous=False)
    classic = Member(broker.bootstrap_servers)
    both = poll_all(classic, modern)
    until(lambda: len(classic.owned) == len(modern.owned) == PARTITIONS // 2, both)
    assert described(broker).type is ConsumerGroupType.CONSUMER
    classic.consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    classic.consumer.close()
    until(lambda: len(modern.owned) == PARTITIONS, modern.poll)
    modern.consumer.close()
    assert classic.values == []


def test_group_survives_a_restart_with_its_members(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Broker(OFTEN, port=port, data_dir=tmp_path) as broker:
        broker.create_topic("t", PARTITIONS)
        produce(broker.bootstrap_servers)
        reader = Reader(broker)
        until(lambda: len(reader.values) == RECORDS, reader.poll)
        reader.consumer.commit(asynchronous=False)
    with Broker(OFTEN, port=port, data_dir=tmp_path) as broker:
        produce(broker.bootstrap_servers)
        until(lambda: len(reader.values) == 2 * RECORDS, reader.poll)
        reader.consumer.commit(asynchronous=False)
        assert len(reader.owned) == PARTITIONS
        reader.consumer.close()
        broker.wait_until_group_empty("g", timeout_s=DEADLINE_S)
        assert described(broker).state is ConsumerGroupState.EMPTY
    assert sorted(reader.values) == sorted([*range(RECORDS)] * 2)
