"""aiokafka: the asyncio client. Each call runs its own event loop to completion."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from conformance.adapters.base import DEADLINE_S, SESSION_MS, Rec, idempotence


class AiokafkaClient:
    name = "aiokafka"
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
        async def go() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks="all",
                max_request_size=max_bytes + 1000,
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotence(idempotent),
                linger_ms=5,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic,
                        value=rec.value,
                        key=rec.key,
                        partition=rec.partition,
                        headers=list(rec.headers),
                        timestamp_ms=rec.timestamp_ms,
                    )
                    for rec in records
                ]
                return [(await asyncio.wait_for(f, DEADLINE_S)).offset for f in futures]

        return asyncio.run(go())

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
        async def go() -> list[Rec]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                enable_auto_commit=False,
                max_partition_fetch_bytes=max_bytes,
                fetch_max_wait_ms=100,
            )
            async with consumer:
                assigned = TopicPartition(topic, partition)
                consumer.assign([assigned])
                consumer.seek(assigned, offset)
                found: list[Rec] = []
                while len(found) < count:
                    found += await _polled(consumer, 500)
                return found[:count]

        return asyncio.run(asyncio.wait_for(go(), DEADLINE_S))

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        async def go() -> int | None:
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
                asked = TopicPartition(topic, 0)
                response = (await consumer.offsets_for_times({asked: timestamp_ms}))[asked]
                return None if response is None else int(response.offset)

        return asyncio.run(asyncio.wait_for(go(), DEADLINE_S))

    def run_member(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        stop: threading.Event,
        on_record: Callable[[Rec], None],
        on_assignment: Callable[[set[int]], None],
    ) -> None:
        async def go() -> None:
            consumer = AIOKafkaConsumer(
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
            async with consumer:
                while not stop.is_set():
                    records = await _polled(consumer, 100)
                    on_assignment({tp.partition for tp in consumer.assignment()})
                    for rec in records:
                        on_record(rec)
                    if records:
                        await consumer.commit()

        asyncio.run(go())


async def _polled(consumer: Any, timeout_ms: int) -> list[Rec]:
    return [
        Rec(r.value, r.key, tuple(r.headers), r.timestamp, r.partition, r.offset)
        for batch in (await consumer.getmany(timeout_ms=timeout_ms)).values()
        for r in batch
    ]
