"""Encoder of the records of coordinators, which have keys and values and no headers.

The timestamp delta of each record is 0. `batch_builder` makes the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.coordinator_result import Pair
from odradek.records.batch import HEADER_BYTES, write_varint


def _varint(number: int) -> bytes:
    if 64 <= number < 8192:  # two bytes, for example the numbers of most records of a long batch
        return bytes((number << 1 & 0x7F | 0x80, number >> 6))
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


_VARINTS = tuple(map(_varint, range(256)))
"""The varints of the small numbers, which nearly all fields of these records have."""
_KNOWN = len(_VARINTS)
_NO_VALUE = _varint(-1)


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
    value_size = _NO_VALUE
    if value is None:
        value = b""
    else:
        size = len(value)
        value_size = _VARINTS[size] if size < _KNOWN else _varint(size)
    body = b"".join(
        (
            b"\0\0",
            _VARINTS[number] if number < _KNOWN else _varint(number),
            _VARINTS[key_size] if key_size < _KNOWN else _varint(key_size),
            key,
            value_size,
            value,
            b"\0",
        )
    )
    length = len(body)
    return (_VARINTS[length] if length < _KNOWN else _varint(length)) + body
