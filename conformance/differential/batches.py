"""Valid record batches, batches with wrong header fields, and requests that contain them."""

from __future__ import annotations

from typing import Any

from odradek.ids import ZERO_UUID
from odradek.protocol.messages import fetch_request as f
from odradek.protocol.messages import produce_request as p
from odradek.records.batch import HEADER, HEADER_BYTES, BatchHeader, parse_header, write_crc
from odradek.records.record import Record, build_batch

# The base of all timestamps in scenarios: far in the past, to differ from the broker's own time.
T0 = 1_600_000_000_000


def batch(count: int = 1, **options: Any) -> bytearray:
    """Return a batch of `count` records, one millisecond apart, from `first_ms` (default `T0`)."""
    first = options.pop("first_ms", T0)
    size = options.pop("value_bytes", 5)
    records = [Record(b"k%d" % i, b"v" * size, first + i) for i in range(count)]
    return build_batch(records, timestamp_ms=first, **options)


def lying(data: bytearray, *, sum_up: bool = True, **changes: int) -> bytearray:
    """Return the batch with changed header fields and a new CRC.

    With `crc` among the changes, or with `sum_up=False`, the CRC is wrong.
    """
    header: BatchHeader = parse_header(data)._replace(**changes)
    out = bytearray(data)
    HEADER.pack_into(out, 0, *header)
    if sum_up and "crc" not in changes and len(out) >= HEADER_BYTES:
        write_crc(out)
    return out


def produce(
    topic: str,
    records: Any,
    *,
    acks: int = 1,
    partition: int = 0,
    topic_id: bytes = ZERO_UUID,
    transactional_id: str | None = None,
) -> p.ProduceRequest:
    data = p.PartitionProduceData(partition, records)
    topic_data = p.TopicProduceData(topic, topic_id, [data])
    return p.ProduceRequest(transactional_id, acks, 10_000, [topic_data])


def fetch(
    topic: str,
    offset: int = 0,
    *,
    topic_id: bytes = ZERO_UUID,
    partition: int = 0,
    epoch: int = -1,
    fetched_epoch: int = -1,
    partition_max: int = 1 << 20,
    **options: Any,
) -> f.FetchRequest:
    requested = f.FetchPartition(
        partition, epoch, offset, fetched_epoch, partition_max_bytes=partition_max
    )
    topics = [f.FetchTopic(topic, topic_id, [requested])]
    options = {"max_wait_ms": 0, "min_bytes": 0, **options}
    return f.FetchRequest(topics=topics, **options)
