"""The time from a start to the first served offsets of a group: `make evidence-group-loading`.

One partition of ``__consumer_offsets`` holds a million commits, ten a batch. They are commits of a
thousand partitions, as between two runs of the cleaner, or of a million partitions, as after a run.
Both brokers get the same records, produced under the client id that may write to internal topics.
They are then stopped and started again. The time is measured from the start of the process to the
first response to OffsetFetch that is not COORDINATOR_LOAD_IN_PROGRESS. The time to the first
response of any kind is printed, too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.processes import memory_bytes
from benchmarks.tables import MIB
from odradek.errors import ErrorCode
from odradek.protocol import record_codec
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from testkit.peer.server import STARTERS, BrokerProcess
from testkit.wire import WireClient

COMMITS = 1_000_000
GROUP_PARTITIONS = 1_000
BATCH = 10
PARTITIONS_A_GROUP = 10
OFFSETS = "__consumer_offsets"
# The client id with which Kafka's own tools may produce to an internal topic.
ADMIN_CLIENT = "__admin_client"
SETTINGS = {"offsets.topic.num.partitions": "1", "log.cleaner.enable": "false"}
DEADLINE_S = 300.0


def records(count: int, group_partitions: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield `count` commits that cycle through this number of partitions of groups."""
    now_ms = int(time.time() * 1000)
    for number in range(count):
        index = number % group_partitions
        key = OffsetCommitKey(
            f"group-{index // PARTITIONS_A_GROUP}", "topic", index % PARTITIONS_A_GROUP
        )
        value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=now_ms)
        yield record_codec.encode_key(key), record_codec.encode_value(value, 3)


def fill(broker: BrokerProcess, count: int, group_partitions: int) -> None:
    """Create the offsets topic and write the commits to it."""
    plain = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    consumer = Consumer({**plain, "group.id": "first"})
    producer = Producer({**plain, "allow.auto.create.topics": True})
    producer.produce("topic", b"x")
    assert producer.flush(DEADLINE_S) == 0
    consumer.commit(offsets=[TopicPartition("topic", 0, 0)], asynchronous=False)
    consumer.close()
    config = {"client.id": ADMIN_CLIENT, "batch.num.messages": BATCH, "linger.ms": 50}
    producer = Producer({**plain, **config, "queue.buffering.max.messages": 1_000_000})
    for key, value in records(count, group_partitions):
        while True:
            try:
                producer.produce(OFFSETS, value, key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def served(broker: BrokerProcess, group_id: str) -> None:
    """Wait until the broker returns the group's offsets."""
    end = time.monotonic() + DEADLINE_S
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    with WireClient(broker.bootstrap) as client:
        while True:
            group = client.call(asked, 9).groups[0]
            if group.error_code == ErrorCode.NONE and group.topics:
                return
            assert time.monotonic() < end, f"not served: {ErrorCode(group.error_code).name}"
            time.sleep(0.005)


def measure(name: str, count: int, group_partitions: int, repeats: int) -> list[dict[str, float]]:
    """Fill a broker, then start it `repeats` times."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        broker = STARTERS[name](Path(work), SETTINGS)
        try:
            fill(broker, count, group_partitions)
            for _ in range(repeats):
                broker.stop()
                began = time.monotonic()
                broker = broker.restart()
                served(broker, f"group-{group_partitions // PARTITIONS_A_GROUP - 1}")
                row = {
                    "first_answer_s": broker.started_s,
                    "served_s": time.monotonic() - began,
                    "memory_mib": memory_bytes(broker.pid) / MIB,
                }
                rows.append(row)
        finally:
            broker.stop()
    return rows
