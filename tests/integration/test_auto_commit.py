"""Consumers with auto-commit: after a crash, the records of the last poll are read again."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.testing import Broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPartition

DEADLINE_S = 120.0
# No machine is so slow that a member that lives is taken for dead.
SESSION_MS = 60_000
RECORDS = 200


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", 1)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce("t", value=str(number))
        assert producer.flush(DEADLINE_S) == 0
        yield running


def member(broker: Broker) -> KafkaConsumer:
    """Return a consumer that commits with every poll and gets one record by each poll."""
    return KafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=0,
        max_poll_records=1,
        session_timeout_ms=SESSION_MS,
        request_timeout_ms=2 * SESSION_MS,
    )


def poll(consumer: KafkaConsumer) -> int:
    """Return the value of the next record."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for records in consumer.poll(60_000).values():
            (record,) = records
            return int(record.value)
    raise AssertionError("no record came")


def committed(reader: Consumer) -> int:
    """Return the committed offset of the group, negative if there is none."""
    (found,) = reader.committed([TopicPartition("t", 0)], DEADLINE_S)
    assert found.error is None
    return int(found.offset)


# This client leaves sockets to the garbage collector, which comes when it likes.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_auto_commit_commits_the_poll_before_and_a_crash_repeats_the_last(broker: Broker) -> None:
    """Jepsen's correction of 2024-11-13 to its Bufstream report.

    A poll commits the offset after the records of the previous poll. If a consumer crashes while it
    processes a record, the group reads that record again.
    """
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer = member(broker)
    for last in range(RECORDS):
        assert poll(consumer) == last
        # Sends what the poll has left to be sent, and commits nothing.
        consumer.end_offsets([KafkaPartition("t", 0)])
        offset = committed(reader)
        assert offset <= last, "never what the last poll returned"
        if last > 0 and offset == last:
            break
    else:
        raise AssertionError("no poll committed the one before it")
    consumer.close(autocommit=False)
    again = member(broker)
    assert poll(again) == last
    again.close(autocommit=False)
    reader.close()
    del consumer, again
    gc.collect()  # while that is allowed
