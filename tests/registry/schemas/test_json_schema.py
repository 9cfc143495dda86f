"""JSON Schema: canonical and normalized texts, drafts, references, invalid schemas and limits."""

from __future__ import annotations

import json
import socket
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.schemas import json_compile, json_text
from odradek.registry.schemas.json_compile import SCHEMAS_MAX
from odradek.registry.schemas.json_drafts import Draft, draft_of
from odradek.registry.schemas.json_model import (
    CombinedForm,
    EmptyForm,
    FalseForm,
    NumberForm,
    ObjectForm,
    StringForm,
    Whole,
    resolved,
)
from odradek.registry.schemas.json_patterns import EXPRESSIONS_OF_SCHEMA_MAX
from odradek.registry.schemas.json_schema import ParsedJsonSchema, parse
from odradek.registry.schemas.json_text import NESTING_MAX, dump, load, value_key
from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    ResolvedReference,
    SchemaKind,
)
from tests.registry.json_documents import URIS

TEXT = {"type": "string"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def schema(document: Any, **references: Any) -> ParsedJsonSchema:
    named = {name.replace("__", "."): value for name, value in references.items()}
    return parse(
        json.dumps(document),
        tuple(ResolvedReference(name, json.dumps(value)) for name, value in named.items()),
    )


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{ "type" : "string" ,\n "b": [ ], "a": { } }', '{"type":"string","b":[],"a":{}}'),
        ('{"x-unknown": {"k": [1, null, true]}}', '{"x-unknown":{"k":[1,null,true]}}'),
        ('{"default": 1.10}', '{"default":1.10}'),
        ('{"default": 1e5}', '{"default":1E+5}'),
        ('{"default": 0.00000001}', '{"default":1E-8}'),
        ('{"default": 0.000001}', '{"default":0.000001}'),
        ('{"default": -0.0}', '{"default":0.0}'),
        ('{"default": -0}', '{"default":0}'),
        ('{"default": 12345678901234567890123}', '{"default":12345678901234567890123}'),
        ('{"title": "\\u00e9 \\/ \\u001f \\n \\u007f"}', '{"title":"é / \\u001F \\n \x7f"}'),
        ('{"title": "\\\\u001f \\\\"}', '{"title":"\\\\u001f \\\\"}'),
        ('{"title": "a", "title": "b"}', '{"title":"b"}'),
        ("true", "true"),
        (" false ", "false"),
    ],
)
def test_canonical_text_is_that_of_jackson(text: str, canonical: str) -> None:
    parsed = parse(text)
    assert parsed.kind is SchemaKind.JSON
    assert parsed.canonical == canonical
    assert parsed.formatted("") == canonical
    assert parsed.formatted("resolved") == canonical
    assert parse(canonical).canonical == canonical


def test_normalized_text_has_sorted_members() -> None:
    parsed = schema(
        {"type": "object", "properties": {"b": {"title": "x", "enum": [{"z": 1, "y": 2}]}, "a": {}}}
    )
    assert parsed.normalized() == (
        '{"properties":{"a":{},"b":{"enum":[{"y":2,"z":1}],"title":"x"}},"type":"object"}'
    )


def test_members_are_sorted_by_utf16_code_units() -> None:
    parsed = schema({"properties": {"\uff5e": {}, "\U0001f600": {}}})
    assert parsed.normalized().index("\U0001f600") < parsed.normalized().index("\uff5e")


@given(json_values)
def test_dump_writes_what_load_reads(value: Any) -> None:
    assert load(dump(value)) == value
    assert json.loads(dump(value, sort_members=True)) == value


@given(json_values, json_values)
def test_keys_of_values_are_equal_for_equal_values_only(one: Any, two: Any) -> None:
    assert (value_key(one) == value_key(two)) == (
        json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    )


def test_numbers_are_equal_by_value() -> None:
    assert value_key(1) == value_key(Decimal("1.0")) == value_key(Decimal("10E-1"))
    assert value_key(100) == value_key(Decimal("1E+2"))
    assert value_key(0) == value_key(Decimal("0E+9"))
    assert value_key(True) != value_key(1)
    assert value_key("1") != value_key(1)
    assert value_key(10**40) != value_key(10**40 + 1)


@pytest.mark.parametrize(
    ("uri", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", Draft.DRAFT_4),
        ("https://json-schema.org/draft-06/schema", Draft.DRAFT_6),
        ("http://json-schema.org/draft-07/schema", Draft.DRAFT_7),
        ("http://json-schema.org/draft/2019-09/schema#", Draft.DRAFT_2019_09),
        ("https://json-schema.org/draft/2020-12/schema", Draft.DRAFT_2020_12),
        ("http://json-schema.org/schema#", Draft.DRAFT_4),
        ("http://json-schema.org/draft-03/schema#", Draft.DRAFT_7),
        ("http://example.com/dialect", Draft.DRAFT_7),
        ("draft-04", Draft.DRAFT_7),
    ],
)
def test_draft_is_declared_by_schema_keyword(uri: str, draft: Draft) -> None:
    assert draft_of({"$schema": uri}, Draft.DRAFT_7) is draft


def test_keywords_of_other_drafts_have_no_effect() -> None:
    old = schema({"$schema": URIS[4], "const": 1, "if": TEXT, "contains": TEXT})
    assert isinstance(old.root.form, EmptyForm)
    new = schema({"$schema": URIS[2020], "dependencies": {"a": ["b"]}, "additionalItems": False})
    assert isinstance(new.root.form, EmptyForm)


def test_siblings_of_a_reference_have_an_effect_since_2019() -> None:
    document = {"$ref": "#/definitions/a", "minLength": 2, "definitions": {"a": TEXT}}
    old, new = schema(document), schema({**document, "$schema": URIS[2019]})
    assert isinstance(resolved(old.root).form, StringForm)
    assert isinstance(new.root.form, CombinedForm)


def test_integer_of_draft_4_is_a_matter_of_notation() -> None:
    for draft, whole in ((4, Whole.BY_NOTATION), (6, Whole.BY_VALUE)):
        form = schema({"$schema": URIS[draft], "type": "integer"}).root.form
        assert isinstance(form, NumberForm)
        assert form.whole is whole


def test_boolean_schemas() -> None:
    assert isinstance(parse("true").root.form, EmptyForm)
    assert isinstance(parse("false").root.form, FalseForm)
    form = schema({"properties": {"a": False}}).root.form
    assert isinstance(form, ObjectForm)
    assert isinstance(form.properties["a"].form, FalseForm)


INVALID: list[tuple[str, str]] = [
    ("", "not valid JSON"),
    ("{", "not valid JSON"),
    ('{"a": NaN}', "NaN"),
    ('{"a": 1e99999999999999999999}', "not valid JSON"),
    ('{"a": 1' + "0" * 1_000 + "}", "longer than 1000"),
    ("[]", "must be an object or a boolean"),
    ('"string"', "must be an object or a boolean"),
    ("null", "must be an object or a boolean"),
    ('{"title": "\\ud800"}', "surrogate"),
    ('{"type": "text"}', "#/type"),
    ('{"type": 3}', "#/type"),
    ('{"minLength": -1}', "#/minLength"),
    ('{"minLength": 1.5}', "#/minLength"),
    ('{"required": ["a", "a"]}', "#/required"),
    ('{"required": true}', "#/required"),
    ('{"properties": {"a": {"type": "text"}}}', "#/properties/a/type"),
    ('{"properties": {"a": 5}}', "#/properties/a"),
    ('{"allOf": []}', "#/allOf"),
    ('{"items": [{"items": {"minimum": "1"}}]}', "#/items/0/items/minimum"),
    ('{"definitions": {"unused": {"type": "text"}}}', "#/definitions/unused/type"),
    ('{"pattern": "("}', "#/pattern"),
    ('{"patternProperties": {"[": {}}}', "#/patternProperties"),
    ('{"$schema": 4}', "schema"),
    ('{"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": true}}', "a"),
    ('{"$schema": "http://json-schema.org/draft-04/schema#", "enum": []}', "#/enum"),
    ('{"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{}]}', "#/items"),
    ('{"$schema": "https://json-schema.org/draft/2019-09/schema", "$anchor": "1"}', "anchor"),
    ('{"$ref": 1}', "ref"),
    ('{"$ref": "#/definitions/missing"}', "cannot be resolved"),
    ('{"$ref": "other.json"}', "cannot be resolved"),
    ('{"$ref": "#anchor"}', "cannot be resolved"),
    ('{"$ref": "http://["}', "cannot be resolved"),
    ('{"$ref": "#/title/0", "title": "abc"}', "not a schema"),
    ('{"$ref": "#/x/y", "x": {"y": {"type": "text"}}}', "type"),
    ('{"$ref": "#"}', "refers to itself"),
    ('{"allOf": [{"$ref": "#"}]}', "refers to itself"),
    ('{"not": {"anyOf": [{"type": "string"}, {"$ref": "#"}]}}', "refers to itself"),
    ('{"if": {"$ref": "#"}}', "refers to itself"),
    ('{"dependencies": {"a": {"$ref": "#"}}}', "refers to itself"),
    (
        '{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"},'
        ' "b": {"$ref": "#/definitions/a"}}}',
        "refers to itself",
    ),
]


@pytest.mark.parametrize(("text", "message"), INVALID)
def test_invalid_schema_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema) as error:
        parse(text)
    assert message in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "document",
    [
        {"minLength": 2.0},
        {"enum": [1, 1]},
        {"format": "no such format"},
        {"dependencies": {"a": ["b"], "b": {"type": "object"}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"child": {"$ref": "#"}}},
        {"$schema": URIS[4], "id": "http://a/b", "properties": {"id": {"type": "string"}}},
        {"$schema": URIS[2020], "$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"},
        {"$schema": URIS[2020], "$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
        {"$schema": URIS[2019], "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}},
        {"$ref": "#/$defs/a", "definitions": {"a": {"type": "string"}}},
        {"$ref": "#/components/a", "components": {"a": {"type": "string"}}},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"$schema": URIS[2020], "$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"definitions": {"a": {"$id": "#a", "type": "string"}}, "$ref": "#a"},
        {
            "definitions": {"a": {"$id": "http://x/a.json", "type": "string"}},
            "$ref": "http://x/a.json",
        },
    ],
)
def test_valid_schema(document: Any) -> None:
    assert json.loads(schema(document).canonical) == document


@pytest.mark.parametrize(
    ("identifier", "name", "reference"),
    [
        (None, "ref.json", "ref.json"),
        (None, "ref.json", "./ref.json"),
        (None, "ref.json", "ref.json#/definitions/text"),
        (None, "http://example.com/ref.json", "http://example.com/ref.json"),
        ("http://example.com/root.json", "ref.json", "ref.json"),
        ("http://example.com/root.json", "ref.json", "http://example.com/ref.json"),
        ("http://example.com/root.json", "http://example.com/ref.json", "ref.json"),
    ],
)
def test_reference_is_resolved_by_name(identifier: str | None, name: str, reference: str) -> None:
    document = (
        {"$ref": reference}
        if identifier is None
        else {"$id": identifier, "allOf": [{"$ref": reference}]}
    )
    text = json.dumps({"type": "string", "definitions": {"text": TEXT}})
    parsed = parse(json.dumps(document), (ResolvedReference(name, text),))
    form = parsed.root.form
    node = form.children[0] if isinstance(form, CombinedForm) else parsed.root
    assert isinstance(resolved(node).form, StringForm)


def test_references_refer_to_each_other_and_to_shared_definitions() -> None:
    parsed = schema(
        {"properties": {"a": {"$ref": "a.json"}}},
        a__json={"properties": {"b": {"$ref": "b.json#/$defs/text"}, "root": {"$ref": "#"}}},
        b__json={"definitions": {"text": TEXT}},
    )
    assert isinstance(parsed.root.form, ObjectForm)
    first = resolved(parsed.root.form.properties["a"])
    assert isinstance(first.form, ObjectForm)
    assert isinstance(resolved(first.form.properties["b"]).form, StringForm)
    assert resolved(first.form.properties["root"]) is first


def test_reference_may_have_a_draft_of_its_own() -> None:
    parsed = schema(
        {"$schema": URIS[2020], "$ref": "old.json"},
        old__json={"$schema": URIS[4], "type": "number", "maximum": 3, "exclusiveMaximum": True},
    )
    form = resolved(parsed.root).form
    assert isinstance(form, NumberForm)
    assert form.exclusive_maximum == 3


def test_invalid_reference_names_its_text() -> None:
    with pytest.raises(InvalidSchema, match=r"a\.json#/type"):
        schema({"$ref": "a.json"}, a__json={"type": "text"})


def test_reference_to_a_url_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for uri in ("http://127.0.0.1:1/a.json", "https://example.com/a.json", "file:///etc/passwd"):
        with pytest.raises(InvalidSchema, match="cannot be resolved"):
            schema({"$ref": uri})


def nested(depth: int) -> str:
    """Return a schema with `depth` nested objects and arrays."""
    return '{"allOf":[' * (depth // 2) + "true" + "]}" * (depth // 2)


def test_nesting_up_to_the_limit_is_valid() -> None:
    parsed = parse(nested(NESTING_MAX))
    assert parsed.normalized() == parsed.canonical == nested(NESTING_MAX)


@pytest.mark.parametrize("depth", [NESTING_MAX + 2, 5_000, 100_000])
def test_deeper_schema_is_invalid(depth: int) -> None:
    with pytest.raises(InvalidSchema, match="nested more than"):
        parse(nested(depth))


def test_text_beyond_the_limit_is_invalid() -> None:
    empty = len('{"title":""}')
    assert parse(json.dumps({"title": "a" * (TEXT_BYTES_MAX - empty - 1)}))
    for letter in ("aa", "é"):
        with pytest.raises(InvalidSchema, match=f"{TEXT_BYTES_MAX} bytes"):
            parse(f'{{"title":"{letter * (TEXT_BYTES_MAX // 2)}"}}')


def test_references_count_towards_the_limit() -> None:
    half = json.dumps({"title": "a" * (TEXT_BYTES_MAX // 2)})
    with pytest.raises(InvalidSchema, match="exceed"):
        parse(half, (ResolvedReference("a.json", half),))


def test_number_of_schemas_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_compile, "SCHEMAS_MAX", 10)
    assert schema({"properties": {str(number): {} for number in range(9)}})
    with pytest.raises(InvalidSchema, match="more than 10 schemas"):
        schema({"properties": {str(number): {} for number in range(10)}})
    assert SCHEMAS_MAX >= 10_000


def test_number_of_patterns_has_a_limit() -> None:
    assert schema({"patternProperties": {f"{n}": {} for n in range(EXPRESSIONS_OF_SCHEMA_MAX)}})
    with pytest.raises(InvalidSchema, match="patternProperties has more than"):
        schema({"patternProperties": {f"{n}": {} for n in range(EXPRESSIONS_OF_SCHEMA_MAX + 1)}})


def test_nesting_limit_follows_that_of_types() -> None:
    assert json_text.NESTING_MAX == 2 * json_text.DEPTH_MAX
