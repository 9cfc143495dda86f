"""The proofs that two schemas accept no common value."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema.validators import Draft7Validator

from odradek.registry.compatibility.json_disjoint import Disjointness
from odradek.registry.schemas.json_schema import parse
from odradek.registry.schemas.parsed import InvalidSchema
from tests.registry.json_documents import VALUES, SchemaMaker, ValueMaker

PAIRS = 500


def disjoint(one: Any, two: Any) -> bool:
    first, second = parse(json.dumps(one)), parse(json.dumps(two))
    return Disjointness().disjoint(first.root, second.root)


def kind(value: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": {"const": value}},
        "required": ["kind"],
    }


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"type": "string"}, {"type": "null"}),
        ({"type": "string"}, {"enum": [1, None]}),
        ({"enum": ["a"]}, {"const": "b"}),
        ({"type": ["string", "null"]}, {"type": ["boolean", "object"]}),
        ({"type": "integer", "maximum": 3}, {"type": "number", "minimum": 4}),
        ({"type": "string", "maxLength": 3}, {"minLength": 4}),
        (kind("a"), kind("b")),
        (kind("a"), {"type": "object", "additionalProperties": False}),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {"type": "array"}),
        ({"anyOf": [kind("a"), kind("b")]}, {"oneOf": [kind("c"), {"type": "null"}]}),
        (False, True),
        ({"$ref": "#/definitions/a", "definitions": {"a": kind("a")}}, kind("b")),
    ],
)
def test_disjoint(one: Any, two: Any) -> None:
    assert disjoint(one, two)
    assert disjoint(two, one)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"type": "integer"}, {"type": "number"}),
        ({"maxLength": 3}, {"minLength": 4}),
        ({"type": "object"}, kind("a")),
        ({}, {"not": {}}),
        ({"enum": [1]}, {"const": 1.0}),
        ({"type": "array", "items": False}, {"type": "array", "minItems": 0}),
        ({"properties": {"a": False}, "required": ["a"]}, {"properties": {"a": True}}),
    ],
)
def test_not_proved_to_be_disjoint(one: Any, two: Any) -> None:
    assert not disjoint(one, two)
    assert not disjoint(two, one)


def test_recursive_schemas_end() -> None:
    many = {
        "definitions": {
            "a": {
                "type": "object",
                "properties": {"x": {"$ref": "#/definitions/b"}},
                "required": ["x"],
            },
            "b": {
                "anyOf": [
                    {"$ref": "#/definitions/a"},
                    {"$ref": "#/definitions/a"},
                    {"type": "null"},
                ]
            },
        },
        "$ref": "#/definitions/b",
    }
    assert not disjoint(many, many)


def test_no_value_is_valid_under_disjoint_schemas(seed: int) -> None:
    random = Random(f"{seed} disjoint")
    proved = 0
    for _ in range(PAIRS):
        one, two = (SchemaMaker(random, 7).document() for _ in range(2))
        try:
            found = disjoint(one, two)
        except InvalidSchema:
            continue
        if not found:
            continue
        proved += 1
        first, second = Draft7Validator(one), Draft7Validator(two)
        makers = ValueMaker(random, one), ValueMaker(random, two)
        for value in [*VALUES, *(maker.value() for maker in makers for _ in range(10))]:
            both = first.is_valid(value) and second.is_valid(value)
            assert not both, (value, json.dumps(one), json.dumps(two))
    assert proved > PAIRS // 20
