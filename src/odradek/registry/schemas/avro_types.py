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
    """A record, or an error of a protocol, which is a record with another keyword.

    `is_open` is set until the fields have been read.
    """

    name: AvroName
    doc: str | None
    is_error: bool
    aliases: tuple[AvroName, ...]
    properties: Properties
    fields: tuple[AvroField, ...] = ()
    by_name: dict[str, AvroField] = field(default_factory=dict)
    is_open: bool = True
    kind: AvroKind = AvroKind.RECORD


@dataclass(slots=True, eq=False)
class AvroReference:
    """A use of a name before its definition. `target` is set when the text has been parsed."""

    full_name: str
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
