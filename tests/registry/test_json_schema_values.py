"""JSON values with the validation of a JSON Schema."""

from __future__ import annotations

import json

import pytest

from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.json_schema_values import JsonSchemaCodec
from odradek.registry.schemas.parsed import ResolvedReference

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "address": {"$ref": "address.json"}},
    "required": ["id"],
}
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
