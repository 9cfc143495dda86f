"""Protobuf messages as JSON, by the text of a schema."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.proto_values import ProtobufCodec
from odradek.registry.schemas.parsed import ResolvedReference

ORDER = """
syntax = "proto3";
package shop;
import "geo/address.proto";
import "google/protobuf/timestamp.proto";
message Order {
  int64 order_id = 1;
  map<string, int32> counts = 2;
  message Line { string sku = 1; message Note { string text = 1; } }
  repeated Line lines = 3;
  geo.Address address = 4;
  google.protobuf.Timestamp placed_at = 5;
  bytes digest = 6;
}
message Refund { int64 order_id = 1; }
"""
ADDRESS = """
syntax = "proto3";
package geo;
message Address { string city = 1; }
"""
DEFAULTS = {"orderId": "0", "counts": {}, "lines": [], "digest": ""}


@pytest.fixture(scope="module")
def codec() -> ProtobufCodec:
    return ProtobufCodec(ORDER, [ResolvedReference("geo/address.proto", ADDRESS)])


def test_value_comes_back_in_the_json_mapping(codec: ProtobufCodec) -> None:
    value = {
        "orderId": "9007199254740993",
        "counts": {"a": 1},
        "lines": [{"sku": "x"}],
        "address": {"city": "Bern"},
        "placedAt": "2026-11-27T10:00:00Z",
        "digest": "AP8=",
    }
    assert codec.decode((0,), codec.encode((0,), value)) == value


def test_names_of_the_schema_and_plain_numbers_are_input(codec: ProtobufCodec) -> None:
    encoded = codec.encode((0,), {"order_id": 5})
    assert encoded == b"\x08\x05"
    assert codec.decode((0,), encoded) == DEFAULTS | {"orderId": "5"}


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("", (0,)),
        ("Order", (0,)),
        ("shop.Order", (0,)),
        ("Refund", (1,)),
        ("Order.Line", (0, 0)),
        ("shop.Order.Line.Note", (0, 0, 0)),
    ],
)
def test_message_has_indexes_without_the_entries_of_maps(
    codec: ProtobufCodec, name: str, indexes: tuple[int, ...]
) -> None:
    assert codec.indexes(name) == indexes


def test_nested_message_is_decoded_by_its_indexes(codec: ProtobufCodec) -> None:
    assert codec.decode((0, 0), codec.encode((0, 0), {"sku": "x"})) == {"sku": "x"}


def test_unknown_message_is_refused(codec: ProtobufCodec) -> None:
    with pytest.raises(UnusableSchema, match=r"no message 'Nope'. It has shop.Order, "):
        codec.indexes("Nope")
    with pytest.raises(UndecodableValue, match=r"no message with the indexes \[7\]"):
        codec.decode((7,), b"")


@pytest.mark.parametrize(
    "value", [5, [], {"nope": 1}, {"orderId": "x"}, {"digest": 5}, {"lines": 5}]
)
def test_value_that_does_not_fit_is_refused(codec: ProtobufCodec, value: object) -> None:
    with pytest.raises(InvalidValue):
        codec.encode((0,), value)


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(codec: ProtobufCodec, data: bytes) -> None:
    try:
        codec.decode((0,), data)
    except UndecodableValue:
        return


def test_schema_that_imports_publicly_has_the_imported_messages() -> None:
    text = 'syntax = "proto3";\nimport public "geo/address.proto";\n'
    wrapper = ProtobufCodec(text, [ResolvedReference("geo/address.proto", ADDRESS)])
    assert wrapper.indexes("Address") == (0,)
    assert wrapper.decode((0,), wrapper.encode((0,), {"city": "x"})) == {"city": "x"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("message {", "invalid"), ('syntax = "proto3";\n', "has no messages")],
)
def test_invalid_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnusableSchema, match=reason):
        ProtobufCodec(text)
