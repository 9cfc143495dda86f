"""Lag of a group in seconds: the age of the first record that it has not committed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.cli.client import REQUEST_TIMEOUT_S, client_config

if TYPE_CHECKING:
    from confluent_kafka import Message

# Time limit for reading the first uncommitted records of all partitions together.
READ_TIMEOUT_S = 10.0


def lag_seconds(
    bootstrap_server: str, committed: Mapping[tuple[str, int], int], now_s: float
) -> dict[tuple[str, int], float]:
    """Return the age in seconds of the record at each committed offset, or of the next record.

    A partition is left out if its record cannot be read within `READ_TIMEOUT_S`, or if only
    transaction markers follow the committed offset.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    if not committed:
        return {}
    config = client_config(bootstrap_server)
    consumer = Consumer(
        {
            **config,
            "group.id": "odradek-lag",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }
    )
    ages: dict[tuple[str, int], float] = {}
    waiting = set(committed)
    try:
        consumer.assign([TopicPartition(t, p, offset) for (t, p), offset in committed.items()])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while waiting and time.monotonic() < deadline:
            message: Message | None = consumer.poll(min(REQUEST_TIMEOUT_S, 1.0))
            if message is None:
                continue
            key = message.topic(), message.partition()
            error = message.error()
            if error is None:
                kind, timestamp_ms = message.timestamp()
                if key in waiting and kind:
                    ages[key] = round(max(now_s - timestamp_ms / 1000, 0.0), 3)
            elif error.code() != KafkaError._PARTITION_EOF:
                continue
            if key in waiting:
                waiting.discard(key)
                consumer.pause([TopicPartition(*key)])
    finally:
        consumer.close()
    return ages
