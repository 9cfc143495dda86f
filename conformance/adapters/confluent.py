"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from conformance.adapters.base import DEADLINE_S, SESSION_MS, Rec, idempotence


class ConfluentClient:
    name = "confluent-kafka"
    null_headers = True

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "acks": "all",
                "enable.idempotence": idempotence(idempotent),
                "message.max.bytes": max_bytes,
                "linger.ms": 5,
            }
        )
        offsets: dict[int, int] = {}
        errors: list[KafkaError] = []

        def delivered(index: int) -> Callable[[KafkaError | None, Message], None]:
            def report(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[index] = message.offset() or 0

            return report

        for index, rec in enumerate(records):
            producer.produce(
                topic,
                value=rec.value,
                key=rec.key,
                partition=rec.partition,
                headers=list(rec.headers),
                timestamp=rec.timestamp_ms or 0,
                on_delivery=delivered(index),
            )
        left = producer.flush(DEADLINE_S)
        if errors:
            raise KafkaException(errors[0])
        assert left == 0, f"{left} records without a response"
        return [offsets[index] for index in range(len(records))]

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        max_bytes: int = 1_048_576,
    ) -> list[Rec]:
        consumer = _consumer(bootstrap, f"unused-{topic}")
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            found: list[Rec] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records"
                found += [_rec(m) for m in consumer.consume(count - len(found), timeout=1.0)]
            return found
        finally:
            consumer.close()

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        consumer = _consumer(bootstrap, f"unused-{topic}")
        try:
            asked = [TopicPartition(topic, 0, timestamp_ms)]
            (response,) = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
            return response.offset if response.offset >= 0 else None
        finally:
            consumer.close()

    def run_member(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        stop: threading.Event,
        on_record: Callable[[Rec], None],
        on_assignment: Callable[[set[int]], None],
    ) -> None:
        consumer = _consumer(bootstrap, group)
        consumer.subscribe([topic])
        try:
            while not stop.is_set():
                message = consumer.poll(0.1)
                on_assignment({tp.partition for tp in consumer.assignment()})
                if message is not None:
                    on_record(_rec(message))
                    consumer.commit(message, asynchronous=False)
        finally:
            consumer.close()


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 100,
        }
    )


def _rec(message: Message) -> Rec:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    headers = tuple((str(k), v) for k, v in message.headers() or [])
    return Rec(
        message.value(),
        message.key(),
        headers,
        message.timestamp()[1],
        message.partition() or 0,
        message.offset() or 0,
    )
