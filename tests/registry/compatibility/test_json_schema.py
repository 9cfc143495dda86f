"""The rules of JSON Schema's evolution: each difference, and where Confluent's verdict differs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from jsonschema.validators import Draft7Validator, validator_for

from odradek.registry.compatibility.json_comparison import PAIRS_MAX
from odradek.registry.compatibility.json_differences import (
    COMPATIBLE,
    DIFFERENCES_MAX,
    DifferenceKind,
)
from odradek.registry.compatibility.json_schema import check, differences
from odradek.registry.schemas.json_schema import parse
from tests.registry.json_documents import URIS

K = DifferenceKind
STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
DEFAULT = {"type": "string", "default": "x"}


@dataclass(frozen=True, slots=True)
class Case:
    """A change from the writer's schema to the reader's, and the difference that it is."""

    kind: DifferenceKind
    pointer: str
    writer: Any
    reader: Any

    def __str__(self) -> str:
        return f"{self.kind}-{self.pointer}"


def obj(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


def props(*required: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties, **({"required": list(required)} if required else {})}


def closed(**keywords: Any) -> dict[str, Any]:
    return obj(additionalProperties=False, **keywords)


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


def draft_2019(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": URIS[2019], **schema}


def limit_cases(prefix: str, keyword: str, base: dict[str, Any]) -> list[Case]:
    """Return the four changes of a limit."""
    low, high = {**base, keyword: 2}, {**base, keyword: 4}
    pointer = f"#/{keyword}"
    return [
        Case(K(f"{prefix}_ADDED"), pointer, base, low),
        Case(K(f"{prefix}_REMOVED"), pointer, low, base),
        Case(K(f"{prefix}_INCREASED"), pointer, low, high),
        Case(K(f"{prefix}_DECREASED"), pointer, high, low),
    ]


CONTAINS = draft_2019(array(contains=NUMBER))

LIMITS = [
    *limit_cases("MAX_LENGTH", "maxLength", STRING),
    *limit_cases("MIN_LENGTH", "minLength", STRING),
    *limit_cases("MAXIMUM", "maximum", NUMBER),
    *limit_cases("MINIMUM", "minimum", NUMBER),
    *limit_cases("EXCLUSIVE_MAXIMUM", "exclusiveMaximum", NUMBER),
    *limit_cases("EXCLUSIVE_MINIMUM", "exclusiveMinimum", INTEGER),
    *limit_cases("MAX_PROPERTIES", "maxProperties", obj()),
    *limit_cases("MIN_PROPERTIES", "minProperties", obj()),
    *limit_cases("MAX_ITEMS", "maxItems", array()),
    *limit_cases("MIN_ITEMS", "minItems", array()),
    *limit_cases("MAX_CONTAINS", "maxContains", CONTAINS),
]

ANNOTATIONS_AND_TYPES = [
    Case(K.ID_CHANGED, "#/", {"$id": "http://a/1"}, {"$id": "http://a/2"}),
    Case(K.DESCRIPTION_CHANGED, "#/", {"description": "a"}, {"description": "b"}),
    Case(K.TITLE_CHANGED, "#/", {"title": "a"}, {"title": "b"}),
    Case(K.DEFAULT_CHANGED, "#/", {**STRING, "default": "a"}, {**STRING, "default": "b"}),
    Case(K.TYPE_EXTENDED, "#/", INTEGER, NUMBER),
    Case(K.TYPE_NARROWED, "#/", NUMBER, INTEGER),
    Case(K.TYPE_CHANGED, "#/", STRING, NUMBER),
    Case(K.TYPE_CHANGED, "#/properties/a", obj(**props(a=STRING)), obj(**props(a=NUMBER))),
    Case(K.SCHEMA_ADDED, "#/items", array(), array(items=STRING)),
    Case(K.SCHEMA_REMOVED, "#/items", array(items=STRING), array()),
    Case(K.PATTERN_ADDED, "#/pattern", STRING, {**STRING, "pattern": "a"}),
    Case(K.PATTERN_REMOVED, "#/pattern", {**STRING, "pattern": "a"}, STRING),
    Case(K.PATTERN_CHANGED, "#/pattern", {**STRING, "pattern": "a"}, {**STRING, "pattern": "b"}),
    Case(K.MULTIPLE_OF_ADDED, "#/multipleOf", NUMBER, {**NUMBER, "multipleOf": 2}),
    Case(K.MULTIPLE_OF_REMOVED, "#/multipleOf", {**NUMBER, "multipleOf": 2}, NUMBER),
    Case(
        K.MULTIPLE_OF_EXPANDED,
        "#/multipleOf",
        {**NUMBER, "multipleOf": 0.5},
        {**NUMBER, "multipleOf": 1.5},
    ),
    Case(
        K.MULTIPLE_OF_REDUCED,
        "#/multipleOf",
        {**NUMBER, "multipleOf": 10},
        {**NUMBER, "multipleOf": 2},
    ),
    Case(
        K.MULTIPLE_OF_CHANGED,
        "#/multipleOf",
        {**NUMBER, "multipleOf": 10},
        {**NUMBER, "multipleOf": 11},
    ),
    Case(K.ENUM_ARRAY_EXTENDED, "#/enum", {"enum": [1]}, {"enum": [2, 1.0]}),
    Case(K.ENUM_ARRAY_NARROWED, "#/enum", {"enum": [1, True]}, {"enum": [1]}),
    Case(K.ENUM_ARRAY_CHANGED, "#/enum", {"enum": [1, 2]}, {"enum": [1, 3]}),
    Case(K.ENUM_ARRAY_CHANGED, "#/const", {"const": "a"}, {"const": "b"}),
]

OPTIONAL, REQUIRED = obj(**props(a=STRING)), obj(**props("a", a=STRING))

OBJECTS = [
    Case(K.REQUIRED_ATTRIBUTE_ADDED, "#/required/a", OPTIONAL, REQUIRED),
    Case(K.REQUIRED_ATTRIBUTE_REMOVED, "#/required/a", REQUIRED, OPTIONAL),
    Case(
        K.REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED,
        "#/required/a",
        obj(**props(a=DEFAULT)),
        obj(**props("a", a=DEFAULT)),
    ),
    Case(K.ADDITIONAL_PROPERTIES_ADDED, "#/additionalProperties", closed(), obj()),
    Case(K.ADDITIONAL_PROPERTIES_REMOVED, "#/additionalProperties", obj(), closed()),
    Case(
        K.ADDITIONAL_PROPERTIES_EXTENDED,
        "#/additionalProperties",
        obj(additionalProperties=NUMBER),
        obj(),
    ),
    Case(
        K.ADDITIONAL_PROPERTIES_NARROWED,
        "#/additionalProperties",
        obj(),
        obj(additionalProperties=NUMBER),
    ),
    *(
        Case(kind, "#/unevaluatedProperties", draft_2019(writer), draft_2019(reader))
        for kind, writer, reader in (
            (K.UNEVALUATED_PROPERTIES_ADDED, obj(unevaluatedProperties=False), obj()),
            (K.UNEVALUATED_PROPERTIES_REMOVED, obj(), obj(unevaluatedProperties=False)),
            (K.UNEVALUATED_PROPERTIES_EXTENDED, obj(unevaluatedProperties=NUMBER), obj()),
            (K.UNEVALUATED_PROPERTIES_NARROWED, obj(), obj(unevaluatedProperties=NUMBER)),
        )
    ),
    *(
        Case(kind, "#/dependencies/a", obj(dependencies=writer), obj(dependencies=reader))
        for kind, writer, reader in (
            (K.DEPENDENCY_ARRAY_ADDED, {}, {"a": ["b"]}),
            (K.DEPENDENCY_ARRAY_REMOVED, {"a": ["b"]}, {}),
            (K.DEPENDENCY_ARRAY_EXTENDED, {"a": ["b"]}, {"a": ["c", "b"]}),
            (K.DEPENDENCY_ARRAY_NARROWED, {"a": ["c", "b"]}, {"a": ["b"]}),
            (K.DEPENDENCY_ARRAY_CHANGED, {"a": ["b"]}, {"a": ["c"]}),
            (K.DEPENDENCY_SCHEMA_ADDED, {}, {"a": REQUIRED}),
            (K.DEPENDENCY_SCHEMA_REMOVED, {"a": REQUIRED}, {}),
        )
    ),
    Case(
        K.TYPE_CHANGED,
        "#/dependencies/a",
        draft_2019(obj(dependentSchemas={"a": STRING})),
        draft_2019(obj(dependentSchemas={"a": NUMBER})),
    ),
    Case(K.REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL, "#/properties/a", obj(), REQUIRED),
    Case(
        K.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL,
        "#/properties/a",
        obj(),
        obj(**props("a", a=DEFAULT)),
    ),
    Case(K.OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL, "#/properties/a", obj(), OPTIONAL),
    Case(
        K.PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL,
        "#/properties/a",
        obj(),
        obj(**props(a=True)),
    ),
    Case(
        K.REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL,
        "#/properties/a",
        closed(),
        closed(**props("a", a=STRING)),
    ),
    Case(
        K.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL,
        "#/properties/a",
        closed(),
        closed(**props("a", a=DEFAULT)),
    ),
    Case(
        K.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL,
        "#/properties/a",
        closed(),
        closed(**props(a=STRING)),
    ),
    Case(K.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL, "#/properties/a", OPTIONAL, obj()),
    Case(
        K.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL,
        "#/properties/a",
        closed(**props(a=False)),
        closed(),
    ),
    Case(
        K.PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL,
        "#/properties/a",
        closed(**props(a=STRING)),
        closed(),
    ),
    Case(
        K.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        "#/properties/a",
        closed(**props(a=INTEGER)),
        obj(additionalProperties=NUMBER),
    ),
    Case(
        K.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        "#/properties/I_1",
        closed(**props(I_1=INTEGER)),
        closed(patternProperties={"^I_": NUMBER}),
    ),
    Case(
        K.PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        "#/properties/a",
        closed(**props(a=STRING)),
        obj(additionalProperties=NUMBER),
    ),
    Case(
        K.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        "#/properties/a",
        obj(additionalProperties=INTEGER),
        obj(additionalProperties=INTEGER, **props(a=NUMBER)),
    ),
    Case(
        K.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        "#/properties/I_1",
        closed(patternProperties={"^I_": INTEGER}),
        closed(patternProperties={"^I_": INTEGER}, **props(I_1=NUMBER)),
    ),
    Case(
        K.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
        "#/properties/a",
        obj(additionalProperties=STRING),
        obj(additionalProperties=STRING, **props(a=NUMBER)),
    ),
    Case(
        K.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL,
        "#/patternProperties/^b_",
        closed(patternProperties={"^a_": STRING}),
        closed(patternProperties={"^a_": STRING, "^b_": NUMBER}),
    ),
]

ONE = [STRING]
TWO = [STRING, NUMBER]

ARRAYS = [
    Case(K.MIN_CONTAINS_ADDED, "#/minContains", draft_2019(array()), CONTAINS),
    Case(K.MIN_CONTAINS_REMOVED, "#/minContains", CONTAINS, draft_2019(array())),
    Case(K.MIN_CONTAINS_INCREASED, "#/minContains", CONTAINS, {**CONTAINS, "minContains": 2}),
    Case(K.MIN_CONTAINS_DECREASED, "#/minContains", {**CONTAINS, "minContains": 2}, CONTAINS),
    Case(K.UNIQUE_ITEMS_ADDED, "#/uniqueItems", array(), array(uniqueItems=True)),
    Case(K.UNIQUE_ITEMS_REMOVED, "#/uniqueItems", array(uniqueItems=True), array()),
    *(
        Case(kind, "#/unevaluatedItems", draft_2019(writer), draft_2019(reader))
        for kind, writer, reader in (
            (K.UNEVALUATED_ITEMS_ADDED, array(unevaluatedItems=False), array()),
            (K.UNEVALUATED_ITEMS_REMOVED, array(), array(unevaluatedItems=False)),
            (K.UNEVALUATED_ITEMS_EXTENDED, array(unevaluatedItems=NUMBER), array()),
            (K.UNEVALUATED_ITEMS_NARROWED, array(), array(unevaluatedItems=NUMBER)),
        )
    ),
    *(
        Case(kind, "#/additionalItems", array(items=ONE, **writer), array(items=ONE, **reader))
        for kind, writer, reader in (
            (K.ADDITIONAL_ITEMS_ADDED, {"additionalItems": False}, {}),
            (K.ADDITIONAL_ITEMS_REMOVED, {}, {"additionalItems": False}),
            (K.ADDITIONAL_ITEMS_EXTENDED, {"additionalItems": NUMBER}, {}),
            (K.ADDITIONAL_ITEMS_NARROWED, {}, {"additionalItems": NUMBER}),
        )
    ),
    *(
        Case(kind, "#/items/1", array(items=before, **writer), array(items=after, **reader))
        for kind, before, writer, after, reader in (
            (K.ITEM_ADDED_TO_OPEN_CONTENT_MODEL, ONE, {}, TWO, {}),
            (K.ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL, ONE, {}, [STRING, {}], {}),
            (
                K.ITEM_ADDED_TO_CLOSED_CONTENT_MODEL,
                ONE,
                {"additionalItems": False},
                TWO,
                {"additionalItems": False},
            ),
            (K.ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL, TWO, {}, ONE, {}),
            (
                K.ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL,
                [STRING, False],
                {"additionalItems": False},
                ONE,
                {"additionalItems": False},
            ),
            (
                K.ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL,
                TWO,
                {"additionalItems": False},
                ONE,
                {"additionalItems": False},
            ),
            (
                K.ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
                [STRING, INTEGER],
                {"additionalItems": False},
                ONE,
                {"additionalItems": NUMBER},
            ),
            (
                K.ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
                TWO,
                {"additionalItems": False},
                ONE,
                {"additionalItems": STRING},
            ),
            (
                K.ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
                ONE,
                {"additionalItems": INTEGER},
                TWO,
                {"additionalItems": INTEGER},
            ),
            (
                K.ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL,
                ONE,
                {"additionalItems": STRING},
                TWO,
                {"additionalItems": STRING},
            ),
        )
    ),
]

SHORT = {"type": "string", "maxLength": 5}

COMBINED = [
    Case(K.COMBINED_TYPE_EXTENDED, "#/", {"oneOf": TWO}, {"anyOf": TWO}),
    Case(K.COMBINED_TYPE_EXTENDED, "#/", {"oneOf": ONE}, {"allOf": ONE}),
    Case(K.COMBINED_TYPE_EXTENDED, "#/", {"allOf": ONE}, {"oneOf": TWO}),
    Case(K.COMBINED_TYPE_EXTENDED, "#/", {"allOf": [STRING, SHORT]}, {"oneOf": ONE}),
    Case(K.COMBINED_TYPE_CHANGED, "#/", {"anyOf": TWO}, {"oneOf": TWO}),
    Case(K.COMBINED_TYPE_CHANGED, "#/", {"anyOf": ONE}, {"allOf": TWO}),
    Case(K.PRODUCT_TYPE_EXTENDED, "#/", {"allOf": ONE}, {"allOf": [STRING, SHORT]}),
    Case(K.PRODUCT_TYPE_NARROWED, "#/", {"allOf": [STRING, SHORT]}, {"allOf": ONE}),
    Case(K.PRODUCT_TYPE_NARROWED, "#/", {**STRING, "enum": ["a"]}, STRING),
    Case(K.SUM_TYPE_EXTENDED, "#/", {"anyOf": ONE}, {"anyOf": TWO}),
    Case(K.SUM_TYPE_EXTENDED, "#/", {"oneOf": ONE}, {"oneOf": [NUMBER, STRING]}),
    Case(K.SUM_TYPE_EXTENDED, "#/", STRING, {"oneOf": TWO}),
    Case(K.SUM_TYPE_EXTENDED, "#/", {"type": ["object"]}, {"type": ["object", "array"]}),
    Case(K.SUM_TYPE_EXTENDED, "#/", STRING, {"type": ["null", "string"]}),
    Case(K.SUM_TYPE_NARROWED, "#/", {"oneOf": TWO}, {"oneOf": ONE}),
    Case(
        K.COMBINED_TYPE_SUBSCHEMAS_CHANGED,
        "#/",
        {"anyOf": TWO},
        {"anyOf": [STRING, {"type": "null"}]},
    ),
    Case(K.MAX_LENGTH_REMOVED, "#/anyOf/1/maxLength", {"anyOf": [NUMBER, SHORT]}, {"anyOf": TWO}),
    Case(
        K.ENUM_ARRAY_EXTENDED,
        "#/allOf/0/enum",
        {**STRING, "enum": ["a"]},
        {**STRING, "enum": ["a", "b"]},
    ),
    Case(K.NOT_TYPE_EXTENDED, "#/not", {"not": INTEGER}, {"not": NUMBER}),
    Case(K.NOT_TYPE_NARROWED, "#/not", {"not": NUMBER}, {"not": INTEGER}),
    Case(K.SCHEMA_ADDED, "#/then", {"if": STRING}, {"if": STRING, "then": SHORT}),
    Case(K.SCHEMA_REMOVED, "#/else", {"if": STRING, "else": NUMBER}, {"if": STRING}),
]

CASES = [*LIMITS, *ANNOTATIONS_AND_TYPES, *OBJECTS, *ARRAYS, *COMBINED]


def reasons(writer: Any, reader: Any) -> list[str]:
    return check(parse(json.dumps(reader)), parse(json.dumps(writer)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_difference_has_its_name_place_and_verdict(case: Case) -> None:
    reader, writer = parse(json.dumps(case.reader)), parse(json.dumps(case.writer))
    found = [(each.kind, each.pointer) for each in differences(reader, writer)]
    assert (case.kind, case.pointer) in found
    assert (check(reader, writer) == []) == (case.kind in COMPATIBLE)


def test_each_kind_of_difference_has_a_case() -> None:
    assert {case.kind for case in CASES} == set(DifferenceKind)


def test_reason_names_the_difference_and_has_places_for_two_roles() -> None:
    (reason,) = reasons(obj(**props(**{"a/%s": STRING})), obj(**props(**{"a/%s": NUMBER})))
    assert reason.startswith('{errorType:"TYPE_CHANGED", description:"The %s schema ')
    roles, path = reason.split(", at path ")
    assert roles.count("%s") == 2
    assert path == "'#/properties/a~1%s'\"}"


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
    ("drafts", {**INTEGER, "$schema": URIS[7]}, {**INTEGER, "$schema": URIS[2020]}),
]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [case[1:] for case in COMPATIBLE_PAIRS],
    ids=[case[0] for case in COMPATIBLE_PAIRS],
)
def test_pair_is_compatible(writer: Any, reader: Any) -> None:
    assert reasons(writer, reader) == []


def tree(value: Any) -> dict[str, Any]:
    return {
        "$ref": "#/definitions/node",
        "definitions": {
            "node": closed(
                **props(value=value, next={"$ref": "#/definitions/node"}, other={"$ref": "#"})
            )
        },
    }


def test_recursive_schemas_are_compared() -> None:
    assert reasons(tree(INTEGER), tree(NUMBER)) == []
    assert 'TYPE_NARROWED", ' in reasons(tree(NUMBER), tree(INTEGER))[0]


def test_wrong_assumption_about_a_cycle_is_found() -> None:
    """The pair (a, a) is compared inside (b, b) before its own difference is known."""

    def cycle(last: Any) -> dict[str, Any]:
        return {
            "definitions": {
                "a": closed(
                    **props(
                        b={"$ref": "#/definitions/b"},
                        c={"anyOf": [{"$ref": "#/definitions/b"}, {"type": "null"}]},
                        last=last,
                    )
                ),
                "b": closed(**props(a={"$ref": "#/definitions/a"})),
            },
            **closed(**props(x={"$ref": "#/definitions/a"}, y={"$ref": "#/definitions/b"})),
        }

    found = reasons(cycle(STRING), cycle(NUMBER))
    assert any("'#/properties/x/" in reason for reason in found)
    assert any("'#/properties/y/" in reason for reason in found)


def test_definitions_that_share_others_take_linear_time() -> None:
    """Each of 60 definitions refers twice to the next one: 2**60 paths."""

    def ladder(last: Any) -> dict[str, Any]:
        steps = {
            f"d{i}": obj(
                **props(
                    a={"$ref": f"#/definitions/d{i + 1}"}, b={"$ref": f"#/definitions/d{i + 1}"}
                )
            )
            for i in range(60)
        }
        return {"$ref": "#/definitions/d0", "definitions": {**steps, "d60": last}}

    started = time.monotonic()
    found = differences(parse(json.dumps(ladder(NUMBER))), parse(json.dumps(ladder(STRING))))
    assert time.monotonic() - started < 30
    assert len(found) == DIFFERENCES_MAX
    assert any(not each.is_compatible for each in found)


def test_deep_chain_of_definitions_needs_no_deep_stack() -> None:
    def chain(last: Any) -> dict[str, Any]:
        steps = {f"d{i}": obj(**props(a={"$ref": f"#/definitions/d{i + 1}"})) for i in range(1_500)}
        return {"$ref": "#/definitions/d0", "definitions": {**steps, "d1500": last}}

    assert reasons(chain(INTEGER), chain(NUMBER)) == []
    assert reasons(chain(NUMBER), chain(INTEGER))


def test_comparison_beyond_a_limit_is_incompatible() -> None:
    count = int(PAIRS_MAX**0.5) + 10

    def alternatives(offset: int) -> dict[str, Any]:
        return {"anyOf": [{"maxLength": offset + i, "minLength": i} for i in range(count)]}

    (reason,) = reasons(alternatives(1_000), alternatives(1_001))
    assert reason.startswith('{errorType:"COMPARISON_LIMIT"')
    assert reason.count("%s") == 2


def test_expensive_expression_does_not_block() -> None:
    """Python's `re` needs exponential time for this expression and this name."""
    name = "a" * 60 + "b"
    pattern = "^(a+)+$"
    started = time.monotonic()
    reasons(closed(**props(**{name: STRING})), closed(patternProperties={pattern: STRING}))
    assert time.monotonic() - started < 5


def test_expression_of_another_dialect_may_match_any_name() -> None:
    pattern = r"^\p{IsGreek}(?!x)"
    writer = closed(**props(a=STRING))
    reader = obj(patternProperties={pattern: NUMBER}, **props(a=STRING))
    assert reasons(writer, reader)
    assert reasons(reader, {**reader, "title": "changed"}) == []
