"""The types of an Avro schema. Pure.

A named type is one object for each definition in the text, and every use of its name is that same
object. A use before the definition is an `AvroReference`, so types may be recursive. The objects
are not changed after the schema has been parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from odradek.registry.schemas.avro_json import Json


class AvroKind(StrEnum):
    """The kinds of types, by their names in schemas. Messages have the names in capitals."""

    RECORD = "record"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    FIXED = "fixed"
    STRING = "string"
    BYTES = "bytes"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NULL = "null"


PRIMITIVES = {
    kind.value: kind
    for kind in (
        AvroKind.STRING,
        AvroKind.BYTES,
        AvroKind.INT,
        AvroKind.LONG,
        AvroKind.FLOAT,
        AvroKind.DOUBLE,
        AvroKind.BOOLEAN,
        AvroKind.NULL,
    )
}
"""The primitive kinds by name."""

Properties: TypeAlias = "dict[str, Json]"
"""Attributes without a meaning in Avro's specification, and those of logical types."""


class FieldOrder(StrEnum):
    """How a field takes part in the order of records."""

    ASCENDING = "ascending"
    DESCENDING = "descending"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class AvroName:
    """The name of a type. `space` is its namespace, None for the null namespace."""

    name: str
    space: str | None

    @property
    def full(self) -> str:
        """The name with its namespace."""
        return self.name if self.space is None else f"{self.space}.{self.name}"

    def qualified(self, namespace: str | None) -> str:
        """Return the name as a text in this namespace uses it."""
        is_short = self.space is not None and self.space == namespace
        return self.name if is_short and self.name not in _KIND_NAMES else self.full


_KIND_NAMES = frozenset(kind.value for kind in AvroKind)


@dataclass(slots=True, eq=False)
class AvroPrimitive:
    """A type without parts. Each use of a primitive type is an object of its own."""

    kind: AvroKind
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AvroArray:
    """A list of items of one type."""

    items: AvroType
    properties: Properties
    kind: AvroKind = AvroKind.ARRAY


@dataclass(slots=True, eq=False)
class AvroMap:
    """A map from strings to values of one type."""

    values: AvroType
    properties: Properties
    kind: AvroKind = AvroKind.MAP


@dataclass(slots=True, eq=False)
class AvroUnion:
    """One of several types."""

    branches: tuple[AvroType, ...]
    kind: AvroKind = AvroKind.UNION


@dataclass(slots=True, eq=False)
class AvroEnum:
    """One of several symbols. `default` replaces an unknown symbol, None: it has no default."""

    name: AvroName
    doc: str | None
    symbols: tuple[str, ...]
    default: str | None
    aliases: tuple[AvroName, ...]
    properties: Properties
    kind: AvroKind = AvroKind.ENUM


@dataclass(slots=True, eq=False)
class AvroFixed:
    """A fixed number of bytes."""

    name: AvroName
    doc: str | None
    size: int
    aliases: tuple[AvroName, ...]
    properties: Properties
    kind: AvroKind = AvroKind.FIXED


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record. `default` has a meaning if `has_default` is set: it may be null."""

    name: str
    position: int
    type: AvroType
    doc: str | None
    has_default: bool
    default: Json
    order: FieldOrder
    aliases: tuple[str, ...]
    properties: Properties


@dataclass(slots=True, eq=False)
class AvroRecord:
    """A record, or an error of a protocol, which is a record with another keyword."""

    name: AvroName
    doc: str | None
    is_error: bool
    aliases: tuple[AvroName, ...]
    properties: Properties
    fields: tuple[AvroField, ...] = ()
    by_name: dict[str, AvroField] = field(default_factory=dict)
    kind: AvroKind = AvroKind.RECORD


@dataclass(slots=True, eq=False)
class AvroReference:
    """A use of a name before its definition. `target` is set when the text has been parsed."""

    full_name: str
    name: str
    target: NamedType | None = None


NamedType: TypeAlias = AvroRecord | AvroEnum | AvroFixed
NAMED_TYPES = (AvroRecord, AvroEnum, AvroFixed)

DefinedType: TypeAlias = AvroPrimitive | AvroArray | AvroMap | AvroUnion | NamedType
"""A type that is not a reference."""

AvroType: TypeAlias = DefinedType | AvroReference


def defined(used: AvroType) -> DefinedType:
    """Return the type that a type or a reference stands for."""
    if not isinstance(used, AvroReference):
        return used
    assert used.target is not None, f"The reference to {used.full_name} was not resolved"
    return used.target


def union_name(branch: AvroType) -> str:
    """Return the name of which a union may have only one branch."""
    found = defined(branch)
    return found.name.full if isinstance(found, NAMED_TYPES) else found.kind.value


def alias_names(named: NamedType) -> tuple[str, ...]:
    """Return the full names of a type's aliases.

    As in Java, an alias in the null namespace of a type with a namespace begins with a dot. So it
    never equals the name of another type.
    """
    return tuple(
        f".{alias.name}" if alias.space is None and named.name.space is not None else alias.full
        for alias in named.aliases
    )


def same(first: AvroType, second: AvroType) -> bool:
    """Whether Java's `Schema.equals` holds: documents, aliases and enum defaults do not count."""
    pending = [(first, second)]
    seen: set[tuple[int, int]] = set()
    while pending:
        one, other = (_target(each) for each in pending.pop())
        if one is other or (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        parts = _parts_to_compare(one, other)
        if parts is None:
            return False
        pending.extend(parts)
    return True


def _target(used: AvroType) -> AvroType:
    if isinstance(used, AvroReference) and used.target is not None:
        return used.target
    return used


Pairs: TypeAlias = list[tuple[AvroType, AvroType]]


def _parts_to_compare(one: AvroType, other: AvroType) -> Pairs | None:
    """The parts that must be the same if the two types are. None: the two types differ."""
    if isinstance(one, AvroReference) or isinstance(other, AvroReference):
        return None
    if isinstance(one, AvroUnion) or isinstance(other, AvroUnion):
        return _union_parts(one, other)
    if one.kind is not other.kind or one.properties != other.properties:
        return None
    if isinstance(one, AvroArray) and isinstance(other, AvroArray):
        return [(one.items, other.items)]
    if isinstance(one, AvroMap) and isinstance(other, AvroMap):
        return [(one.values, other.values)]
    if isinstance(one, AvroEnum) and isinstance(other, AvroEnum):
        return [] if (one.name, one.symbols) == (other.name, other.symbols) else None
    if isinstance(one, AvroFixed) and isinstance(other, AvroFixed):
        return [] if (one.name, one.size) == (other.name, other.size) else None
    if isinstance(one, AvroRecord) and isinstance(other, AvroRecord):
        return _record_parts(one, other)
    return []


def _union_parts(one: DefinedType, other: DefinedType) -> Pairs | None:
    if not isinstance(one, AvroUnion) or not isinstance(other, AvroUnion):
        return None
    if len(one.branches) != len(other.branches):
        return None
    return list(zip(one.branches, other.branches, strict=True))


def _record_parts(one: AvroRecord, other: AvroRecord) -> Pairs | None:
    if one.name != other.name or len(one.fields) != len(other.fields):
        return None
    pairs: Pairs = []
    for mine, theirs in zip(one.fields, other.fields, strict=True):
        if _field_key(mine) != _field_key(theirs):
            return None
        pairs.append((mine.type, theirs.type))
    return pairs


def _field_key(one: AvroField) -> tuple[str, bool, Json, FieldOrder, Properties]:
    return one.name, one.has_default, one.default, one.order, one.properties
