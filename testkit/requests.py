"""Requests that many tests send, with defaults for the fields that a test does not check."""

from __future__ import annotations

import time
from typing import Any

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.messages import fetch_request, list_offsets_request, produce_request
from odradek.records.record import Record, build_batch


def batch(*values: bytes, **options: Any) -> bytearray:
    """Return one batch with a record for each value and the present time as timestamp."""
    options.setdefault("timestamp_ms", time.time_ns() // 1_000_000)
    return build_batch([Record(None, value) for value in values or (b"value",)], **options)


def produce(
    topic: str = "t",
    records: Any = None,
    *,
    partition: int = 0,
    acks: int = 1,
    topic_id: Uuid = ZERO_UUID,
    timeout_ms: int = 120_000,
) -> produce_request.ProduceRequest:
    data = produce_request.PartitionProduceData(partition, batch() if records is None else records)
    topic_data = produce_request.TopicProduceData(topic, topic_id, [data])
    return produce_request.ProduceRequest(None, acks, timeout_ms, [topic_data])


def fetch(
    topic: str = "t",
    offset: int = 0,
    *,
    partitions: tuple[int, ...] = (0,),
    topic_id: Uuid = ZERO_UUID,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    partition_max_bytes: int = 1 << 20,
    **options: Any,
) -> fetch_request.FetchRequest:
    parts = [
        fetch_request.FetchPartition(
            partition,
            leader_epoch,
            offset,
            last_fetched_epoch,
            partition_max_bytes=partition_max_bytes,
        )
        for partition in partitions
    ]
    topics = [fetch_request.FetchTopic(topic, topic_id, parts)] if parts else []
    options = {"max_wait_ms": 0, "min_bytes": 1, **options}
    return fetch_request.FetchRequest(topics=topics, **options)


def list_offsets(
    timestamp: int, topic: str = "t", partition: int = 0, *, leader_epoch: int = -1
) -> list_offsets_request.ListOffsetsRequest:
    requested = list_offsets_request.ListOffsetsPartition(partition, leader_epoch, timestamp)
    topics = [list_offsets_request.ListOffsetsTopic(topic, [requested])]
    return list_offsets_request.ListOffsetsRequest(-1, 0, topics)
