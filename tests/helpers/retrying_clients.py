"""Clients of librdkafka that retry, in threads, with every error that they report."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

LIMIT_S = 60.0
POLL_S = 0.1
AGAIN_S = 0.05
COMMON = {"log_level": 0, "reconnect.backoff.max.ms": 500}
GROUP = "retrying"
TRANSACTIONAL = "transactional"
PRODUCERS = ("idempotent", "plain", TRANSACTIONAL)


@dataclass
class RetryingClients:
    """An idempotent, a plain and a transactional producer, and a group of one consumer.

    Attributes:
        producers: Which of the producers run.
        errors: All errors, with the client.
        acknowledged: The values of each producer.
        consumed: The values that the group has received.
    """

    bootstrap: str
    topic: str
    partitions: int
    producers: Sequence[str] = PRODUCERS
    errors: list[str] = field(default_factory=list)
    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    consumed: Counter[str] = field(default_factory=Counter)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[RetryingClients]:
        """Run the clients until the end of `with`, and the consumer until it has all values."""
        producers = [
            self._thread(name, self._transact if name == TRANSACTIONAL else self._produce)
            for name in self.producers
        ]
        consumed = threading.Event()
        consumer = self._thread("consumer", lambda _: self._consume(consumed))
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in producers:
                thread.join()
            consumed.set()
            consumer.join()

    def await_progress(self) -> None:
        """Wait until each producer has further values acknowledged, and the group has received."""
        before = {name: len(self.acknowledged.get(name, ())) for name in self.producers}
        received, deadline = self.consumed.total(), time.monotonic() + LIMIT_S
        while self.consumed.total() <= received or any(
            len(self.acknowledged.get(name, ())) <= number for name, number in before.items()
        ):
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, "the clients make no progress"
            time.sleep(AGAIN_S)

    def read(self) -> Counter[str]:
        """Return how often each committed value is in the topic."""
        config = {"bootstrap.servers": self.bootstrap, "group.id": "reader", **COMMON}
        consumer = Consumer({**_consumer(config), "enable.partition.eof": True})
        starts = [TopicPartition(self.topic, n, OFFSET_BEGINNING) for n in range(self.partitions)]
        consumer.assign(starts)
        found: Counter[str] = Counter()
        left = set(range(self.partitions))
        while left:
            message = consumer.poll(LIMIT_S)
            assert message is not None, "nothing was read within the limit"
            if message.error() is None:
                found[message.value().decode()] += 1
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
        consumer.close()
        return found

    # --- the threads ---

    def _thread(self, name: str, run: Callable[[str], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run(name)
            except Exception as error:  # noqa: BLE001 - the test compares `errors`
                self.errors.append(f"{name}: {error!r}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def _produce(self, name: str) -> None:
        config = {"bootstrap.servers": self.bootstrap, "enable.idempotence": name == "idempotent"}
        producer = Producer({**config, **COMMON, "acks": "all"})
        values = self.acknowledged[name] = []
        number = 0
        while not self._stopping.is_set():
            self._send(producer, name, f"{name}-{number}", values)
            number += 1
            assert producer.flush(LIMIT_S) == 0, "no response"

    def _transact(self, name: str) -> None:
        config = {"bootstrap.servers": self.bootstrap, "transactional.id": "retrying"}
        producer = Producer({**config, **COMMON})
        _retried(producer.init_transactions)
        values = self.acknowledged[name] = []
        number = 0
        while not self._stopping.is_set():
            delivered: list[str] = []
            producer.begin_transaction()
            for _ in range(2):
                self._send(producer, name, f"{name}-{number}", delivered)
                number += 1
            _retried(producer.commit_transaction)
            values += delivered

    def _send(self, producer: Producer, name: str, value: str, values: list[str]) -> None:
        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is None:
                values.append(value)
            else:
                self.errors.append(f"{name}: {error}")

        partition = int(value.rpartition("-")[2]) % self.partitions
        producer.produce(self.topic, value, partition=partition, on_delivery=delivered)

    def _consume(self, consumed: threading.Event) -> None:
        config = {"bootstrap.servers": self.bootstrap, "group.id": GROUP, **COMMON}
        consumer = Consumer(_consumer(config))
        consumer.subscribe([self.topic])
        deadline = float("inf")
        while True:
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is not None:
                self.errors.append(f"consumer: {message.error()}")
            elif message is not None:
                self.consumed[message.value().decode()] += 1
                if self.consumed.total() % 50 == 0:
                    _retried(lambda _: consumer.commit(asynchronous=False))
            if consumed.is_set():
                deadline = min(deadline, time.monotonic() + LIMIT_S)
                expected = {each for values in self.acknowledged.values() for each in values}
                if expected <= set(self.consumed) or time.monotonic() > deadline:
                    break
        consumer.close()


def _consumer(config: dict[str, Any]) -> dict[str, Any]:
    return {
        **config,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }


def _retried(call: Callable[[float], Any]) -> None:
    """Call again after each error that the library calls retriable."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            call(LIMIT_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)
        else:
            return
