"""Control batches: the markers that end a transaction in a partition.

A marker is a batch of one record with the attributes transactional and control, the producer's id
and epoch, and no sequence. Key: int16 version 0, int16 type, 0 abort or 1 commit. Value: int16
version 0, int32 epoch of the transaction coordinator (``ControlRecordType``,
``EndTransactionMarker``). A later version of the value may be longer.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from odradek.records.batch import Buffer
from odradek.records.record import CorruptRecord, Record, build_batch, iter_records

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """The outcome of a transaction, and the epoch of the coordinator that decided it."""

    committed: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int, producer_epoch: int, marker: EndTransactionMarker, timestamp_ms: int
) -> bytearray:
    """Build the control batch of `marker`."""
    key = _KEY.pack(0, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(key, value)],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Return the marker in a control batch.

    The result is None for control records of another type, and for a batch that compaction has
    emptied.
    """
    try:
        record = next(iter_records(batch), None)
        if record is None or record.key is None or record.value is None:
            return None
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value)
    except (CorruptRecord, struct.error):
        return None
    return EndTransactionMarker(kind == COMMIT, coordinator_epoch)
