"""Confluent's wire format: the schema id of an encoded key or value. Pure.

A record names its schema in a prefix of the encoded bytes, or in a header of the record::

    prefix    0 (1 byte), id (4 bytes, big endian), [message indexes], data
    header    1 (1 byte), guid (16 bytes), [message indexes]

The headers are ``__key_schema_id`` and ``__value_schema_id``. Both forms may occur in both places.
Message indexes exist for Protobuf only. They lead from the file to the message type: the index of a
message in the file, then of a nested message in it, and so on. They are written as zigzag varints,
their number first. The indexes (0), the first message, are written as the single byte 0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

MAGIC_ID = 0
"""First byte before an id."""

MAGIC_GUID = 1
"""First byte before a guid."""

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

INDEXES_MAX = 100
"""Largest number of message indexes, which is the depth of nested message types."""

_VARINT_BYTES_MAX = 5
_INDEX_MAX = 2**31 - 1
_ID = struct.Struct(">I")
_FIRST_MESSAGE = (0,)

SchemaName = int | UUID
"""The id or the guid of a schema."""


class NotFramed(Exception):
    """Bytes do not begin with a schema id. The message says why."""


@dataclass(frozen=True, slots=True)
class Framed:
    """An encoded key or value, separated from the name of its schema.

    Attributes:
        schema: Id or guid.
        after: The bytes after the id or guid.
        payload: The data, if the schema is named in a header. None: the data is in `after`.
    """

    schema: SchemaName
    after: bytes
    payload: bytes | None = None

    @property
    def data(self) -> bytes:
        """The data of a kind without message indexes."""
        return self.after if self.payload is None else self.payload

    def message(self) -> tuple[tuple[int, ...], bytes]:
        """Return the message indexes and the data of a Protobuf message.

        Raises:
            NotFramed: The indexes are invalid.
        """
        indexes, end = _read_indexes(self.after)
        return indexes, self.after[end:] if self.payload is None else self.payload


def read_frame(data: bytes, header: bytes | None) -> Framed:
    """Separate an encoded key or value from the name of its schema.

    Args:
        data: The key or value.
        header: The value of the record's header for it, or None.

    Raises:
        NotFramed: The name is missing or truncated.
    """
    if header is not None:
        schema, end = _read_name(header)
        return Framed(schema, header[end:], data)
    schema, end = _read_name(data)
    return Framed(schema, data[end:])


def has_prefix(data: bytes) -> bool:
    """Return whether bytes may begin with a schema id."""
    return len(data) > _ID.size and data[0] in (MAGIC_ID, MAGIC_GUID)


def write_prefix(id_: int) -> bytes:
    """Return the prefix for a schema id, without message indexes."""
    return bytes([MAGIC_ID]) + _ID.pack(id_)


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the message indexes as they follow the prefix."""
    if tuple(indexes) == _FIRST_MESSAGE:
        return b"\x00"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def _read_name(data: bytes) -> tuple[SchemaName, int]:
    if not data:
        raise NotFramed("it is empty, and has no schema id")
    size = {MAGIC_ID: 4, MAGIC_GUID: 16}.get(data[0])
    if size is None:
        raise NotFramed(f"it has no schema id: the first byte is {data[0]}, not 0")
    name = data[1 : 1 + size]
    if len(name) < size:
        raise NotFramed(f"it is {len(data)} bytes long, too short for a schema id")
    schema = _ID.unpack(name)[0] if data[0] == MAGIC_ID else UUID(bytes=name)
    return schema, 1 + size


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    count, end = _read_varint(data, 0)
    if count == 0:
        return _FIRST_MESSAGE, end
    if not 0 < count <= INDEXES_MAX:
        raise NotFramed(f"it has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, end = _read_varint(data, end)
        if index < 0:
            raise NotFramed(f"it has the message index {index}")
        indexes.append(index)
    return tuple(indexes), end


def _read_varint(data: bytes, start: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(data[start : start + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), start + number + 1
    raise NotFramed("its message indexes are truncated")


def _zigzag(value: int) -> bytes:
    if not 0 <= value <= _INDEX_MAX:
        raise ValueError(f"{value} is not a message index")
    rest = value << 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
