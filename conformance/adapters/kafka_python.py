"""kafka-python: the pure Python client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from conformance.adapters.base import DEADLINE_S, SESSION_MS, Rec, idempotence


class KafkaPythonClient:
    name = "kafka-python"
    null_headers = False

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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            max_request_size=max_bytes + 1000,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotence(idempotent),
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=rec.value,
                    key=rec.key,
                    partition=rec.partition,
                    headers=list(rec.headers),
                    timestamp_ms=rec.timestamp_ms,
                )
                for rec in records
            ]
            return [future.get(timeout=DEADLINE_S).offset for future in futures]
        finally:
            producer.close()

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
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=max_bytes,
            fetch_max_wait_ms=100,
        )
        try:
            assigned = TopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, offset)
            found: list[Rec] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records"
                found += _polled(consumer, 500)
            return found[:count]
        finally:
            consumer.close()

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        try:
            asked = TopicPartition(topic, 0)
            response = consumer.offsets_for_times({asked: timestamp_ms})[asked]
            return None if response is None else int(response.offset)
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
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=SESSION_MS,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=2000,
        )
        try:
            know_partitions(consumer, topic)
            while not stop.is_set():
                records = _polled(consumer, 100)
                on_assignment({tp.partition for tp in consumer.assignment()})
                for rec in records:
                    on_record(rec)
                if records:
                    consumer.commit()
        finally:
            consumer.close(autocommit=False)


def know_partitions(consumer: Any, topic: str) -> None:
    """Wait for the metadata of the topic, so that it is known before the first JoinGroup.

    Otherwise kafka-python 3.0.12 may hang. It joins with an empty assignment, and joins again when
    the metadata comes. If `poll` times out during that second join, its result is lost: the leader
    has compared the metadata in the meantime (`_perform_assignment`). As a result `need_rejoin` is
    false and no later call awaits `_join_task`. The member then has no partitions and sends no
    heartbeats, and calls of `poll` keep both of its threads busy.
    """
    assert consumer.partitions_for_topic(topic), f"no metadata of {topic}"


def _polled(consumer: Any, timeout_ms: int) -> list[Rec]:
    return [
        Rec(r.value, r.key, tuple((k, v) for k, v in r.headers), r.timestamp, r.partition, r.offset)
        for batch in consumer.poll(timeout_ms=timeout_ms).values()
        for r in batch
    ]
