"""The compaction of one batch: it is kept, reduced, emptied or deleted.

The rules are Kafka's (``Cleaner.cleanInto``, ``MemoryRecords.filterTo``).

- A record is kept if it is the newest of its key and has a value.
- A tombstone is kept until its delete horizon (KIP-534). The first pass that finds it without older
  records writes the horizon, now + `delete.retention.ms`, into the batch (attribute bit 6, base
  timestamp = horizon). A pass after the horizon deletes it.
- The same applies to the markers of transactions whose data was deleted.
- The last batch of each producer is kept, empty if necessary, because a restart reads the last
  sequence from it.

Base offset, last offset delta, base sequence and leader epoch never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from odradek.log.cleaner.offset_map import OffsetMap
from odradek.log.cleaner.record_spans import (
    RecordSpan,
    join_records,
    parse_records,
    shift_timestamps,
    to_int64,
)
from odradek.log.cleaner.transactions import CleanedTransactions
from odradek.records import compression as codec
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    write_crc,
)
from odradek.records.record import CorruptRecord, body_of

DELETE_HORIZON_MASK = 0x40
NO_DATA_OFFSET = -1
BATCH_RECORDS_MAX = 1_000_000
"""Maximum number of records in a batch: as many as a client can be configured to send."""

LastRecords = Mapping[int, tuple[int, int]]
"""Producer id -> offset of its last data (-1: none in its epoch) and its epoch."""


class Retention(Enum):
    """The treatment of a batch without kept records. DELETE skips the records unread."""

    DELETE = 1
    DELETE_EMPTY = 2
    RETAIN_EMPTY = 3


@dataclass(slots=True)
class CleanerStats:
    """Counts of bytes and records that one cleaning read and wrote."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keyless: int = 0
    map_bytes_read: int = 0
    map_records: int = 0
    map_utilization: float = 0.0


@dataclass(slots=True)
class BatchFilter:
    """The rules of one cleaning. `upper_bound` is the first offset that it must not clean."""

    offset_map: OffsetMap
    transactions: CleanedTransactions
    last_records: LastRecords
    upper_bound: int
    now_ms: int
    delete_retention_ms: int
    stats: CleanerStats

    def apply(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview | bytearray:
        """Return the bytes that replace `batch`; empty if the batch is deleted.

        Raises:
            CorruptRecord: The body does not match the header.
        """
        horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None
        idle_marker = False
        if header.is_control:
            idle_marker = self.transactions.marker_is_unneeded(batch, header)
            discarded = idle_marker and horizon_ms is not None and horizon_ms <= self.now_ms
        else:
            discarded = self.transactions.is_aborted(header)
        retention = self._retention(header, discarded)
        if retention is Retention.DELETE:
            return b""
        body, kept = b"", list[RecordSpan]()
        if header.record_count and not discarded:
            body = body_of(batch, header)
            kept = self._kept(parse_body(body, header), header, horizon_ms)
        if not kept:
            return emptied(header) if retention is Retention.RETAIN_EMPTY else b""
        self.stats.records_written += len(kept)
        new_horizon = None
        if horizon_ms is None and (idle_marker or not all(record[5] for record in kept)):
            new_horizon = self.now_ms + self.delete_retention_ms
        if new_horizon is None and len(kept) == header.record_count:
            return batch
        return rebuilt(header, body, kept, new_horizon)

    def _retention(self, header: BatchHeader, discarded: bool) -> Retention:
        if header.producer_id >= 0 and self._is_last_of_producer(header):
            return Retention.RETAIN_EMPTY
        if header.last_offset + 1 == self.upper_bound:
            # Keeps the end offset of the cleaned part known.
            return Retention.RETAIN_EMPTY
        return Retention.DELETE if discarded else Retention.DELETE_EMPTY

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether this is the producer's last data batch.

        Without data it is the marker that has the producer's epoch.
        """
        last = self.last_records.get(header.producer_id)
        if last is None:
            return False
        data_offset, epoch = last
        if data_offset != NO_DATA_OFFSET:
            return header.last_offset == data_offset
        return header.is_control and header.producer_epoch == epoch

    def _kept(
        self, records: list[RecordSpan], header: BatchHeader, horizon_ms: int | None
    ) -> list[RecordSpan]:
        self.stats.records_read += len(records)
        if header.is_control:
            return records
        kept = self.offset_map.newest(records, header.base_offset)
        if horizon_ms is None or self.now_ms < horizon_ms:
            return kept
        latest = self.offset_map.latest_offset - header.base_offset
        return [record for record in kept if record[5] or record[3] > latest]


def parse_body(body: bytes, header: BatchHeader) -> list[RecordSpan]:
    """Return the records of a batch.

    Raises:
        CorruptRecord: The body is invalid, or has more records than fit into a worker's memory.
    """
    if header.record_count > BATCH_RECORDS_MAX:
        raise CorruptRecord(f"{header.record_count} records are more than {BATCH_RECORDS_MAX}")
    return parse_records(body, header.record_count, header.last_offset_delta)


def emptied(header: BatchHeader) -> bytearray:
    """Return the batch without its records (``DefaultRecordBatch.writeEmptyHeader``)."""
    flags = header.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
    return _seal(
        header._replace(attributes=flags, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


def rebuilt(
    header: BatchHeader, body: bytes, kept: list[RecordSpan], new_horizon_ms: int | None
) -> bytearray:
    """Return the batch with only the `kept` records, with the same compression.

    Records are copied unchanged, unless a new delete horizon replaces the base timestamp of their
    timestamp deltas.
    """
    attributes, base, latest = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & TIMESTAMP_TYPE_MASK:
        latest = to_int64(base + max(record[2] for record in kept))
    if new_horizon_ms is None:
        payload = join_records(body, kept)
    else:
        payload = shift_timestamps(body, kept, base - new_horizon_ms)
        attributes, base = attributes | DELETE_HORIZON_MASK, new_horizon_ms
    payload = codec.compress(Compression(attributes & COMPRESSION_MASK), payload)
    header = header._replace(
        attributes=attributes, base_timestamp=base, max_timestamp=latest, record_count=len(kept)
    )
    return _seal(header, payload)


def _seal(header: BatchHeader, payload: bytes) -> bytearray:
    batch = bytearray(HEADER_BYTES + len(payload))
    length = len(batch) - LOG_OVERHEAD
    HEADER.pack_into(batch, 0, *header._replace(batch_length=length))
    batch[HEADER_BYTES:] = payload
    write_crc(batch)
    return batch
