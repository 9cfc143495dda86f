"""The state of a log's producers: it detects duplicates, gaps and open transactions.

The state of a producer id is its epoch, its last five batches, the first offset of its open
transaction, and the epoch of the coordinator that ended its last one. Two files at the same offset
hold the state.

``<offset>.snapshot`` is Kafka's format, big-endian: int16 version 1, uint32 CRC-32C of the rest,
int32 count, and one entry for each producer, with its last batch only::

    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction (-1: none)

``<offset>.odradek-window`` is a format of this project, with a name that Kafka ignores: int16
version 1, uint32 CRC-32C of the rest, int32 number of batches, and one entry for each batch of the
windows, oldest first::

    int64 producer id, int16 epoch, int32 first sequence, int32 last sequence, int64 last offset,
    int64 timestamp, int32 coordinator epoch

With it a start restores the whole windows without reading the log.

Both files are written when a segment is rolled and at a clean stop. After a crash either may be
torn, missing or of an earlier state. An older pair is loaded then, and the log is replayed from
there.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import NO_OFFSET
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.log.state.verification import CLIENT, Origin, Verification, Verifications
from odradek.records.batch import (
    CONTROL_MASK,
    INT32_MAX,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    increment_sequence,
)
from odradek.records.checksum import crc32c
from odradek.records.control import EndTransactionMarker

SNAPSHOT_SUFFIX = ".snapshot"
WINDOW_SUFFIX = ".odradek-window"
WINDOW_BATCHES = 5
"""``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``: a client has at most five requests in flight."""

STRICT_MARKER_VERSION = 2
"""``transaction.version`` from which a marker's epoch is above its transaction's (KIP-890)."""

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
"""A transaction counts as late if it is open for this long beyond the maximum timeout."""

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_WINDOW_ENTRY = struct.Struct(">qhiiqqi")
NOTHING_EXPECTED = -2
"""Equal to no sequence, not even to the sequence -1 of a batch without one."""
_UNUSUAL_MASK = TRANSACTIONAL_MASK | CONTROL_MASK


class CorruptSnapshot(ValueError):
    """The file is torn or of another version."""


BatchTuple = tuple[int, int, int, int, int]
"""A stored `ProducerBatch`. On the hot path a bare tuple is created without a call."""


class ProducerBatch(NamedTuple):
    """One batch in a window. `timestamp` is the largest of the batch, in milliseconds."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class LateTransaction(NamedTuple):
    """An open transaction that should have ended long ago.

    `last_timestamp` is the largest timestamp of its last batch, in milliseconds.
    """

    producer_id: int
    start_offset: int
    last_timestamp: int


class ProducerEntry:
    """The state of one producer.

    Attributes:
        batches: The last batches, newest last.
        last_sequence: -1 if there is no batch in this epoch.
        expected: The sequence of the next batch. A batch of this epoch with this sequence, outside
            of transactions, can be recorded with `append`. All other batches need `check`.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "expected",
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
        self.expected = NOTHING_EXPECTED

    def set_epoch(self, epoch: int) -> None:
        """Start a new epoch with an empty window."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE
            self.expected = NOTHING_EXPECTED

    def append(
        self, first_sequence: int, offset_delta: int, last_offset: int, timestamp: int
    ) -> None:
        """Record the next batch of this epoch."""
        last_sequence = first_sequence + offset_delta
        if last_sequence > INT32_MAX:
            last_sequence -= INT32_MAX + 1
        self.last_sequence = last_sequence
        self.expected = last_sequence + 1
        self.last_timestamp = timestamp
        self.batches.append((first_sequence, last_sequence, last_offset, offset_delta, timestamp))


class ProducerStateManager:
    """All producers of one log. Owned by the log: `check` before an append, `update` after it.

    Attributes:
        ongoing: First offset -> producer id of the open transactions, in the order of the offsets.
        unreplicated: First offset -> offset of the marker, for transactions that ended but whose
            marker may be at or above the high watermark. In the order of the markers.
    """

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}
        self.unreplicated: dict[int, int] = {}
        # A value of `unreplicated` and its smallest key, or None if it is not known. A truncation
        # on another thread replaces the dictionary, possibly during a read.
        self._first_unreplicated: tuple[dict[int, int], int] | None = None
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self.producers)

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offset_delta: int,
        attributes: int = 0,
        origin: Origin | None = None,
    ) -> ProducerBatch | None:
        """Check a batch before its append (``ProducerAppendInfo``).

        A producer that is not in the state may start with any sequence (KIP-360). For transactional
        batches see `check_transactional`.

        Returns:
            None if the batch may be appended, or the original batch if it is a duplicate.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH for an older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for
                a gap, INVALID_TXN_STATE if the producer has a transaction open.
        """
        if attributes & TRANSACTIONAL_MASK:
            return self.check_transactional(
                producer_id, epoch, first_sequence, offset_delta, origin or CLIENT
            )
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        if epoch == entry.epoch:
            if first_sequence == entry.expected:
                return None
            duplicate = _find_duplicate(entry, first_sequence, offset_delta)
            if duplicate is not None:
                return duplicate
        self._refuse(producer_id, entry, epoch, first_sequence)
        if entry.transaction_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id}",
            )
        return None

    def _refuse(self, pid: int, entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {pid} is smaller than the last one {entry.epoch}",
            )
        if epoch == entry.epoch:
            last = entry.last_sequence
            if first_sequence == last + 1 or (first_sequence == 0 and last == INT32_MAX):
                return
        elif first_sequence == 0 or entry.epoch < 0:
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
        attributes: int = 0,
        origin: Origin | None = None,
    ) -> None:
        """Record a batch that was appended to the log."""
        if origin is not None and origin.marker is not None:
            self.end_transaction(producer_id, epoch, origin.marker, last_offset, timestamp)
            return
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        elif epoch != entry.epoch:
            entry.set_epoch(epoch)
        entry.append(first_sequence, offset_delta, last_offset, timestamp)
        if attributes & TRANSACTIONAL_MASK or first_sequence < 0:
            self._update_unusual(producer_id, entry, attributes)

    def replay(
        self, header: BatchHeader, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        """Record a batch from the log without checks. Return the transaction it aborted, if any.

        `marker` is the content of a control batch, or None if it is of another type.
        """
        pid, epoch = header.producer_id, header.producer_epoch
        if pid < 0 or (header.is_control and marker is None):
            return None
        if marker is not None:
            aborted = None if marker.committed else self.aborted_by(pid, header.base_offset)
            self.end_transaction(pid, epoch, marker, header.base_offset, header.max_timestamp)
            return aborted
        self.update(
            pid,
            epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.last_offset,
            header.max_timestamp,
            header.attributes,
        )
        return None

    def replay_run(
        self,
        headers: Sequence[BatchHeader],
        markers: Mapping[int, EndTransactionMarker],
        first: int,
    ) -> None:
        """Record batches as `replay` does.

        Args:
            headers: The batches, in order.
            markers: The contents of the control batches, by number.
            first: The number of the first batch.
        """
        producers = self.producers
        for at, header in enumerate(headers, first):
            if header.producer_id < 0:
                continue
            entry, sequence = producers.get(header.producer_id), header.base_sequence
            if (
                entry is None
                or entry.epoch != header.producer_epoch
                or header.attributes & _UNUSUAL_MASK
                or sequence < 0
            ):
                self.replay(header, markers.get(at))
                continue
            delta = header.last_offset_delta
            entry.append(sequence, delta, header.base_offset + delta, header.max_timestamp)

    # -- transactions ------------------------------------------------------------------------------

    def has_ongoing(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an open transaction in this log and epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == epoch

    def check_transactional(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        offset_delta: int,
        origin: Origin,
    ) -> ProducerBatch | None:
        """Check a marker, or a transactional batch of a client or coordinator, as `check` does.

        A coordinator's batch has no sequence (-1) and is never a duplicate. The rules are those in
        ``UnifiedLog.analyzeAndValidateProducerState``.

        Raises:
            KafkaError: As for `check`, and INVALID_TXN_STATE if no transaction is open in the
                producer's present epoch and the guard does not open one.
        """
        if origin.marker is not None:
            self.check_marker(producer_id, epoch, origin.marker, origin.transaction_version)
            return None
        entry = self.producers.get(producer_id)
        if entry is not None and epoch == entry.epoch and first_sequence >= 0:
            duplicate = _find_duplicate(entry, first_sequence, offset_delta)
            if duplicate is not None:
                return duplicate
        if entry is not None and epoch < entry.epoch:
            # Producers recover from this error, but not from the following one (KAFKA-19690).
            self._refuse(producer_id, entry, epoch, first_sequence)
        verifications = self.verifications
        if not self.has_ongoing(producer_id, epoch) and not verifications.passes(
            producer_id, origin.guard
        ):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
            )
        if first_sequence < 0:
            return None
        verification = verifications.get(producer_id)
        if verification is not None:
            _check_first(verification, entry, producer_id, first_sequence)
        if entry is not None:
            self._refuse(producer_id, entry, epoch, first_sequence)
        return None

    def check_marker(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, transaction_version: int
    ) -> None:
        """Check that a marker is not outdated.

        With transaction version 2 each transaction has its own epoch, and a marker carries the next
        one. A marker with the epoch of the open transaction belongs to an earlier transaction.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        open_now = entry.transaction_first_offset >= 0
        if epoch < entry.epoch or (
            transaction_version >= STRICT_MARKER_VERSION and epoch == entry.epoch and open_now
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of the marker for producer {producer_id} is behind the epoch "
                f"{entry.epoch} of its last batch",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {producer_id}: "
                f"{marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def _update_unusual(self, producer_id: int, entry: ProducerEntry, attributes: int) -> None:
        """Complete `update` for a batch that is transactional or has no sequence."""
        entry.expected = NOTHING_EXPECTED
        first_sequence, _, last_offset, offset_delta, timestamp = entry.batches[-1]
        if first_sequence < 0:
            entry.last_sequence = NO_SEQUENCE
            entry.batches[-1] = (NO_SEQUENCE, NO_SEQUENCE, last_offset, offset_delta, timestamp)
        if attributes & TRANSACTIONAL_MASK:
            self.verifications.end(producer_id)
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = last_offset - offset_delta
                self.ongoing[entry.transaction_first_offset] = producer_id

    def aborted_by(self, producer_id: int, marker_offset: int) -> AbortedTransaction | None:
        """Return the transaction that an abort marker at that offset ends.

        The result is None if the producer has no open transaction. The marker then has no index
        entry (``ProducerAppendInfo.appendEndTxnMarker``).
        """
        entry = self.producers.get(producer_id)
        if entry is None or entry.transaction_first_offset < 0:
            return None
        others = (first for first, pid in self.ongoing.items() if pid != producer_id)
        stable = next(others, marker_offset + 1)
        return AbortedTransaction(
            producer_id, entry.transaction_first_offset, marker_offset, stable
        )

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        marker: EndTransactionMarker,
        offset: int,
        timestamp: int,
    ) -> None:
        """Record a marker that was appended to the log at `offset`."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        entry.set_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset = entry.transaction_first_offset
        if first_offset >= 0:
            entry.transaction_first_offset = NO_OFFSET
            del self.ongoing[first_offset]
            self.unreplicated[first_offset] = offset
            first = self._first_unreplicated
            if first is not None and first[0] is self.unreplicated and first_offset < first[1]:
                self._first_unreplicated = self.unreplicated, first_offset
        self.verifications.end_transaction(producer_id, epoch)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction whose outcome readers may not know yet.

        The transaction is open, or its marker is not below the high watermark. Each read calls
        this. All ended transactions are visited only after a change: there may be thousands of them
        while a follower lags.
        """
        unreplicated = self.unreplicated
        ended = []
        for first, marker_offset in unreplicated.items():
            if marker_offset >= high_watermark:
                break
            ended.append(first)
        for first in ended:
            del unreplicated[first]
            self._first_unreplicated = None
        undecided = next(iter(self.ongoing), None)
        if not unreplicated:
            return undecided
        known = self._first_unreplicated
        if known is None or known[0] is not unreplicated:
            self._first_unreplicated = known = unreplicated, min(unreplicated)
        return known[1] if undecided is None else min(known[1], undecided)

    def late_transaction(
        self, now_ms: int, transaction_max_timeout_ms: int
    ) -> LateTransaction | None:
        """Return the oldest open transaction if it hangs, or None (KIP-664).

        It holds back the last stable offset. It hangs if its producer has not written for so long
        that the coordinator must have ended the transaction
        (``ProducerStateManager.hasLateTransaction``).
        """
        if not self.ongoing:
            return None
        start_offset, producer_id = next(iter(self.ongoing.items()))
        last_timestamp = self.producers[producer_id].last_timestamp
        age_max_ms = transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        if not 0 < last_timestamp < now_ms - age_max_ms:
            return None
        return LateTransaction(producer_id, start_offset, last_timestamp)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers whose last batch is at least `expiration_ms` old.

        Producers with an open transaction stay. Return the number of removed producers.
        """
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.transaction_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    # -- files -------------------------------------------------------------------------------------

    def encode_snapshot(self) -> bytes:
        """Encode Kafka's snapshot: the last batch of each producer."""
        entries = [_snapshot_entry(pid, entry) for pid, entry in self.producers.items()]
        return _seal(_COUNT.pack(len(entries)) + b"".join(entries))

    def encode_window(self) -> bytes:
        """Encode the window file: all batches of the windows."""
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
            if batch.first_sequence >= 0
        ]
        return _seal(_COUNT.pack(len(entries)) + b"".join(entries))

    def load_snapshot(self, data: bytes) -> None:
        """Replace the state by the content of a snapshot.

        Raises:
            CorruptSnapshot: The state is unchanged.
        """
        loaded: dict[int, ProducerEntry] = {}
        for pid, epoch, last, offset, delta, stamp, coordinator, txn in _entries(
            data, SNAPSHOT_ENTRY
        ):
            entry = loaded[pid] = ProducerEntry(epoch)
            entry.coordinator_epoch, entry.transaction_first_offset = coordinator, txn
            entry.last_timestamp, entry.last_sequence = stamp, last
            if offset >= 0:
                first = _decrement_sequence(last, delta) if last >= 0 else NO_SEQUENCE
                entry.batches.append(ProducerBatch(first, last, offset, delta, stamp))
        self.producers = loaded
        open_since = [(e.transaction_first_offset, pid) for pid, e in loaded.items()]
        self.ongoing = dict(sorted(each for each in open_since if each[0] >= 0))
        self.unreplicated, self._first_unreplicated = {}, None

    def replace_by(self, loaded: ProducerStateManager) -> None:
        """Replace the producers by the loaded ones. Open verifications stay."""
        self.producers = loaded.producers
        self.ongoing = loaded.ongoing
        self.unreplicated, self._first_unreplicated = loaded.unreplicated, None

    def use_windows(self, replayed: ProducerStateManager) -> None:
        """Use the windows of another state for the producers that have the same epoch."""
        for producer_id, entry in replayed.producers.items():
            known = self.producers.get(producer_id)
            if known is not None and known.epoch == entry.epoch and entry.batches:
                known.batches = entry.batches

    def load_window(self, data: bytes) -> None:
        """Replace the windows of the loaded snapshot by the batches of the window file.

        Raises:
            CorruptSnapshot: The file is torn, or it is of another state than the snapshot: a power
                cut kept an older file of the same name. The state is unchanged.
        """
        windows: dict[int, deque[BatchTuple]] = {}
        for pid, epoch, first, last, offset, stamp, _ in _entries(data, _WINDOW_ENTRY):
            entry = self.producers.get(pid)
            if entry is None or entry.epoch != epoch:
                continue
            delta = (last - first) % (INT32_MAX + 1)
            window = windows.setdefault(pid, deque(maxlen=WINDOW_BATCHES))
            window.append(ProducerBatch(first, last, offset, delta, stamp))
        sequenced = {pid: e for pid, e in self.producers.items() if e.last_sequence >= 0}
        for pid, entry in sequenced.items():
            if pid not in windows or windows[pid][-1][:4] != entry.batches[-1][:4]:
                raise CorruptSnapshot(f"the window of producer {pid} is not that of the snapshot")
        for pid, entry in sequenced.items():
            entry.batches = windows[pid]


def _check_first(
    verification: Verification, entry: ProducerEntry | None, producer_id: int, first_sequence: int
) -> None:
    """Raise OUT_OF_ORDER_SEQUENCE_NUMBER if a batch is not the first one of its transaction."""
    expected = verification.lowest_sequence
    if verification.epoch_bump and (entry is None or not entry.batches):
        expected = 0
    if first_sequence > expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {producer_id}: {first_sequence}, before "
            f"{expected} was appended",
        )


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
    return SNAPSHOT_ENTRY.pack(
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
    """Return the entries after prefix and count.

    Raises:
        CorruptSnapshot: The version, the CRC or the count is wrong.
    """
    payload = data[_PREFIX.size :]
    if len(payload) < _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too short for a snapshot")
    version, crc = _PREFIX.unpack_from(data)
    (count,) = _COUNT.unpack_from(payload)
    if version != _VERSION or crc != crc32c(payload):
        raise CorruptSnapshot(f"version {version} or CRC {crc} is wrong")
    if len(payload) != _COUNT.size + count * entry.size:
        raise CorruptSnapshot(f"{count} entries do not fill {len(payload)} bytes")
    return list(entry.iter_unpack(payload[_COUNT.size :]))
