"""JSON values with the validation of a JSON Schema."""

from __future__ import annotations

import contextlib
import json

import pytest

from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.json_schema_values import JsonDecoder, JsonSchemaCodec
from odradek.registry.schemas.parsed import ResolvedReference

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "address": {"$ref": "address.json"}},
    "required": ["id"],
}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}


def codec() -> JsonSchemaCodec:
    reference = ResolvedReference("address.json", json.dumps(ADDRESS))
    return JsonSchemaCodec(json.dumps(ORDER), [reference])


def test_valid_value_is_compact_json() -> None:
    value = {"id": 1, "address": {"city": "Zürich"}}
    assert codec().encode(value) == '{"id":1,"address":{"city":"Zürich"}}'.encode()
    assert codec().decode(codec().encode(value)) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "'id' is a required property"),
        ({"id": 1, "address": {"city": 5}}, r"^address\.city: 5 is not of type 'string'"),
        ({"id": "\ud800"}, "is not of type 'integer'"),
    ],
)
def test_invalid_value_is_refused_with_its_path(value: object, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        codec().encode(value)


def test_output_is_not_validated() -> None:
    assert codec().decode(b'{"id": "text"}') == {"id": "text"}


def test_bytes_that_are_not_json_are_refused() -> None:
    for data in (b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(UndecodableValue, match="not JSON"):
            codec().decode(data)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidValue, match="Unicode"):
        JsonSchemaCodec("{}").encode("\ud800")


@pytest.mark.parametrize("text", ["{", '{"type": "nothing"}', '{"required": 5}'])
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(UnusableSchema, match="JSON Schema is invalid"):
        JsonSchemaCodec(text)


def test_missing_reference_is_refused_without_a_request() -> None:
    remote = JsonSchemaCodec('{"$ref": "http://127.0.0.1:9/nothing.json"}')
    with pytest.raises(UnusableSchema, match="nothing"):
        remote.encode({})


def test_metaschema_needs_no_reference() -> None:
    schema = JsonSchemaCodec('{"$ref": "http://json-schema.org/draft-07/schema#"}')
    assert schema.encode({"type": "string"}) == b'{"type":"string"}'
    with pytest.raises(InvalidValue):
        schema.encode({"type": 5})


def test_schema_may_be_a_boolean() -> None:
    assert JsonSchemaCodec("true").encode(1) == b"1"
    with pytest.raises(InvalidValue):
        JsonSchemaCodec("false").encode(1)


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"^(?<name>a)\k<name>$", "^[[a-z]&&[^x]]$"])
def test_pattern_of_another_dialect_is_no_reason_to_refuse_a_schema(pattern: str) -> None:
    for schema in (
        {"pattern": pattern},
        {"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": False},
    ):
        JsonSchemaCodec(json.dumps(schema)).encode({} if "pattern" not in schema else "ü")


def test_pattern_of_java_is_searched_by_re2() -> None:
    codec = JsonSchemaCodec(json.dumps({"pattern": r"^\p{L}+$"}))
    assert codec.encode("Zürich") == '"Zürich"'.encode()
    with pytest.raises(InvalidValue, match="does not match"):
        codec.encode("5")


def test_search_of_a_nested_repetition_takes_linear_time() -> None:
    """Python's `re` would take years."""
    for schema in ({"pattern": "^(a+)+$"}, {"patternProperties": {"^(a+)+$": {"type": "null"}}}):
        codec = JsonSchemaCodec(json.dumps({"$schema": DRAFT_7, **schema}))
        text = "a" * 100 + "!"
        value: object = text if "pattern" in schema else {text: 1}
        if "pattern" in schema:
            with pytest.raises(InvalidValue):
                codec.encode(value)
        else:
            codec.encode(value)


def test_names_with_patterns_are_validated() -> None:
    schema = {
        "properties": {"a": {}},
        "patternProperties": {"^x": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    codec = JsonSchemaCodec(json.dumps(schema))
    codec.encode({"a": None, "x1": 1, "b": "text"})
    for value, reason in (({"x1": "1"}, "x1: '1' is not"), ({"b": 1}, "b: 1 is not")):
        with pytest.raises(InvalidValue, match=reason):
            codec.encode(value)
    closed = JsonSchemaCodec(json.dumps({**schema, "additionalProperties": False}))
    with pytest.raises(InvalidValue, match="'b'"):
        closed.encode({"b": 1, "x1": 1})


@pytest.mark.parametrize("name", ["other.json", "http://example.com/other.json"])
def test_relative_reference_is_resolved_as_the_registry_does(name: str) -> None:
    root = {"$id": "http://example.com/root.json", "properties": {"a": {"$ref": "other.json"}}}
    codec = JsonSchemaCodec(json.dumps(root), [ResolvedReference(name, '{"type":"string"}')])
    assert codec.encode({"a": "x"}) == b'{"a":"x"}'
    with pytest.raises(InvalidValue, match="a: 1 is not"):
        codec.encode({"a": 1})


def test_reference_with_the_same_draft_has_the_same_patterns() -> None:
    other = json.dumps({"$schema": DRAFT_7, "pattern": r"^\p{L}+$"})
    root = json.dumps({"$schema": DRAFT_7, "$ref": "other.json"})
    assert JsonSchemaCodec(root, [ResolvedReference("other.json", other)]).encode("x") == b'"x"'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
@pytest.mark.parametrize("schema", ['{"type":"number"}', '{"multipleOf":0.5}', "{}"])
def test_number_that_json_does_not_have_is_refused(schema: str, value: object) -> None:
    with pytest.raises(InvalidValue):
        JsonSchemaCodec(schema).encode(value)


def test_number_that_a_multiple_cannot_be_computed_for_has_no_traceback() -> None:
    with contextlib.suppress(InvalidValue):
        JsonSchemaCodec('{"multipleOf":0.01}').encode(1e308)


@pytest.mark.parametrize("data", [b"NaN", b"[Infinity]", b"1e999"])
def test_bytes_with_a_number_that_json_does_not_have_are_refused(data: bytes) -> None:
    with pytest.raises(UndecodableValue):
        JsonDecoder().decode(data)
