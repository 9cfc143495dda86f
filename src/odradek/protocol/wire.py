"""Functions that compiled codecs call for the rare cases, and the texts of their errors.

Compiled codecs inline the frequent cases. They call this module for varints of more than one byte
and for tag sections that are not empty.

An unsigned varint has base 128, with the lowest group first and the top bit set on all bytes but
the last. It has at most five bytes. Flexible versions write a length as the varint of length + 1,
and null as 0. A tag section is a count, then tag, size and bytes of each field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from odradek.protocol.errors import MalformedMessage, TooManyElements, UnencodableMessage

ANY_LATER = 0x7FFF
"""The version up to which "3+" in a definition reaches."""

STRING_SIZE_MAX = 0x7FFF
UVARINT_MAX = 0x7FFF_FFFF

REQUEST_ELEMENTS_MAX = 200_000
"""Elements of all arrays and tagged fields of one request.

An element may be as small as two bytes, and costs a hundred bytes of memory and some microseconds
of the event loop. Without the limit a frame of 100 MB would delay other connections for minutes.
"""

TAGS_MAX = 127
"""Tagged fields in one section. No message of Kafka has a tenth of them."""


class Region(Protocol):
    """Bytes in a file. They have a length, and are sent without being read."""

    def __len__(self) -> int: ...

    def close(self) -> None: ...


Chunk: TypeAlias = bytes | bytearray | memoryview | Region
"""Type of the parts that an encoder appends. The message is the concatenation of its chunks."""

Append: TypeAlias = Callable[[Chunk], object]


def uvarint_rest(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Return the varint whose first byte `first` (>= 128) is before `pos`, and its end position."""
    byte = view[pos]
    if byte < 0x80:
        return first & 0x7F | byte << 7, pos + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    byte = view[pos + 1]
    if byte < 0x80:  # the length of nearly every batch ends here
        return value | byte << 14, pos + 2
    value |= (byte & 0x7F) << 14
    pos += 2
    for shift in (21, 28):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                raise MalformedMessage(f"varint of {value} is above 2^31 - 1")
            return value, pos
    raise MalformedMessage("varint of more than five bytes")


def uvarint_at(view: memoryview, pos: int) -> tuple[int, int]:
    """Return the varint at `pos` and the position after it."""
    first = view[pos]
    return (first, pos + 1) if first < 0x80 else uvarint_rest(view, pos + 1, first)


def uvarint(value: int) -> bytes:
    """Encode `value` (0 .. 2^31 - 1) as unsigned varint, with as many calls for any size."""
    if value < 1 << 7:
        return bytes((value,))
    low = value & 0x7F | 0x80
    if value < 1 << 14:
        return bytes((low, value >> 7))
    second = value >> 7 & 0x7F | 0x80
    if value < 1 << 21:
        return bytes((low, second, value >> 14))
    third = value >> 14 & 0x7F | 0x80
    if value < 1 << 28:
        return bytes((low, second, third, value >> 21))
    if value <= UVARINT_MAX:
        return bytes((low, second, third, value >> 21 & 0x7F | 0x80, value >> 28))
    raise UnencodableMessage(f"length of {value} is above 2^31 - 1")


def string_uvarint(value: int) -> bytes:
    """Encode a compact string's length + 1. Kafka rejects strings of more than 32767 bytes."""
    if value > STRING_SIZE_MAX + 1:
        raise UnencodableMessage(f"string of {value - 1} bytes is above {STRING_SIZE_MAX}")
    return uvarint(value)


def tag_count(view: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Return the count of a tag section that is not empty, checked against the remaining bytes."""
    count, pos = (first, pos) if first < 0x80 else uvarint_rest(view, pos, first)
    if count > TAGS_MAX or count * 2 > len(view) - pos:
        raise MalformedMessage(f"{count} tagged fields in {len(view) - pos} bytes")
    return count, pos


def tag_header(view: memoryview, pos: int) -> tuple[int, int, int]:
    """Return one tagged field's tag, the position of its bytes, and the position after them."""
    tag, pos = uvarint_at(view, pos)
    size, pos = uvarint_at(view, pos)
    if size > len(view) - pos:
        raise MalformedMessage(f"tag {tag} has {size} bytes, but only {len(view) - pos} remain")
    return tag, pos, pos + size


def skip_tags(view: memoryview, pos: int, first: int) -> int:
    """Skip a tag section of unknown fields, each by its declared size."""
    count, pos = tag_count(view, pos, first)
    for _ in range(count):
        _tag, _start, pos = tag_header(view, pos)
    return pos


def write_tags(append: Append, tags: Sequence[tuple[int, list[Chunk]]]) -> None:
    """Append a tag section. `tags` holds (tag, chunks) in ascending order of tags."""
    append(uvarint(len(tags)))
    for tag, chunks in tags:
        append(uvarint(tag) + uvarint(sum(map(len, chunks))))
        for chunk in chunks:
            append(chunk)


def null(name: str) -> MalformedMessage:
    return MalformedMessage(f"{name} is null but not nullable")


def too_long(name: str, length: int, remaining: int) -> MalformedMessage:
    return MalformedMessage(f"{name} has length {length}, but only {remaining} bytes remain")


def too_many(name: str) -> TooManyElements:
    return TooManyElements(
        f"the request has more than {REQUEST_ELEMENTS_MAX} elements, the first too many in {name}"
    )


def string_too_long(name: str, length: int) -> MalformedMessage:
    return MalformedMessage(f"{name} has {length} bytes, the limit is {STRING_SIZE_MAX}")


def tag_mismatch(name: str, stop: int, pos: int) -> MalformedMessage:
    return MalformedMessage(f"tagged field {name} ends at byte {pos}, its size announces {stop}")


def missing(name: str, version: int) -> UnencodableMessage:
    return UnencodableMessage(f"{name} is set but does not exist in version {version}")


def not_a_uuid(name: str, value: object) -> UnencodableMessage:
    return UnencodableMessage(f"{name} is not a uuid of 16 bytes: {value!r}")
