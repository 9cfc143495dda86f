"""Writes the types of an Avro schema as text. Pure.

`CanonicalText` writes what Java's `Schema.toString` does, which Confluent's registry stores. It is
not the canonical form of Avro's specification: documents, aliases, defaults and attributes are
kept. The attributes of a type have a fixed order, and those without a meaning keep their own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from odradek.registry.schemas.avro_defaults import normal_default, sorted_members
from odradek.registry.schemas.avro_json import Json, dump, java_order, quote
from odradek.registry.schemas.avro_logical import AttributedType, logical_attributes
from odradek.registry.schemas.avro_types import (
    NAMED_TYPES,
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroName,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    FieldOrder,
    NamedType,
    Properties,
    alias_names,
    defined,
)

_Part: TypeAlias = str | tuple[AvroType, str | None]
"""A piece of text, or a type with the namespace of the text around it."""


class CanonicalText:
    """Writes one text.

    Args:
        known: Full names of types that are written as names only, because a reference has them.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = set(known)

    def write(self, root: AvroType) -> str:
        """Return the text of a type. The first use of a name contains its definition."""
        written: list[str] = []
        pending: list[_Part] = [(root, None)]
        while pending:
            part = pending.pop()
            if isinstance(part, str):
                written.append(part)
            else:
                pending.extend(reversed(self._parts(*part)))
        return "".join(written)

    def _parts(self, used: AvroType, space: str | None) -> Sequence[_Part]:
        type_ = defined(used)
        if isinstance(type_, NAMED_TYPES):
            return self._named_parts(type_, space)
        if isinstance(type_, AvroUnion):
            return _separated([[(branch, space)] for branch in type_.branches], "[", "]")
        if isinstance(type_, AvroPrimitive):
            properties = self._properties(type_)
            if not properties:
                return [quote(type_.kind)]
            return _object([_member("type", type_.kind), *_members(properties)])
        name, part = _contained(type_)
        items: list[_Part] = [f"{quote(name)}:", (part, space)]
        return _object([_member("type", type_.kind), items, *_members(self._properties(type_))])

    def _named_parts(self, named: NamedType, space: str | None) -> Sequence[_Part]:
        full = named.name.full
        if full in self._known:
            return [quote(named.name.qualified(space))]
        self._known.add(full)
        members = [_member("type", _keyword(named)), *_name_members(named.name, space)]
        doc = self._type_doc(named.doc)
        if doc is not None:
            members.append(_member("doc", doc))
        members += self._own_members(named)
        members += _members(self._properties(named))
        aliases = self._type_aliases(named)
        if aliases:
            members.append(_member("aliases", aliases))
        return _object(members)

    def _own_members(self, named: NamedType) -> list[list[_Part]]:
        if isinstance(named, AvroFixed):
            return [_member("size", named.size)]
        if isinstance(named, AvroEnum):
            members = [_member("symbols", [*named.symbols])]
            return members + ([] if named.default is None else [_member("default", named.default)])
        fields = [list(self._field(each, named.name.space)) for each in named.fields]
        return [[f"{quote('fields')}:", *_separated(fields, "[", "]")]]

    def _field(self, field: AvroField, space: str | None) -> Sequence[_Part]:
        type_: list[_Part] = [f"{quote('type')}:", (field.type, space)]
        members = [_member("name", field.name), type_]
        if field.doc is not None:
            members.append(_member("doc", field.doc))
        if field.has_default:
            members.append(_member("default", self._default(field)))
        if field.order is not FieldOrder.ASCENDING:
            members.append(_member("order", field.order.value))
        aliases = self._field_aliases(field)
        if aliases:
            members.append(_member("aliases", aliases))
        return _object([*members, *_members(self._field_properties(field))])

    def _type_doc(self, doc: str | None) -> str | None:
        return doc

    def _default(self, field: AvroField) -> Json:
        return field.default

    def _type_aliases(self, named: NamedType) -> list[Json]:
        return [alias.qualified(named.name.space) for alias in named.aliases]

    def _field_aliases(self, field: AvroField) -> list[Json]:
        return [*field.aliases]

    def _properties(self, type_: AttributedType) -> Properties:
        return type_.properties

    def _field_properties(self, field: AvroField) -> Properties:
        return field.properties


class NormalText(CanonicalText):
    """Writes the text in which equivalent schemas are equal, by Confluent's rules.

    Aliases, attributes, and members of defaults are sorted. The attributes of a valid logical type
    come first, without a scale of 0. An empty document of a type is absent. Unlike Confluent's
    registry, the default of a union is kept if it is not a value of the first branch.
    """

    def _type_doc(self, doc: str | None) -> str | None:
        return doc or None

    def _default(self, field: AvroField) -> Json:
        return normal_default(field.type, field.default)

    def _type_aliases(self, named: NamedType) -> list[Json]:
        order = dict(zip(named.aliases, alias_names(named), strict=True))
        ordered = sorted(named.aliases, key=lambda alias: java_order(order[alias]))
        return [alias.qualified(named.name.space) for alias in ordered]

    def _field_aliases(self, field: AvroField) -> list[Json]:
        return [*sorted(field.aliases, key=java_order)]

    def _properties(self, type_: AttributedType) -> Properties:
        first = logical_attributes(type_)
        others = sorted(type_.properties.keys() - set(first), key=java_order)
        return _ordered(type_.properties, (*first, *others))

    def _field_properties(self, field: AvroField) -> Properties:
        return _ordered(field.properties, sorted(field.properties, key=java_order))


def _ordered(properties: Properties, names: Iterable[str]) -> Properties:
    return {name: sorted_members(properties[name]) for name in names}


def _keyword(named: NamedType) -> str:
    return "error" if isinstance(named, AvroRecord) and named.is_error else named.kind.value


def _contained(type_: AvroArray | AvroMap) -> tuple[str, AvroType]:
    return ("items", type_.items) if isinstance(type_, AvroArray) else ("values", type_.values)


def _name_members(name: AvroName, space: str | None) -> list[list[_Part]]:
    members = [_member("name", name.name)]
    if name.space != space:
        members.append(_member("namespace", name.space or ""))
    return members


def _members(properties: Properties) -> list[list[_Part]]:
    return [_member(name, value) for name, value in properties.items()]


def _member(name: str, value: Json) -> list[_Part]:
    return [f"{quote(name)}:{dump(value)}"]


def _object(members: list[list[_Part]]) -> Sequence[_Part]:
    return _separated(members, "{", "}")


def _separated(items: list[list[_Part]], first: str, last: str) -> Sequence[_Part]:
    parts: list[_Part] = [first]
    for position, item in enumerate(items):
        if position:
            parts.append(",")
        parts.extend(item)
    return [*parts, last]
