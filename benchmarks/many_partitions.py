"""The cost of idle partitions: start after a clean stop, memory, open files.

Ten topics share the partitions, each of which holds one record. The broker is stopped cleanly and
started again, and the brokers take turns. Memory and open files of the same broker before the
topics existed are subtracted for the cost of one partition. `make evidence-partitions` runs it.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.loads import Driven
from benchmarks.processes import memory_bytes, tree
from odradek.errors import ErrorCode
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from testkit.peer.server import STARTERS, BrokerProcess
from testkit.wire import ConnectionClosed, WireClient

PARTITIONS = 10_000
TOPICS = 10
DEADLINE_S = 300.0
LATEST = -1
SETTLED_S = 2.0


def open_files(root: int) -> int:
    """Descriptors of the process tree."""
    found = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            found += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return found


def mapped_files(root: int) -> int:
    """Memory maps of files in the process tree; an index of Kafka's is one each."""
    found = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
            found += sum(1 for line in lines if "/" in line)
    return found


def allow_open_files() -> None:
    """The soft limit up to the hard one; the brokers inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def topic(number: int) -> str:
    return f"many-{number}"


def fill(broker: Driven, partitions: int) -> float:
    """The topics with one record in each partition; the seconds of the creation alone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    began = time.monotonic()
    for number in range(TOPICS):
        new = NewTopic(topic(number), partitions // TOPICS, broker.replication_factor)
        created = admin.create_topics([new], operation_timeout=60, request_timeout=120)
        created[topic(number)].result(DEADLINE_S)
    took = time.monotonic() - began
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    for number in range(TOPICS):
        for index in range(partitions // TOPICS):
            producer.produce(topic(number), b"x" * 200, partition=index)
        if producer.flush(DEADLINE_S):
            raise RuntimeError("records without a response")
    return took


def await_served(broker: BrokerProcess, partitions: int) -> None:
    """Wait until the first and the last partition of each topic return the one record's offset."""
    asked = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic(number),
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                    for index in (0, partitions // TOPICS - 1)
                ],
            )
            for number in range(TOPICS)
        ],
    )
    end = time.monotonic() + DEADLINE_S
    while True:
        with contextlib.suppress(ConnectionClosed), WireClient(broker.bootstrap) as client:
            responses = [p for t in client.call(asked, 6).topics for p in t.partitions]
            if all(a.error_code == ErrorCode.NONE and a.offset == 1 for a in responses):
                return
        if time.monotonic() > end:
            raise RuntimeError("partitions are not served")
        time.sleep(0.01)


def figures(broker: BrokerProcess) -> dict[str, float]:
    """Memory and files of a broker that has come to rest."""
    time.sleep(SETTLED_S)
    return {
        "memory_bytes": float(memory_bytes(broker.pid)),
        "open_files": float(open_files(broker.pid)),
        "mapped_files": float(mapped_files(broker.pid)),
    }


def restarted(broker: BrokerProcess, partitions: int) -> tuple[BrokerProcess, dict[str, float]]:
    """Stop and start the broker. Return the measurements."""
    stop_s = broker.stop()
    began = time.monotonic()
    broker = broker.restart()
    await_served(broker, partitions)
    served_s = time.monotonic() - began
    measured = {"start_s": broker.started_s, "served_s": served_s, "stop_s": stop_s}
    return broker, {**measured, **figures(broker)}


@contextmanager
def running(
    names: tuple[str, ...], partitions: int, work: Path
) -> Iterator[Callable[[int], dict[str, Any]]]:
    """Brokers with their partitions, and a function that restarts each of them once, as a pair.

    Each start is one with the other broker at rest. The order of the brokers alternates.
    """
    allow_open_files()
    brokers: dict[str, BrokerProcess] = {}
    before: dict[str, dict[str, Any]] = {}

    def pair(number: int) -> dict[str, Any]:
        found = {}
        for name in names if number % 2 == 0 else names[::-1]:
            brokers[name], measured = restarted(brokers[name], partitions)
            found[name] = {**measured, **before[name]}
        return found

    try:
        for name in names:
            brokers[name] = STARTERS[name](work / f"many-{name}")
            empty = figures(brokers[name])
            before[name] = {"empty": empty, "create_s": fill(brokers[name], partitions)}
        yield pair
    finally:
        for broker in brokers.values():
            broker.stop()
