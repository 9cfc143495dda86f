"""Groups of real clients on a live broker: joining, leaving, both kinds of rebalance, resuming."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing import Broker
from testkit.peer.server import free_ports

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

DEADLINE_S = 120.0
# No machine is so slow that a member that lives is taken for dead.
SESSION_MS = 60_000
PARTITIONS = 4
RECORDS = 40


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", PARTITIONS)
        produce(running.bootstrap_servers)
        yield running


def produce(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("t", value=str(number), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    """Repeat `step` until `done`, or fail after the deadline."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end, "the clients did not get there"
        step()


class Member:
    """A consumer of librdkafka that records its assignments and the values that it has read."""

    def __init__(self, bootstrap_servers: str, **config: Any) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 100,
                **config,
            }
        )
        self.owned: set[int] = set()
        self.values: list[int] = []
        self.revoked: list[set[int]] = []
        self.cooperative = config.get("partition.assignment.strategy") == "cooperative-sticky"
        self.consumer.subscribe(["t"], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        added = {each.partition for each in partitions}
        self.owned = self.owned | added if self.cooperative else added

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self.revoked.append(gone)
        self.owned = self.owned - gone

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.values.append(int(message.value() or b""))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_second_member_gets_its_share_and_releases_it(broker: Broker, strategy: str) -> None:
    config = {"partition.assignment.strategy": strategy}
    first = Member(broker.bootstrap_servers, **config)
    until(lambda: len(first.values) == RECORDS, first.poll)
    assert sorted(first.values) == list(range(RECORDS))
    first.consumer.commit(asynchronous=False)
    second = Member(broker.bootstrap_servers, **config)

    def both() -> None:
        first.poll()
        second.poll()

    until(lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2, both)
    assert not first.owned & second.owned
    kept = set(first.owned)
    if strategy == "cooperative-sticky":
        assert all(not gone & kept for gone in first.revoked), "what it keeps is never revoked"
    second.consumer.close()
    until(lambda: len(first.owned) == PARTITIONS, first.poll)
    first.consumer.close()
    assert second.values == [], "committed offsets are where the second began"


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(broker: Broker) -> None:
    config = {"group.instance.id": "one"}
    member = Member(broker.bootstrap_servers, **config)
    until(lambda: len(member.values) == RECORDS, member.poll)
    member.consumer.commit(asynchronous=False)
    member.consumer.close()
    again = Member(broker.bootstrap_servers, **config)
    until(lambda: len(again.owned) == PARTITIONS, again.poll)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert [member.group_instance_id for member in described.members] == ["one"]
    again.consumer.close()


# This client leaves sockets to the garbage collector, which comes when it likes.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_kafka_python_group_resumes_where_it_committed(broker: Broker) -> None:
    def consumer() -> KafkaConsumer:
        return KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=RECORDS // 2,
            session_timeout_ms=SESSION_MS,
            request_timeout_ms=2 * SESSION_MS,
        )

    def read(running: KafkaConsumer, count: int) -> None:
        # A poll that ends while the group is joined may lose the assignment (kafka-python 3.0.12),
        # so it is given time: it returns with the first records.
        def poll() -> None:
            for records in running.poll(60_000).values():
                values.extend(int(record.value) for record in records)

        until(lambda: len(values) >= count, poll)

    values: list[int] = []
    for count in (RECORDS // 2, RECORDS):
        running = consumer()
        read(running, count)
        running.commit()
        running.close()
    assert sorted(values) == list(range(RECORDS))
    del running
    gc.collect()  # while that is allowed


def test_aiokafka_members_share_and_resume(broker: Broker) -> None:
    def consumer() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=SESSION_MS,
            request_timeout_ms=2 * SESSION_MS,
        )

    async def read(running: AIOKafkaConsumer, values: list[int], count: int) -> None:
        while len(values) < count:
            for records in (await running.getmany(timeout_ms=100)).values():
                values.extend(int(record.value) for record in records)

    async def run() -> None:
        values: list[int] = []
        first, second = consumer(), consumer()
        await first.start()
        await read(first, values, RECORDS)
        await first.commit()
        await second.start()
        while not len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2:
            await first.getmany(timeout_ms=20)
        assert not first.assignment() & second.assignment()
        await first.stop()
        while len(second.assignment()) < PARTITIONS:
            assert await second.getmany(timeout_ms=20) == {}
        await second.stop()
        assert sorted(values) == list(range(RECORDS))

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


# -- a broker that is killed -----------------------------------------------------------------------


class Process:
    """A broker process that uses the same data and the same port each time it starts."""

    def __init__(self, data: Path) -> None:
        self.data = data
        (self.port,) = free_ports(1)
        self.start()

    def start(self) -> None:
        """Start the broker. Return when it serves requests."""
        where = ["--listen", f"127.0.0.1:{self.port}", "--data", str(self.data)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "serve", *where], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if "listens on" in line:
                return
        raise AssertionError("the broker did not start:\n" + "".join(lines))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path)
    yield running
    running.kill()


def test_group_and_its_offsets_survive_sigkill(process: Process) -> None:
    address = f"127.0.0.1:{process.port}"
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce("t", value=str(number), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    member = Member(address)
    for count in (10, 20, 30):
        until(lambda count=count: len(member.values) >= count, member.poll)  # type: ignore[misc]
        offset = TopicPartition("t", 0, member.values[-1] + 1)
        member.consumer.commit(offsets=[offset], asynchronous=False)
        process.kill()
        process.start()
    found = member.consumer.committed([TopicPartition("t", 0)], DEADLINE_S)
    assert found[0].offset == offset.offset
    until(lambda: len(member.values) >= RECORDS, member.poll)
    assert member.values == list(range(RECORDS))
    assert member.revoked == [], "the generation continued, and no member had to rejoin"
    member.consumer.close()
