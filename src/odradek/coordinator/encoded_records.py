"""Encoder of the records of coordinators, which have keys and values and no headers.

The timestamp delta of each record is 0. `batch_builder` makes the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.coordinator_result import Pair
from odradek.records.batch import HEADER_BYTES, write_varint


def _varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


_VARINTS = tuple(map(_varint, range(256)))
"""The varints of the small numbers, which nearly all fields of these records have."""
_KNOWN = len(_VARINTS)


class EncodedRecords:
    """The records of one batch, encoded in several time slices before the batch is built.

    Attributes:
        batch: Room for the header, and the records. `build_coordinator_batch` builds one batch in
            it, without a copy of the records.
    """

    __slots__ = ("_count", "batch")

    def __init__(self) -> None:
        self.batch = bytearray(HEADER_BYTES)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pairs: Sequence[Pair]) -> None:
        """Encode the next records of the batch."""
        records = [encode_record(number, *pair) for number, pair in enumerate(pairs, self._count)]
        self.batch += b"".join(records)
        self._count += len(pairs)


def encode_record(number: int, key: bytes, value: bytes | None) -> bytes:
    """Return the record with offset delta `number`.

    It has no attributes and no headers, and its timestamp delta is 0.
    """
    key_size = len(key)
    size = -1 if value is None else len(value)
    if value is not None and number < _KNOWN and key_size < _KNOWN and size < _KNOWN:
        body = b"".join(
            (b"\0\0", _VARINTS[number], _VARINTS[key_size], key, _VARINTS[size], value, b"\0")
        )
    else:
        body = b"".join(
            (b"\0\0", _varint(number), _varint(key_size), key, _varint(size), value or b"", b"\0")
        )
    length = len(body)
    return (_VARINTS[length] if length < _KNOWN else _varint(length)) + body
