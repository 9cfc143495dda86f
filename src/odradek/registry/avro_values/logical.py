"""Logical types of Avro, with their JSON values. Pure.

Output follows Avro's JSON encoding, which knows no logical types: dates and times are numbers. Two
logical types differ, because their bytes are not readable: decimals and UUIDs. Input also accepts
dates and times as text.

| logical type | output | input |
|---|---|---|
| decimal | "12.34" | "12.34" or a number |
| uuid | "6f2c..." | the same |
| date | number of days | number, or "2026-11-27" |
| time-millis, time-micros | number | number, or "10:03:43.5" |
| timestamp-millis, -micros, -nanos | number | number, or "2026-11-27T10:03:43.5Z" |
| local-timestamp-millis, -micros, -nanos | number | number, or "2026-11-27T10:03:43.5" |

A logical type with invalid properties is ignored, as Avro's specification says. So are others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from uuid import UUID

from odradek.registry.avro_values.binary import Reader, Writer
from odradek.registry.avro_values.types import AvroType, Bytes, Fixed, String, mismatch
from odradek.registry.codec_errors import InvalidValue, UndecodableValue

PRECISION_MAX = 4000
"""Largest precision of a decimal. A schema with a larger one is read as plain bytes."""

UNSCALED_BITS_MAX = 13_288
"""Largest number of bits of an unscaled number, for `PRECISION_MAX` digits."""

_UUID_BYTES = 16
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a local time
_MICROSECOND = timedelta(microseconds=1)
# Larger than the digits of a decimal, so that no operation rounds.
_CONTEXT = Context(prec=3 * PRECISION_MAX)

_MILLIS, _MICROS, _NANOS = 1_000, 1_000_000, 1_000_000_000
_TOO_FINE = re.compile(r"[.,]\d{7}")


class TextLogical(AvroType):
    """A number that input may also write as text, such as a date."""

    def __init__(self, base: AvroType, parse: Callable[[str], int]) -> None:
        self.branch = base.branch
        self._base = base
        self._parse = parse

    def read(self, reader: Reader) -> object:
        return self._base.read(reader)

    def write(self, value: object, writer: Writer) -> None:
        if isinstance(value, str):
            try:
                value = self._parse(value)
            except (ValueError, OverflowError) as error:
                raise InvalidValue(f"{value!r}: {error}") from None
        self._base.write(value, writer)


class DecimalType(AvroType):
    """A decimal over bytes or fixed: the unscaled number in two's complement, big endian."""

    def __init__(self, base: Bytes | Fixed, precision: int, scale: int) -> None:
        self.branch = base.branch
        self.base = base
        self._precision = precision
        self._scale = scale

    def read(self, reader: Reader) -> str:
        data = self.base.read_bytes(reader)
        return self.from_bytes(data)

    def from_bytes(self, data: bytes) -> str:
        """Return the text of an unscaled number."""
        unscaled = int.from_bytes(data, "big", signed=True)
        if unscaled.bit_length() > UNSCALED_BITS_MAX:
            raise UndecodableValue(f"a decimal of {len(data)} bytes")
        return _decimal_text(unscaled, self._scale)

    def write(self, value: object, writer: Writer) -> None:
        if writer.as_default:
            self.base.write(value, writer)
        else:
            self.base.write_bytes(self.to_bytes(value), writer)

    def to_bytes(self, value: object) -> bytes:
        """Return the unscaled number of a JSON value."""
        unscaled = self._unscaled(_decimal(value))
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        if isinstance(self.base, Fixed):
            if size > self.base.size:
                raise mismatch(value, f"a decimal of {self.base.size} bytes")
            size = self.base.size
        return unscaled.to_bytes(size, "big", signed=True)

    def _unscaled(self, number: Decimal) -> int:
        if number and number.adjusted() >= self._precision - self._scale:
            raise mismatch(number, f"a decimal of {self._precision} digits")
        if number and number.adjusted() < -self._scale:
            raise mismatch(number, f"a decimal with {self._scale} digits after the point")
        scaled = _CONTEXT.scaleb(number, self._scale) if number else Decimal(0)
        if scaled != scaled.to_integral_value(context=_CONTEXT):
            raise mismatch(number, f"a decimal with {self._scale} digits after the point")
        return int(scaled)


class FixedUuid(AvroType):
    """A UUID over 16 bytes."""

    def __init__(self, base: Fixed) -> None:
        self.branch = base.branch
        self._base = base

    def read(self, reader: Reader) -> str:
        return str(UUID(bytes=self._base.read_bytes(reader)))

    def write(self, value: object, writer: Writer) -> None:
        if writer.as_default:
            self._base.write(value, writer)
        else:
            self._base.write_bytes(_uuid(value).bytes, writer)


class StringUuid(AvroType):
    """A UUID over a string. Output does not check it."""

    def __init__(self, base: String) -> None:
        self.branch = base.branch
        self._base = base

    def read(self, reader: Reader) -> str:
        return self._base.read(reader)

    def write(self, value: object, writer: Writer) -> None:
        if not writer.as_default:
            _uuid(value)
        self._base.write(value, writer)


def logical(base: AvroType, schema: Mapping[str, object]) -> AvroType:
    """Return the type of a schema with a logical type, or `base` if it is to be ignored."""
    name = schema.get("logicalType")
    if not isinstance(name, str):
        return base
    if name == "decimal" and isinstance(base, Bytes | Fixed):
        return _decimal_type(base, schema.get("precision"), schema.get("scale", 0))
    if name == "uuid":
        return _uuid_type(base)
    parser = _PARSERS.get((base.branch, name))
    return base if parser is None else TextLogical(base, parser)


def _decimal_type(base: Bytes | Fixed, precision: object, scale: object) -> AvroType:
    if not isinstance(precision, int) or not isinstance(scale, int):
        return base
    if not 0 <= scale <= precision or not 1 <= precision <= PRECISION_MAX:
        return base
    return DecimalType(base, precision, scale)


def _uuid_type(base: AvroType) -> AvroType:
    if isinstance(base, String):
        return StringUuid(base)
    if isinstance(base, Fixed) and base.size == _UUID_BYTES:
        return FixedUuid(base)
    return base


def _decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise mismatch(value, "a decimal")
    try:
        number = Decimal(value) if not isinstance(value, float) else Decimal(repr(value))
    except (InvalidOperation, ValueError):
        raise mismatch(value, "a decimal") from None
    if not number.is_finite() or len(number.as_tuple().digits) > PRECISION_MAX:
        raise mismatch(value, "a decimal")
    return number


def _decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).zfill(scale + 1)
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def _uuid(value: object) -> UUID:
    if not isinstance(value, str):
        raise mismatch(value, "a UUID")
    try:
        return UUID(value)
    except ValueError:
        raise mismatch(value, "a UUID") from None


def _parse_date(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


def _time_parser(per_second: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = time.fromisoformat(_checked(text))
        if value.tzinfo is not None:
            raise ValueError("a time of day has no offset")
        since = timedelta(
            hours=value.hour,
            minutes=value.minute,
            seconds=value.second,
            microseconds=value.microsecond,
        )
        return _units(since, per_second)

    return parse


def _timestamp_parser(per_second: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = datetime.fromisoformat(_checked(text))
        if value.tzinfo is None:
            raise ValueError("a timestamp needs an offset, such as Z")
        return _units(value - _EPOCH.replace(tzinfo=UTC), per_second)

    return parse


def _local_timestamp_parser(per_second: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = datetime.fromisoformat(_checked(text))
        if value.tzinfo is not None:
            raise ValueError("a local timestamp has no offset")
        return _units(value - _EPOCH, per_second)

    return parse


def _checked(text: str) -> str:
    """Refuse digits of a second that Python would cut off."""
    if _TOO_FINE.search(text):
        raise ValueError("more than six digits of a second. Write the number instead")
    return text


def _units(since: timedelta, per_second: int) -> int:
    """Return a duration in units of 1/`per_second` seconds. Refuse to round it."""
    microseconds = since // _MICROSECOND
    units, rest = divmod(microseconds * per_second, _MICROS)
    if rest:
        raise ValueError("more digits than milliseconds")
    return units


_PARSERS: Mapping[tuple[str, str], Callable[[str], int]] = {
    ("int", "date"): _parse_date,
    ("int", "time-millis"): _time_parser(_MILLIS),
    ("long", "time-micros"): _time_parser(_MICROS),
    ("long", "timestamp-millis"): _timestamp_parser(_MILLIS),
    ("long", "timestamp-micros"): _timestamp_parser(_MICROS),
    ("long", "timestamp-nanos"): _timestamp_parser(_NANOS),
    ("long", "local-timestamp-millis"): _local_timestamp_parser(_MILLIS),
    ("long", "local-timestamp-micros"): _local_timestamp_parser(_MICROS),
    ("long", "local-timestamp-nanos"): _local_timestamp_parser(_NANOS),
}
