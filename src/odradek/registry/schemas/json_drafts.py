"""The drafts of JSON Schema that the registry accepts, and where each has subschemas. Pure.

A schema without ``$schema``, or with an unknown one, is draft 7, as in Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from odradek.registry.schemas.json_text import Json


class Draft(IntEnum):
    """A draft. Later drafts are greater."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 2019
    DRAFT_2020_12 = 2020


_DRAFTS: dict[str, Draft] = {
    "json-schema.org/schema": Draft.DRAFT_4,
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}


@dataclass(frozen=True, slots=True)
class SubschemaKeywords:
    """The keywords whose values are subschemas."""

    single: frozenset[str]
    """The value is a schema."""
    listed: frozenset[str]
    """The value is an array of schemas."""
    keyed: frozenset[str]
    """The value is an object of schemas."""


_SINGLE_4 = frozenset({"additionalItems", "additionalProperties", "items", "not"})
_LISTED_4 = frozenset({"allOf", "anyOf", "items", "oneOf"})
_KEYED_4 = frozenset({"definitions", "dependencies", "patternProperties", "properties"})
_SINGLE_6 = _SINGLE_4 | {"contains", "propertyNames"}
_SINGLE_7 = _SINGLE_6 | {"if", "then", "else"}
_SINGLE_2019 = _SINGLE_7 | {"contentSchema", "unevaluatedItems", "unevaluatedProperties"}
# The metaschemas of 2019-09 and 2020-12 still describe `dependencies`, which has no effect there.
_KEYED_2019 = _KEYED_4 | {"$defs", "dependentSchemas"}

_SUBSCHEMAS: dict[Draft, SubschemaKeywords] = {
    Draft.DRAFT_4: SubschemaKeywords(_SINGLE_4, _LISTED_4, _KEYED_4),
    Draft.DRAFT_6: SubschemaKeywords(_SINGLE_6, _LISTED_4, _KEYED_4),
    Draft.DRAFT_7: SubschemaKeywords(_SINGLE_7, _LISTED_4, _KEYED_4),
    Draft.DRAFT_2019_09: SubschemaKeywords(_SINGLE_2019, _LISTED_4, _KEYED_2019),
    Draft.DRAFT_2020_12: SubschemaKeywords(
        _SINGLE_2019 - {"additionalItems"},
        (_LISTED_4 - {"items"}) | {"prefixItems"},
        _KEYED_2019,
    ),
}


def draft_of(schema: Json, default: Draft) -> Draft:
    """Return the draft that a schema declares by ``$schema``, or the default."""
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(declared, str):
        return default
    scheme, _, location = declared.removesuffix("#").partition("://")
    return _DRAFTS.get(location, default) if scheme in ("http", "https") else default


def subschemas(schema: dict[str, Json], draft: Draft) -> Iterator[tuple[str, Json]]:
    """Yield the pointer and the value of each direct subschema that is an object or a boolean."""
    keywords = _SUBSCHEMAS[draft]
    for name, value in schema.items():
        if name in keywords.single and _is_schema(value):
            yield escaped(name), value
        elif name in keywords.listed and isinstance(value, list):
            yield from ((f"{name}/{i}", e) for i, e in enumerate(value) if _is_schema(e))
        elif name in keywords.keyed and isinstance(value, dict):
            yield from (
                (f"{escaped(name)}/{escaped(key)}", e) for key, e in value.items() if _is_schema(e)
            )


def without_subschemas(schema: dict[str, Json], draft: Draft) -> dict[str, Json]:
    """Return a copy in which each direct subschema that is an object is empty.

    The copy is valid under the metaschema if and only if the keywords of the schema itself are. Its
    validation takes constant stack space. The values of ``enum`` are replaced, because the
    metaschemas' test for duplicates takes quadratic time.
    """
    keywords = _SUBSCHEMAS[draft]
    copy: dict[str, Json] = {}
    for name, value in schema.items():
        if name in keywords.single and isinstance(value, dict):
            copy[name] = {}
        elif name in keywords.listed and isinstance(value, list):
            copy[name] = [{} if isinstance(each, dict) else each for each in value]
        elif name in keywords.keyed and isinstance(value, dict):
            copy[name] = {k: {} if isinstance(e, dict) else e for k, e in value.items()}
        elif name == "enum" and isinstance(value, list):
            copy[name] = [0] if value else []
        else:
            copy[name] = value
    return copy


def escaped(name: str) -> str:
    """Return a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _is_schema(value: Json) -> bool:
    return isinstance(value, (dict, bool))
