"""Avro's binary encoding of lengths, and the limits of a value. Pure.

An int, a long and a length are zigzag varints: the low seven bits first, and the high bit of a byte
says that another byte follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.registry.codec_errors import UndecodableValue

LONG_BYTES_MAX = 10
"""Largest number of bytes of a long."""

EMPTY_ITEMS_MAX = 1_000_000
"""Largest number of items of arrays and maps in a value, beyond one for each of its bytes.

Items without bytes, such as nulls, would otherwise fill the memory from a length of a few bytes.
"""

_LONG_BITS = 64


class Reader:
    """The position in an encoded value."""

    __slots__ = ("_data", "_items_left", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._items_left = len(data) + EMPTY_ITEMS_MAX

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            UndecodableValue: The value has fewer bytes, or `size` is negative.
        """
        end = self._position + size
        if size < 0 or end > len(self._data):
            left = len(self._data) - self._position
            raise UndecodableValue(f"a length of {size} bytes, but {left} bytes are left")
        found = self._data[self._position : end]
        self._position = end
        return found

    def long(self) -> int:
        """Return the next int or long."""
        value = 0
        encoded = self._data[self._position : self._position + LONG_BYTES_MAX]
        for number, byte in enumerate(encoded):
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                self._position += number + 1
                if value >> _LONG_BITS:
                    raise UndecodableValue("a number of more than 64 bits")
                return (value >> 1) ^ -(value & 1)
        reason = "more than 64 bits" if len(encoded) == LONG_BYTES_MAX else "no last byte"
        raise UndecodableValue(f"a number has {reason}")

    def blocks(self) -> Iterator[int]:
        """Yield the number of items of each block of an array or a map."""
        while (count := self.long()) != 0:
            if count < 0:  # the size of the block in bytes follows
                count = -count
                self.long()
            self._items_left -= count
            if self._items_left < 0:
                raise UndecodableValue(f"an array or map of {count} items")
            yield count

    def finish(self) -> None:
        """Raise UndecodableValue if bytes follow the value."""
        left = len(self._data) - self._position
        if left:
            raise UndecodableValue(f"{left} bytes follow the value")


class Writer:
    """The bytes of a value.

    Args:
        as_default: The values are defaults of a schema. Their form differs from Avro's JSON
            encoding: a value of a union has no name of a branch.
    """

    __slots__ = ("as_default", "out")

    def __init__(self, as_default: bool = False) -> None:
        self.as_default = as_default
        self.out = bytearray()

    def fork(self) -> Writer:
        """Return an empty writer of the same form."""
        return Writer(self.as_default)

    def long(self, value: int) -> None:
        rest = (value << 1) ^ (value >> 63)
        while rest >= 0x80:
            self.out.append(rest & 0x7F | 0x80)
            rest >>= 7
        self.out.append(rest)

    def sized(self, data: bytes) -> None:
        """Write bytes after their length."""
        self.long(len(data))
        self.out += data
