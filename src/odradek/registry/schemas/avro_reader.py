"""Builds the types of an Avro schema from its JSON, by the rules of Java's library 1.12. Pure.

Apache's library for Python is not used here, because its verdicts differ from Java's. It rejects a
name that is used before its definition, an enum or a fixed that is defined twice in the same way,
and a name without a namespace inside of a type with one. It accepts invalid defaults and two
branches of one name. It reads an empty namespace as the enclosing one.

Java accepts a record inside of a record of the same name, and replaces it by the outer one. Such a
schema is invalid here, because the replacement changes the schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from odradek.registry.recursion import Recursion, run
from odradek.registry.schemas.avro_defaults import DefaultValidator
from odradek.registry.schemas.avro_json import Json, load, shown
from odradek.registry.schemas.avro_types import (
    NAMED_TYPES,
    PRIMITIVES,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroKind,
    AvroMap,
    AvroName,
    AvroPrimitive,
    AvroRecord,
    AvroReference,
    AvroType,
    AvroUnion,
    FieldOrder,
    NamedType,
    Properties,
    union_name,
)
from odradek.registry.schemas.parsed import DEPTH_MAX, InvalidSchema

FIXED_BYTES_MAX = (1 << 31) - 9
"""Maximum size of a fixed: the longest array of bytes in Java."""

_TYPE_ATTRIBUTES = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_ENUM_ATTRIBUTES = _TYPE_ATTRIBUTES | {"default"}
_FIELD_ATTRIBUTES = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLOATING = {AvroKind.FLOAT, AvroKind.DOUBLE}
_JAVA_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A position in the JSON of a schema. `space` is the namespace of names there."""

    space: str | None = None
    path: str = ""
    depth: int = 0

    def below(self, token: str) -> _Place:
        """Return the place of the type under an attribute."""
        return _Place(self.space, f"{self.path}/{token}", self.depth + 1)

    def field_of(self, record: AvroName, position: int) -> _Place:
        """Return the place of a field, whose names are in the record's namespace."""
        return _Place(record.space, f"{self.path}/fields/{position}", self.depth)

    def fail(self, reason: str) -> NoReturn:
        """Raise InvalidSchema."""
        raise InvalidSchema(f"{reason} (at '{self.path or '/'}')")


class AvroReader:
    """Reads the text of a schema after those of its references.

    Args:
        strict: Names must be those of the specification and defaults must be valid. Java's parser
            has both settings, and Confluent's registry sets them for new schemas.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._definitions: dict[str, NamedType] = {}
        self._references: list[AvroReference] = []
        self._unions: list[tuple[AvroUnion, _Place]] = []
        self._fields: list[tuple[AvroField, _Place]] = []
        self._early_defaults = DefaultValidator()

    def read(self, text: str) -> AvroType:
        """Return the type of a text.

        Raises:
            InvalidSchema: The text is not an Avro schema.
        """
        self._early_defaults = DefaultValidator()
        root = run(self._type(load(text), _Place()))
        self._resolve_references()
        self._check_unions()
        if self._strict:
            self._check_defaults()
        self._fields.clear()
        if isinstance(root, NAMED_TYPES):
            return self._definitions[root.name.full]
        return root

    def _resolve_references(self) -> None:
        for reference in self._references:
            target = self._definitions.get(reference.full_name)
            if target is None:
                raise InvalidSchema(f"The type '{reference.full_name}' is not defined.")
            reference.target = target
        self._references.clear()

    def _check_unions(self) -> None:
        for union, place in self._unions:
            names: set[str] = set()
            for branch in union.branches:
                name = union_name(branch)
                if name in names:
                    place.fail(f"The union has two branches of the type '{name}'")
                names.add(name)
        self._unions.clear()

    def _check_defaults(self) -> None:
        validator = DefaultValidator()
        for each, place in self._fields:
            _check_default(each, validator, place)

    def _type(self, node: Json, place: _Place) -> Recursion[AvroType]:
        if place.depth > DEPTH_MAX:
            place.fail(f"The types are nested deeper than {DEPTH_MAX} levels")
        if isinstance(node, str):
            return self._named(node, place)
        if not isinstance(node, dict | list):
            place.fail(f"{shown(node)} is not a type")
        found: AvroType
        if isinstance(node, list):
            found = yield self._union(node, place)
        else:
            found = yield self._object(node, place)
        return found

    def _named(self, name: str, place: _Place) -> AvroType:
        if name in PRIMITIVES:
            return AvroPrimitive(PRIMITIVES[name])
        is_short = place.space is not None and "." not in name
        full = f"{place.space}.{name}" if is_short else name
        found = self._definitions.get(full) or self._definitions.get(name)
        if found is not None:
            return found
        reference = AvroReference(full)
        self._references.append(reference)
        return reference

    def _union(self, nodes: list[Json], place: _Place) -> Recursion[AvroType]:
        branches: list[AvroType] = []
        for position, node in enumerate(nodes):
            branch: AvroType = yield self._type(node, place.below(str(position)))
            if isinstance(branch, AvroUnion):
                place.fail("A union is a branch of a union")
            branches.append(branch)
        union = AvroUnion(tuple(branches))
        self._unions.append((union, place))
        return union

    def _object(self, node: dict[str, Json], place: _Place) -> Recursion[AvroType]:
        name = node.get("type")
        if not isinstance(name, str):
            place.fail(f"No type: {shown(node)}")
        if name in PRIMITIVES:
            return AvroPrimitive(PRIMITIVES[name], _properties(node, _TYPE_ATTRIBUTES))
        if name == AvroKind.ENUM:
            return self._enum(node, place)
        if name == AvroKind.FIXED:
            return self._fixed(node, place)
        if name not in _NESTED:
            return self._named(name, place)
        found: AvroType
        if name in (AvroKind.ARRAY, AvroKind.MAP):
            found = yield self._collection(node, AvroKind(name), place)
        else:
            found = yield self._record(node, name != AvroKind.RECORD, place)
        return found

    def _collection(
        self, node: dict[str, Json], kind: AvroKind, place: _Place
    ) -> Recursion[AvroType]:
        attribute = "items" if kind is AvroKind.ARRAY else "values"
        if attribute not in node:
            place.fail(f"The {kind} has no {attribute}: {shown(node)}")
        part: AvroType = yield self._type(node[attribute], place.below(attribute))
        properties = _properties(node, _TYPE_ATTRIBUTES)
        if kind is AvroKind.ARRAY:
            return AvroArray(part, properties)
        return AvroMap(part, properties)

    def _record(self, node: dict[str, Json], is_error: bool, place: _Place) -> Recursion[AvroType]:
        name = self._name(node, place)
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            place.fail(f"The record {name.full} has no fields")
        aliases = self._type_aliases(node, name, place)
        properties = _properties(node, _TYPE_ATTRIBUTES)
        record = AvroRecord(name, _text(node, "doc"), is_error, aliases, properties)
        self._define(record, place)
        fields: list[AvroField] = []
        for position, each in enumerate(nodes):
            field: AvroField = yield self._field(each, position, place.field_of(name, position))
            if field.name in record.by_name:
                place.fail(f"Duplicate field {field.name} in record {name.full}")
            record.by_name[field.name] = field
            fields.append(field)
        record.fields = tuple(fields)
        record.is_open = False
        return record

    def _field(self, node: Json, position: int, place: _Place) -> Recursion[AvroField]:
        if not isinstance(node, dict):
            place.fail(f"{shown(node)} is not a field")
        name = _text(node, "name")
        if name is None:
            place.fail(f"No field name: {shown(node)}")
        self._check_name(name, place)
        if "type" not in node:
            place.fail(f"No field type: {shown(node)}")
        type_: AvroType = yield self._type(node["type"], place.below("type"))
        field = AvroField(
            name=name,
            position=position,
            type=type_,
            doc=_text(node, "doc"),
            has_default="default" in node,
            default=_default(node.get("default"), type_, place),
            order=_order(node, place),
            aliases=_aliases(node, place),
            properties=_properties(node, _FIELD_ATTRIBUTES),
        )
        if field.has_default and self._strict:
            _check_default(field, self._early_defaults, place)
            self._fields.append((field, place))
        return field

    def _enum(self, node: dict[str, Json], place: _Place) -> AvroEnum:
        name = self._name(node, place)
        nodes = node.get("symbols")
        if not isinstance(nodes, list):
            place.fail(f"The enum {name.full} has no symbols")
        symbols: dict[str, None] = {}
        for symbol in nodes:
            if not isinstance(symbol, str):
                place.fail(f"The symbol {shown(symbol)} of the enum {name.full} is not a string")
            self._check_name(symbol, place)
            if symbol in symbols:
                place.fail(f"Duplicate enum symbol: {symbol}")
            symbols[symbol] = None
        default = _text(node, "default")
        if default is not None and default not in symbols:
            place.fail(f"The default {default} of the enum {name.full} is not one of its symbols")
        aliases = self._type_aliases(node, name, place)
        properties = _properties(node, _ENUM_ATTRIBUTES)
        enum = AvroEnum(name, _text(node, "doc"), tuple(symbols), default, aliases, properties)
        self._define(enum, place)
        return enum

    def _fixed(self, node: dict[str, Json], place: _Place) -> AvroFixed:
        name = self._name(node, place)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool):
            place.fail(f"Invalid or no size: {shown(node)}")
        if not 0 <= size <= FIXED_BYTES_MAX:
            place.fail(f"The size {size} is not between 0 and {FIXED_BYTES_MAX}")
        aliases = self._type_aliases(node, name, place)
        properties = _properties(node, _TYPE_ATTRIBUTES)
        fixed = AvroFixed(name, _text(node, "doc"), size, aliases, properties)
        self._define(fixed, place)
        return fixed

    def _define(self, named: NamedType, place: _Place) -> None:
        full = named.name.full
        for part in full.split(".")[:-1]:
            self._check_space(part, place)
        if full in PRIMITIVES:
            place.fail(f"Schemas may not be named after primitives: {full}")
        known = self._definitions.setdefault(full, named)
        if known is not named and not _is_repetition(known, named):
            place.fail(f"Can't redefine: {full}")

    def _name(self, node: dict[str, Json], place: _Place) -> AvroName:
        text = _text(node, "name")
        if text is None:
            place.fail(f"No name in schema: {shown(node)}")
        space = _text(node, "namespace")
        return self._qualified(text, place.space if space is None else space, place)

    def _qualified(self, text: str, space: str | None, place: _Place) -> AvroName:
        before, dot, name = text.rpartition(".")
        self._check_name(name, place)
        return AvroName(name, (before if dot else space) or None)

    def _type_aliases(
        self, node: dict[str, Json], name: AvroName, place: _Place
    ) -> tuple[AvroName, ...]:
        aliases = (self._qualified(each, name.space, place) for each in _aliases(node, place))
        return tuple(dict.fromkeys(aliases))

    def _check_space(self, part: str, place: _Place) -> None:
        if self._strict:
            self._check_name(part, place)

    def _check_name(self, name: str, place: _Place) -> None:
        if not name:
            place.fail("Empty name")
        valid = _NAME.fullmatch(name) is not None if self._strict else _is_unicode_name(name)
        if not valid:
            place.fail(f"Illegal character in: {name}")


_NESTED = frozenset((AvroKind.ARRAY, AvroKind.MAP, AvroKind.RECORD, "error"))


def _is_repetition(known: NamedType, named: NamedType) -> bool:
    """Whether Java accepts a second definition, and uses the first one in its place.

    Java compares before it reads the attributes and the fields of the second definition. So a
    record is never equal to the first one, and the first enum or fixed must have no attributes.
    """
    if known.properties:
        return False
    if isinstance(known, AvroEnum) and isinstance(named, AvroEnum):
        return known.symbols == named.symbols
    if isinstance(known, AvroFixed) and isinstance(named, AvroFixed):
        return known.size == named.size
    return False


def _properties(node: dict[str, Json], attributes: frozenset[str]) -> Properties:
    return {name: value for name, value in node.items() if name not in attributes}


def _text(node: dict[str, Json], attribute: str) -> str | None:
    """The value of an attribute. As in Java, a value that is not a string counts as absent."""
    value = node.get(attribute)
    return value if isinstance(value, str) else None


def _aliases(node: dict[str, Json], place: _Place) -> tuple[str, ...]:
    if "aliases" not in node:
        return ()
    aliases = node["aliases"]
    if not isinstance(aliases, list):
        place.fail(f"aliases not an array: {shown(node)}")
    names: dict[str, None] = {}
    for alias in aliases:
        if not isinstance(alias, str):
            place.fail(f"alias not a string: {shown(alias)}")
        names[alias] = None
    return tuple(names)


def _order(node: dict[str, Json], place: _Place) -> FieldOrder:
    if "order" not in node:
        return FieldOrder.ASCENDING
    order = node["order"]
    known = {each.value for each in FieldOrder}
    if not isinstance(order, str) or order.lower() not in known:
        place.fail(f"The order {shown(order)} is not one of {', '.join(sorted(known))}")
    return FieldOrder(order.lower())


def _default(value: Json, type_: AvroType, place: _Place) -> Json:
    """The default of a field. A string for a float or a double is converted, as in Java."""
    if not isinstance(type_, AvroPrimitive) or type_.kind not in _FLOATING:
        return value
    if not isinstance(value, str):
        return value
    text = value.strip()
    if _JAVA_DOUBLE.fullmatch(text) is None:
        place.fail(f"The default {shown(value)} is not a number")
    return float(text.rstrip("fFdD"))


def _check_default(field: AvroField, validator: DefaultValidator, place: _Place) -> None:
    if not validator.is_valid(field.type, field.default):
        place.fail(f"Invalid default for field {field.name}: {shown(field.default)}")


def _is_unicode_name(name: str) -> bool:
    is_start = name[0].isalpha() or name[0] == "_"
    return is_start and all(each.isalnum() or each == "_" for each in name)
