"""Each difference between JSON Schemas: its name, its place and the verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from odradek.registry.compatibility.json_differences import COMPATIBLE, JsonDifferenceKind
from odradek.registry.compatibility.json_schema import check, differences
from odradek.registry.schemas.json_schema import parse
from tests.registry.json_shapes import (
    CONTAINS,
    DEFAULT,
    INTEGER,
    NUMBER,
    ONE,
    OPTIONAL,
    REQUIRED,
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

K = JsonDifferenceKind


@dataclass(frozen=True, slots=True)
class Case:
    """A change from the writer's schema to the reader's, and the difference that it is."""

    kind: JsonDifferenceKind
    pointer: str
    writer: Any
    reader: Any

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.pointer}"


def limit_cases(prefix: str, keyword: str, base: dict[str, Any]) -> list[Case]:
    """Return the four changes of a limit."""
    low, high = {**base, keyword: 2}, {**base, keyword: 4}
    pointer = f"#/{keyword}"
    return [
        Case(K[f"{prefix}_ADDED"], pointer, base, low),
        Case(K[f"{prefix}_REMOVED"], pointer, low, base),
        Case(K[f"{prefix}_INCREASED"], pointer, low, high),
        Case(K[f"{prefix}_DECREASED"], pointer, high, low),
    ]


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_difference_has_its_name_place_and_verdict(case: Case) -> None:
    reader, writer = parse(json.dumps(case.reader)), parse(json.dumps(case.writer))
    found = [(each.kind, each.pointer) for each in differences(reader, writer)]
    assert (case.kind, case.pointer) in found
    assert (check(reader, writer) == []) == (case.kind in COMPATIBLE)


def test_each_kind_of_difference_has_a_case() -> None:
    assert {case.kind for case in CASES} == set(JsonDifferenceKind)


def test_reason_names_the_difference_and_has_places_for_two_roles() -> None:
    (reason,) = reasons(obj(**props(**{"a/%s": STRING})), obj(**props(**{"a/%s": NUMBER})))
    assert reason.startswith('{errorType:"TYPE_CHANGED", description:"The %s schema ')
    roles, path = reason.split(", at path ")
    assert roles.count("%s") == 2
    assert path == "'#/properties/a~1%s'\"}"
