"""Reconciliation of tables with their topic, offset by offset, as an independent client reads it.

`differences` is empty if each record of the topic is in exactly one of table and quarantine, once,
in the right one and unaltered, and if neither has other rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from odradek.pipeline.tables import TableDir

REQUEST_TIMEOUT_S = 120
SCHEMA = "n BIGINT NOT NULL, pad STRING"
"""Schema of the values that `produce` sends, for the JSON parser."""


class RecordLocation(NamedTuple):
    """Topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The compared fields of a record, which are all fields that a table's row keeps.

    `value` is the record's number if the record parses, otherwise its raw bytes.
    """

    timestamp_ms: int
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    value: int | bytes


def value_of(n: int, bad_one_in: int = 7) -> bytes:
    """Return the value of record `n`, which is JSON. One in `bad_one_in` values is truncated."""
    text = json.dumps({"n": n, "pad": "x" * (n % 50)}).encode()
    return text[:-1] if n % bad_one_in == 0 else text


def produce(bootstrap_servers: str, topic: str, numbers: Iterable[int], partitions: int) -> None:
    """Send the records `numbers`, spread over the partitions, and wait for the responses."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "log_level": 2})
    for n in numbers:
        producer.produce(
            topic,
            value=value_of(n),
            key=f"k{n}".encode() if n % 5 else None,
            partition=n % partitions,
            headers=[("n", str(n).encode())] if n % 3 else [],
        )
    assert producer.flush(REQUEST_TIMEOUT_S) == 0


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(REQUEST_TIMEOUT_S)


def add_partitions(bootstrap_servers: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(REQUEST_TIMEOUT_S)


def lag(bootstrap_servers: str, group: str, topic: str, partitions: int) -> list[int]:
    """Return the lag of a group by partition, as a tool of Kafka computes it."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 2})
    try:
        keys = [TopicPartition(topic, number) for number in range(partitions)]
        committed = consumer.committed(keys, timeout=REQUEST_TIMEOUT_S)
        ends = [consumer.get_watermark_offsets(key, timeout=REQUEST_TIMEOUT_S)[1] for key in keys]
        return [end - one.offset for end, one in zip(ends, committed, strict=True)]
    finally:
        consumer.close()


@contextmanager
def member_of(bootstrap_servers: str, group: str, topic: str) -> Iterator[None]:
    """Run the block while a consumer is a member of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 2})
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


def read_topic(bootstrap_servers: str, topic: str) -> dict[RecordLocation, Entry]:
    """Return all records of the topic, read by a separate client."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        metadata = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        ends = {}
        for partition in metadata.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S
            )
            if high > low:
                ends[partition] = high
        return _read_to(consumer, topic, ends)
    finally:
        consumer.close()


def _read_to(consumer: Consumer, topic: str, ends: dict[int, int]) -> dict[RecordLocation, Entry]:
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[RecordLocation, Entry] = {}
    left = dict(ends)
    while left:
        message = consumer.poll(REQUEST_TIMEOUT_S)
        assert message is not None, f"no records arrive, although the topic ends at {left}"
        if message.error() is not None:
            raise KafkaException(message.error())
        location = RecordLocation(topic, message.partition(), message.offset())
        found[location] = _entry(message)
        if location.offset + 1 >= left.get(location.partition, 0):
            left.pop(location.partition, None)
    return found


def _entry(message: object) -> Entry:
    raw = message.value()  # type: ignore[attr-defined]
    headers = message.headers() or []  # type: ignore[attr-defined]
    try:
        value: int | bytes = int(json.loads(raw)["n"])
    except ValueError:
        value = raw
    timestamp_ms = message.timestamp()[1]  # type: ignore[attr-defined]
    key = message.key()  # type: ignore[attr-defined]
    return Entry(timestamp_ms, key, tuple((name, bytes(data)) for name, data in headers), value)


Rows = list[tuple[RecordLocation, Entry]]


def read_tables(spark: SparkSession, tables: TableDir) -> tuple[Rows, Rows]:
    """Return all rows of table and quarantine, including doubled ones."""
    table = tables.table(spark).read().collect()
    quarantine = tables.quarantine(spark).read().collect()
    return (
        [(_location(row), _row_entry(row, row.value.n)) for row in table],
        [(_location(row), _row_entry(row, bytes(row.value))) for row in quarantine],
    )


def _location(row: Row) -> RecordLocation:
    return RecordLocation(row.topic, row.partition, row.offset)


def _row_entry(row: Row, value: int | bytes) -> Entry:
    return Entry(
        round(row.timestamp.timestamp() * 1000),
        None if row.key is None else bytes(row.key),
        tuple((header.key, bytes(header.value)) for header in row.headers or []),
        value,
    )


def differences(topic: dict[RecordLocation, Entry], table: Rows, quarantine: Rows) -> list[str]:
    """Return one line for each difference, in no particular order."""
    rows = [*table, *quarantine]
    times = Counter(location for location, _ in rows)
    found = [f"{location} is missing" for location in topic if location not in times]
    found += [f"{location} occurs {count} times" for location, count in times.items() if count > 1]
    found += [f"{location} is not in the topic" for location in times if location not in topic]
    found += [
        f"{location} is altered" for location, entry in rows if topic.get(location, entry) != entry
    ]
    return found
