"""Pairs of JSON Schemas where Confluent's verdict is not sound, and pairs that are compatible."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema.validators import Draft7Validator, validator_for

from tests.registry.json_documents import URIS
from tests.registry.json_shapes import (
    CONTAINS,
    DEFAULT,
    INTEGER,
    NUMBER,
    ONE,
    OPTIONAL,
    SHORT,
    STRING,
    TWO,
    array,
    closed,
    draft_2019,
    obj,
    props,
    reasons,
)


def extended(own: dict[str, Any] | None = None, **base: Any) -> dict[str, Any]:
    """Return a closed object with the properties of a base, ``a`` and its own ones."""
    return draft_2019(
        {
            "allOf": [{"$ref": "#/$defs/base"}],
            **props(a=STRING, **(own or {})),
            "unevaluatedProperties": False,
            "$defs": {"base": obj(**props(**base))},
        }
    )


UNSOUND: list[tuple[str, Any, Any, Any]] = [
    (
        "a required property with a default",
        obj(**props(a=DEFAULT)),
        obj(**props("a", a=DEFAULT)),
        {},
    ),
    (
        "a required property with a default, added to a closed object",
        closed(),
        closed(**props("a", a=DEFAULT)),
        {},
    ),
    ("a required name outside of properties", obj(required=["a"]), obj(required=["b"]), {"a": 1}),
    ("a required property with an empty schema", obj(), obj(**props("a", a={})), {}),
    (
        "a changed pattern",
        closed(patternProperties={"^x": STRING}),
        closed(patternProperties={"^x": NUMBER}),
        {"x": "a"},
    ),
    (
        "a removed property that two patterns match",
        closed(**props(xy=STRING)),
        closed(patternProperties={"^x": STRING, "y$": NUMBER}),
        {"xy": "a"},
    ),
    (
        "a property added to an open object with a pattern",
        obj(patternProperties={"^x": NUMBER}),
        obj(patternProperties={"^x": NUMBER}, **props(a=STRING)),
        {"a": 1},
    ),
    (
        "a pattern added to an open object",
        obj(),
        obj(patternProperties={"^x": NUMBER}),
        {"x": "a"},
    ),
    ("names that must be short", obj(), obj(propertyNames={"maxLength": 1}), {"ab": 1}),
    ("other items in contains", array(contains=STRING), array(contains=NUMBER), ["a"]),
    (
        "the default of minContains",
        draft_2019(array(contains=NUMBER, minContains=0)),
        CONTAINS,
        [],
    ),
    (
        "fewer items counted by maxContains",
        draft_2019(array(contains=INTEGER, minContains=0, maxContains=1)),
        draft_2019(array(contains=NUMBER, minContains=0, maxContains=1)),
        [0.5, 1.5],
    ),
    (
        "items by position beside an additionalItems that had no effect",
        array(additionalItems=False),
        array(additionalItems=False, items=ONE),
        [1],
    ),
    ("an overlapping alternative", {"oneOf": [INTEGER]}, {"oneOf": [INTEGER, NUMBER]}, 1),
    ("a schema that two alternatives accept", INTEGER, {"oneOf": [INTEGER, NUMBER]}, 1),
    (
        "an alternative widened into another",
        {"oneOf": [SHORT, {"type": "string", "minLength": 8}]},
        {"oneOf": [STRING, {"type": "string", "minLength": 8}]},
        "long enough",
    ),
    ("values of other types", {"maxLength": 3}, {"type": "string", "maxLength": 3}, 1),
    (
        "draft 4's exclusive maximum",
        {"$schema": URIS[4], "type": "number", "maximum": 3},
        {"$schema": URIS[4], "type": "number", "maximum": 3, "exclusiveMaximum": True},
        3,
    ),
    (
        "draft 4's integer",
        {"$schema": URIS[6], "type": "integer"},
        {"$schema": URIS[4], "type": "integer"},
        1.0,
    ),
    (
        "another consequence",
        {"if": STRING, "then": {"minLength": 1}},
        {"if": STRING, "then": {"minLength": 2}},
        "a",
    ),
    (
        "another condition",
        {"if": {"minimum": 5}, "then": STRING},
        {"if": {"minimum": 1}, "then": STRING},
        3,
    ),
    (
        "connect.type",
        {"type": "string", "connect.type": "bytes"},
        {"type": "number", "connect.type": "bytes"},
        "a",
    ),
    (
        "unevaluated properties beside other applicators",
        draft_2019({"allOf": [OPTIONAL], "unevaluatedProperties": NUMBER}),
        draft_2019({"allOf": [OPTIONAL], "unevaluatedProperties": False}),
        {"b": 1},
    ),
    (
        "a property removed from the base of a closed object",
        extended(id=STRING),
        extended(),
        {"id": "a"},
    ),
]


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [case[1:] for case in UNSOUND],
    ids=[case[0] for case in UNSOUND],
)
def test_change_that_confluent_accepts_is_incompatible_if_a_value_is_rejected(
    writer: Any, reader: Any, value: Any
) -> None:
    assert validator_for(writer, Draft7Validator)(writer).is_valid(value)
    assert not validator_for(reader, Draft7Validator)(reader).is_valid(value)
    assert reasons(writer, reader)


COMPATIBLE_PAIRS: list[tuple[str, Any, Any]] = [
    ("anything is read with true", obj(), True),
    ("false writes nothing", False, STRING),
    ("an order of alternatives", {"oneOf": TWO}, {"oneOf": [NUMBER, STRING]}),
    (
        "alternatives that overlap and do not change",
        obj(**props(a={"oneOf": [SHORT, {"enum": ["a", 1]}]})),
        obj(**props(a={"oneOf": [SHORT, {"enum": ["a", 1]}]}), title="changed"),
    ),
    (
        "an alternative with another constant",
        {"oneOf": [obj(**props("kind", kind={"const": "a"}))]},
        {
            "oneOf": [
                obj(**props("kind", kind={"const": "a"})),
                obj(**props("kind", kind={"const": "b"})),
            ]
        },
    ),
    ("additionalProperties as an empty schema", obj(), obj(additionalProperties={})),
    ("duplicates", {"allOf": [STRING, STRING]}, {"allOf": [STRING]}),
    (
        "moved into a definition",
        STRING,
        {"$ref": "#/definitions/text", "definitions": {"text": STRING}},
    ),
    (
        "unevaluated instead of additional properties",
        draft_2019(closed(**props(a=STRING))),
        draft_2019(obj(unevaluatedProperties=False, **props(a=STRING))),
    ),
    (
        "one schema for all items, then by position",
        array(items=INTEGER),
        array(items=[NUMBER], additionalItems=NUMBER),
    ),
    (
        "a property added to a closed object whose base is unchanged",
        extended(id=STRING),
        extended({"c": NUMBER}, id=STRING),
    ),
    ("drafts", {**INTEGER, "$schema": URIS[7]}, {**INTEGER, "$schema": URIS[2020]}),
]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [case[1:] for case in COMPATIBLE_PAIRS],
    ids=[case[0] for case in COMPATIBLE_PAIRS],
)
def test_pair_is_compatible(writer: Any, reader: Any) -> None:
    assert reasons(writer, reader) == []
