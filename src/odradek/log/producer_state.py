"""What a log knows of its idempotent producers: enough to refuse a batch it has and a gap.

For each producer id the epoch and the last five batches. Two files at the same offset:

``<offset>.snapshot``, Kafka's, big-endian: int16 version 1, uint32 CRC-32C of what follows it,
int32 count, and for each producer int64 id, int16 epoch, int32 last sequence, int64 last offset,
int32 offset delta, int64 timestamp, int32 coordinator epoch, int64 first offset of the open
transaction (-1). It holds only the last batch.

``<offset>.odradek-window``, ours, a name that Kafka passes over: int16 version 1, uint32 CRC-32C of
what follows it, int32 count of batches, and for each batch of the windows, oldest first, int64
producer id, int16 epoch, int32 first sequence, int32 last sequence, int64 last offset, int64
timestamp, int32 coordinator epoch. With it a start gets the whole window back and reads no log.

Both are written when a segment is rolled and at a clean stop. After a crash either may be torn: a
wrong CRC means that it does not exist, and an older one is loaded and the log replayed from there.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import (
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    increment_sequence,
)
from odradek.records.checksum import crc32c

SNAPSHOT_SUFFIX = ".snapshot"
WINDOW_SUFFIX = ".odradek-window"
WINDOW_BATCHES = 5
"""``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``: a client has at most five requests in flight."""

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_WINDOW_ENTRY = struct.Struct(">qhiiqqi")
NO_OFFSET = -1


class CorruptSnapshot(ValueError):
    """The file is torn or of another version."""


BatchTuple = tuple[int, int, int, int, int]
"""A `ProducerBatch` as it is kept: a bare tuple is made without a call on the hot path."""


class ProducerBatch(NamedTuple):
    """One batch in a window; `timestamp` is the batch's largest, in milliseconds."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer: `batches` newest last, `last_sequence` -1 when there is none in this epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_sequence",
        "last_timestamp",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[BatchTuple] = deque(maxlen=WINDOW_BATCHES)
        self.last_sequence = NO_SEQUENCE
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_OFFSET

    def set_epoch(self, epoch: int) -> None:
        """A new epoch begins with an empty window."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE


class ProducerState:
    """All producers of one log. Owned by the log; `check` before an append, `update` after it."""

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self.producers)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, offset_delta: int
    ) -> ProducerBatch | None:
        """None when the batch may be appended; the batch in the log when it is a duplicate.

        Raises INVALID_PRODUCER_EPOCH for an older epoch and OUT_OF_ORDER_SEQUENCE_NUMBER for a gap
        (``ProducerAppendInfo``). A producer that the log does not know may begin anywhere
        (KIP-360).
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        if epoch == entry.epoch:
            last_sequence = entry.last_sequence
            if first_sequence == last_sequence + 1:
                return None
            if first_sequence == 0 and last_sequence == INT32_MAX:
                return None
            duplicate = _find_duplicate(entry, first_sequence, offset_delta)
            if duplicate is not None:
                return duplicate
        self._refuse(producer_id, entry, epoch, first_sequence)
        return None

    def _refuse(self, pid: int, entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {pid} is smaller than the last one {entry.epoch}",
            )
        if epoch != entry.epoch and (first_sequence == 0 or entry.epoch < 0):
            return
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {pid}: {first_sequence} in epoch {epoch}, "
            f"the last was {entry.last_sequence} in epoch {entry.epoch}",
        )

    def update(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offset_delta: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Takes in a batch that is in the log now."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        elif epoch != entry.epoch:
            entry.set_epoch(epoch)
        last_sequence = first_sequence + offset_delta
        if last_sequence > INT32_MAX:
            last_sequence -= INT32_MAX + 1
        entry.last_sequence = last_sequence
        entry.last_timestamp = timestamp
        entry.batches.append((first_sequence, last_sequence, last_offset, offset_delta, timestamp))

    def replay(self, header: BatchHeader) -> None:
        """Takes in a batch found in the log, without refusing anything."""
        if header.producer_id < 0:
            return
        if header.is_control:
            entry = self.producers.setdefault(
                header.producer_id, ProducerEntry(header.producer_epoch)
            )
            entry.set_epoch(max(header.producer_epoch, entry.epoch))
            entry.last_timestamp = header.max_timestamp
            return
        self.update(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.last_offset,
            header.max_timestamp,
        )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers whose last batch is older than `expiration_ms`; how many."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.transaction_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        self.producers.clear()

    # -- files -------------------------------------------------------------------------------------

    def encode_snapshot(self) -> bytes:
        """Kafka's snapshot: the last batch of each producer."""
        entries = [_snapshot_entry(pid, entry) for pid, entry in self.producers.items()]
        return _seal(_COUNT.pack(len(entries)) + b"".join(entries))

    def encode_window(self) -> bytes:
        """Our window file: all batches that are remembered."""
        entries = [
            _WINDOW_ENTRY.pack(
                producer_id,
                entry.epoch,
                batch.first_sequence,
                batch.last_sequence,
                batch.last_offset,
                batch.timestamp,
                entry.coordinator_epoch,
            )
            for producer_id, entry in self.producers.items()
            for batch in map(ProducerBatch._make, entry.batches)
        ]
        return _seal(_COUNT.pack(len(entries)) + b"".join(entries))

    def load_snapshot(self, data: bytes) -> None:
        """Replaces the state with that of a snapshot; CorruptSnapshot, and nothing changed."""
        loaded: dict[int, ProducerEntry] = {}
        for pid, epoch, last, offset, delta, stamp, coordinator, txn in _entries(
            data, _SNAPSHOT_ENTRY
        ):
            entry = loaded[pid] = ProducerEntry(epoch)
            entry.coordinator_epoch, entry.transaction_first_offset = coordinator, txn
            entry.last_timestamp, entry.last_sequence = stamp, last
            if offset >= 0 and last >= 0:
                first = _decrement_sequence(last, delta)
                entry.batches.append(ProducerBatch(first, last, offset, delta, stamp))
        self.producers = loaded

    def load_window(self, data: bytes) -> None:
        """Puts the batches of a window file before what the snapshot of that offset gave."""
        windows: dict[int, deque[BatchTuple]] = {}
        for pid, epoch, first, last, offset, stamp, _ in _entries(data, _WINDOW_ENTRY):
            entry = self.producers.get(pid)
            if entry is None or entry.epoch != epoch:
                continue
            delta = (last - first) % (INT32_MAX + 1)
            window = windows.setdefault(pid, deque(maxlen=WINDOW_BATCHES))
            window.append(ProducerBatch(first, last, offset, delta, stamp))
        for pid, window in windows.items():
            self.producers[pid].batches = window


def _find_duplicate(
    entry: ProducerEntry, first_sequence: int, offset_delta: int
) -> ProducerBatch | None:
    last_sequence = increment_sequence(first_sequence, offset_delta)
    for batch in map(ProducerBatch._make, entry.batches):
        if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
            return batch
    return None


def _decrement_sequence(sequence: int, decrement: int) -> int:
    moved = sequence - decrement
    return moved if moved >= 0 else moved + INT32_MAX + 1


def _snapshot_entry(producer_id: int, entry: ProducerEntry) -> bytes:
    batch = ProducerBatch._make(entry.batches[-1]) if entry.batches else None
    return _SNAPSHOT_ENTRY.pack(
        producer_id,
        entry.epoch if entry.epoch >= 0 else NO_PRODUCER_EPOCH,
        entry.last_sequence,
        batch.last_offset if batch else NO_OFFSET,
        batch.offset_delta if batch else 0,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _seal(payload: bytes) -> bytes:
    return _PREFIX.pack(_VERSION, crc32c(payload)) + payload


def _entries(data: bytes, entry: struct.Struct) -> list[tuple[int, ...]]:
    """The entries behind prefix and count; CorruptSnapshot unless version, CRC and count fit."""
    payload = data[_PREFIX.size :]
    if len(payload) < _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no snapshot")
    version, crc = _PREFIX.unpack_from(data)
    (count,) = _COUNT.unpack_from(payload)
    if version != _VERSION or crc != crc32c(payload):
        raise CorruptSnapshot(f"version {version} or CRC {crc} is wrong")
    if len(payload) != _COUNT.size + count * entry.size:
        raise CorruptSnapshot(f"{count} entries do not fill {len(payload)} bytes")
    return list(entry.iter_unpack(payload[_COUNT.size :]))
