"""Primitive types of Avro, with their values in Avro's JSON encoding. Pure.

| Avro | JSON |
|---|---|
| null, boolean | null, true, false |
| int, long | number without a fraction |
| float, double | number, or "NaN", "Infinity", "-Infinity" |
| string, enum | string |
| bytes, fixed | string whose characters U+0000 to U+00FF are the bytes |
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from decimal import Decimal

from odradek.registry.avro_values.binary import Reader, Writer
from odradek.registry.codec_errors import InvalidValue, UndecodableValue

INT_BITS = 32
LONG_BITS = 64

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_FLOAT_DIGITS = (6, 7, 8, 9)
"""Nine digits distinguish all values of 32 bits. Most values need fewer."""
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SHOWN_MAX = 60
"""Number of characters of a value that an error shows."""


class AvroType(ABC):
    """A type of a schema. `branch` is its name as a branch of a union."""

    branch: str

    @abstractmethod
    def read(self, reader: Reader) -> object:
        """Return the JSON value of an encoded value.

        Raises:
            UndecodableValue: The bytes are not a value of this type.
        """

    @abstractmethod
    def write(self, value: object, writer: Writer) -> None:
        """Write a JSON value.

        Raises:
            InvalidValue: The value does not fit this type.
        """


def mismatch(value: object, expected: str) -> InvalidValue:
    """Return the error of a value that is not of the expected form."""
    shown = repr(value) if not isinstance(value, Decimal) else str(value)
    if len(shown) > SHOWN_MAX:
        shown = shown[:SHOWN_MAX] + "..."
    return InvalidValue(f"{shown} is not {expected}")


class Null(AvroType):
    """The value null, without bytes."""

    branch = "null"

    def read(self, reader: Reader) -> None:
        return None

    def write(self, value: object, writer: Writer) -> None:
        if value is not None:
            raise mismatch(value, "null")


class Boolean(AvroType):
    """One byte, 0 or 1."""

    branch = "boolean"

    def read(self, reader: Reader) -> bool:
        byte = reader.take(1)[0]
        if byte > 1:
            raise UndecodableValue(f"the byte {byte} for a boolean")
        return byte == 1

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, bool):
            raise mismatch(value, "true or false")
        writer.out.append(value)


class Integer(AvroType):
    """An int or a long."""

    def __init__(self, branch: str, bits: int) -> None:
        self.branch = branch
        self._min, self._max = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(self, reader: Reader) -> int:
        value = reader.long()
        if not self._min <= value <= self._max:
            raise UndecodableValue(f"the number {value} for an {self.branch}")
        return value

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise mismatch(value, "a number without a fraction")
        if not self._min <= value <= self._max:
            raise mismatch(value, f"in the range of {self.branch}")
        writer.long(value)


class Floating(AvroType):
    """A float or a double."""

    def __init__(self, branch: str, form: struct.Struct) -> None:
        self.branch = branch
        self._form = form

    def read(self, reader: Reader) -> float | str:
        (value,) = self._form.unpack(reader.take(self._form.size))
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return _shortest(value) if self._form is _FLOAT else float(value)

    def write(self, value: object, writer: Writer) -> None:
        try:
            writer.out += self._form.pack(_number(value))
        except OverflowError:
            raise mismatch(value, f"in the range of {self.branch}") from None


def _number(value: object) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise mismatch(value, "a number")
    return float(value)


def _shortest(value: float) -> float:
    """Return the number of the fewest digits that is the same value of 32 bits."""
    for digits in _FLOAT_DIGITS:
        shorter = float(f"{value:.{digits}g}")
        if _same_float(shorter, value):
            return shorter
    return value


def _same_float(shorter: float, value: float) -> bool:
    try:
        return bool(_FLOAT.unpack(_FLOAT.pack(shorter))[0] == value)
    except OverflowError:  # rounded up beyond the largest value
        return False


class String(AvroType):
    """UTF-8 after its length in bytes."""

    branch = "string"

    def read(self, reader: Reader) -> str:
        data = reader.take(reader.long())
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise UndecodableValue(f"a string is not UTF-8 ({error.reason})") from None

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, str):
            raise mismatch(value, "a string")
        try:
            writer.sized(value.encode())
        except UnicodeEncodeError:
            raise mismatch(value, "a string of Unicode characters") from None


def bytes_of(value: object) -> bytes:
    """Return the bytes of a JSON string of Avro's JSON encoding."""
    if not isinstance(value, str):
        raise mismatch(value, "a string of bytes")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise mismatch(value, "a string of the characters U+0000 to U+00FF") from None


class Bytes(AvroType):
    """Bytes after their length."""

    branch = "bytes"

    def read(self, reader: Reader) -> str:
        return self.read_bytes(reader).decode("latin-1")

    def write(self, value: object, writer: Writer) -> None:
        self.write_bytes(bytes_of(value), writer)

    def read_bytes(self, reader: Reader) -> bytes:
        return reader.take(reader.long())

    def write_bytes(self, data: bytes, writer: Writer) -> None:
        writer.sized(data)


class Fixed(AvroType):
    """A fixed number of bytes."""

    def __init__(self, name: str, size: int) -> None:
        self.branch = name
        self.size = size

    def read(self, reader: Reader) -> str:
        return self.read_bytes(reader).decode("latin-1")

    def write(self, value: object, writer: Writer) -> None:
        self.write_bytes(bytes_of(value), writer)

    def read_bytes(self, reader: Reader) -> bytes:
        return reader.take(self.size)

    def write_bytes(self, data: bytes, writer: Writer) -> None:
        if len(data) != self.size:
            raise InvalidValue(f"{len(data)} bytes instead of {self.size}")
        writer.out += data


class Enum(AvroType):
    """One of a list of symbols."""

    def __init__(self, name: str, symbols: list[str]) -> None:
        self.branch = name
        self._symbols = symbols
        self._numbers = {symbol: number for number, symbol in enumerate(symbols)}

    def read(self, reader: Reader) -> str:
        number = reader.long()
        if not 0 <= number < len(self._symbols):
            raise UndecodableValue(f"the symbol {number} of {self.branch}")
        return self._symbols[number]

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, str) or value not in self._numbers:
            raise mismatch(value, f"a symbol of {self.branch}: {', '.join(self._symbols)}")
        writer.long(self._numbers[value])


def primitive(name: str) -> AvroType | None:
    """Return the primitive type of a name, or None."""
    match name:
        case "null":
            return Null()
        case "boolean":
            return Boolean()
        case "int":
            return Integer(name, INT_BITS)
        case "long":
            return Integer(name, LONG_BITS)
        case "float":
            return Floating(name, _FLOAT)
        case "double":
            return Floating(name, _DOUBLE)
        case "string":
            return String()
        case "bytes":
            return Bytes()
    return None
