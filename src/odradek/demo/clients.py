"""Kafka clients of the demo: a producer, a live counter, and a count of the topic afterwards.

All three use librdkafka through confluent-kafka, and work with any Kafka broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

REQUEST_TIMEOUT_S = 30
POLL_TIMEOUT_S = 0.2
QUEUE_FULL_WAIT_S = 0.1
TICK_EVENTS = 500
_QUIET = {"log_level": 2}  # errors are raised as exceptions; the terminal shows the demo
_EARLIEST: OffsetSpec = OffsetSpec.earliest()
_LATEST: OffsetSpec = OffsetSpec.latest()


def create_topic(bootstrap_servers: str, topic: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic. Raise KafkaException on failure, also if the topic exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas)
    admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[topic].result()


def count_records(bootstrap_servers: str, topic: str) -> int:
    """Return the number of offsets in the topic by ListOffsets: latest minus earliest offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET})
    metadata = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    partitions = [TopicPartition(topic, number) for number in metadata.partitions]
    return _sum_offsets(admin, partitions, _LATEST) - _sum_offsets(admin, partitions, _EARLIEST)


def _sum_offsets(admin: AdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> int:
    futures = admin.list_offsets(
        dict.fromkeys(partitions, spec),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    return sum(future.result().offset for future in futures.values())


class Streamer:
    """A producer that sends events at a fixed rate, and counts the acknowledged ones."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                **_QUIET,
                "compression.type": "lz4",
            }
        )
        self.acknowledged = 0

    def send_all(
        self,
        events: Iterable[tuple[bytes, bytes]],
        events_per_second: int,
        on_tick: Callable[[], None],
    ) -> int:
        """Send all events, and return their number.

        Args:
            events: Pairs of key and value.
            events_per_second: The rate.
            on_tick: Called after every `TICK_EVENTS` events, and while the last ones are sent.

        Raises:
            KafkaException: An event was not acknowledged.
        """
        began = time.monotonic()
        sent = 0
        for key, value in events:
            self._send(key, value)
            sent += 1
            if sent % TICK_EVENTS == 0:
                ahead_s = sent / events_per_second - (time.monotonic() - began)
                self._producer.poll(max(0.0, ahead_s))
                on_tick()
        while self._producer.flush(POLL_TIMEOUT_S):
            on_tick()
        return sent

    def _send(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value=value, key=key, on_delivery=self._delivered
                )
                return
            except BufferError:  # librdkafka's queue is full: let it drain
                self._producer.poll(QUEUE_FULL_WAIT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged += 1


class LiveCounter:
    """A consumer that counts records in a separate thread and group, until it is closed.

    Each offset counts once. After the failure of its coordinator a group may read the records after
    its last commit again.
    """

    def __init__(self, bootstrap_servers: str, topic: str, group: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **_QUIET,
            }
        )
        self._consumer.subscribe([topic])
        self._stop = threading.Event()
        self._failure: KafkaException | None = None
        self._next: dict[int, int] = {}
        """The next offset of each partition that counts."""
        self.count = 0
        self._thread = threading.Thread(target=self._run, name="live-counter", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for message in self._consumer.consume(1000, timeout=POLL_TIMEOUT_S):
                    self._take(message)
        except KafkaException as error:
            self._failure = error
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None, "it is a record"
            if offset >= self._next.get(partition, 0):
                self._next[partition] = offset + 1
                self.count += 1
        elif error.fatal():
            raise KafkaException(error)

    def wait_for(self, count: int, timeout_s: float, on_tick: Callable[[], None]) -> None:
        """Wait until `count` records are counted, the thread ends, or `timeout_s` is over."""
        until = time.monotonic() + timeout_s
        while self.count < count and self._thread.is_alive() and time.monotonic() < until:
            self._thread.join(POLL_TIMEOUT_S)
            on_tick()

    def close(self) -> None:
        """Commit, leave the group and end the thread. Raise KafkaException if counting failed."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
