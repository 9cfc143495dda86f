"""Which logical types are valid, by the rules of Java's library 1.12. Pure.

An invalid logical type is no error. Its attributes are kept and have no meaning.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from odradek.registry.schemas.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroKind,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    Properties,
)

_KINDS = {
    "big-decimal": {AvroKind.BYTES},
    "date": {AvroKind.INT},
    "time-millis": {AvroKind.INT},
    "time-micros": {AvroKind.LONG},
    "timestamp-millis": {AvroKind.LONG},
    "timestamp-micros": {AvroKind.LONG},
    "timestamp-nanos": {AvroKind.LONG},
    "local-timestamp-millis": {AvroKind.LONG},
    "local-timestamp-micros": {AvroKind.LONG},
    "local-timestamp-nanos": {AvroKind.LONG},
}
_DECIMAL = "decimal"
_FIXED_SIZES = {"duration": 12, "uuid": 16}
_INT_MAX = (1 << 31) - 1

AttributedType: TypeAlias = AvroPrimitive | AvroArray | AvroMap | AvroEnum | AvroFixed | AvroRecord


def logical_attributes(type_: AttributedType) -> tuple[str, ...]:
    """Return the names of the attributes that a valid logical type has. Empty: it is not valid."""
    name = type_.properties.get("logicalType")
    if not isinstance(name, str):
        return ()
    if name == _DECIMAL:
        return _decimal_attributes(type_)
    if name in _FIXED_SIZES and isinstance(type_, AvroFixed):
        return ("logicalType",) if type_.size == _FIXED_SIZES[name] else ()
    kinds = {AvroKind.STRING} if name == "uuid" else _KINDS.get(name, set())
    return ("logicalType",) if type_.kind in kinds else ()


def _decimal_attributes(type_: AttributedType) -> tuple[str, ...]:
    precision = _integer(type_.properties, "precision", absent=0)
    scale = _integer(type_.properties, "scale", absent=0)
    if precision is None or scale is None:
        return ()
    if not (0 < precision <= _precision_max(type_) and 0 <= scale <= precision):
        return ()
    return ("logicalType", "precision", "scale") if scale else ("logicalType", "precision")


def _precision_max(type_: AttributedType) -> int:
    if isinstance(type_, AvroFixed):
        return math.floor(math.log10(2) * (8 * type_.size - 1))
    return _INT_MAX if type_.kind is AvroKind.BYTES else 0


def _integer(properties: Properties, name: str, absent: int) -> int | None:
    value = properties.get(name, absent)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _INT_MAX:
        return None
    return value
