"""Avro values as JSON: the forms of all types, input without branches, and hostile bytes."""

from __future__ import annotations

import io
import json
import math
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.avro_values.binary import EMPTY_ITEMS_MAX
from odradek.registry.avro_values.codec import AvroCodec
from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.schemas.parsed import ResolvedReference

from .avro_data import AvroData, schemas


def codec(schema: object) -> AvroCodec:
    return AvroCodec(json.dumps(schema))


def record(*fields: dict[str, Any]) -> AvroCodec:
    return codec({"type": "record", "name": "shop.Order", "fields": list(fields)})


def field(type_: object, **more: object) -> dict[str, Any]:
    return {"name": "f", "type": type_, **more}


def of_field(type_: object, value: object) -> object:
    """Return the value of a field after encoding and decoding."""
    in_record = record(field(type_))
    decoded = in_record.decode(in_record.encode({"f": value}))
    assert isinstance(decoded, dict)
    return decoded["f"]


@given(st.data())
def test_values_come_back_and_are_those_of_fastavro(data: st.DataObject) -> None:
    drawn: AvroData = data.draw(schemas())
    in_record = {"type": "record", "name": "Top", "fields": [field(drawn.schema)]}
    value, plain = data.draw(drawn.values)
    encoded = codec(in_record).encode({"f": value})
    assert codec(in_record).decode(encoded) == {"f": value}
    assert json.loads(json.dumps(value)) == value
    read = fastavro.schemaless_reader(io.BytesIO(encoded), fastavro.parse_schema(in_record))
    assert read == {"f": plain}


@given(st.data(), st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: st.DataObject, encoded: bytes) -> None:
    drawn: AvroData = data.draw(schemas())
    try:
        codec(drawn.schema).decode(encoded)
    except UndecodableValue:
        return


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        ("null", None, b""),
        ("boolean", True, b"\x01"),
        ("int", -1, b"\x01"),
        ("long", 2**63 - 1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("float", 0.1, struct.pack("<f", 0.1)),
        ("double", 0.1, struct.pack("<d", 0.1)),
        ("string", "é", b"\x04\xc3\xa9"),
        ({"type": "array", "items": "int"}, [1, 2], b"\x04\x02\x04\x00"),
        ({"type": "array", "items": "int"}, [], b"\x00"),
        ({"type": "map", "values": "int"}, {"a": 1}, b"\x02\x02a\x02\x00"),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", b"\x02"),
        ({"type": "fixed", "name": "F", "size": 2}, "\x00\xff", b"\x00\xff"),
        (["null", "string"], {"string": "a"}, b"\x02\x02a"),
        (["null", "string"], None, b"\x00"),
    ],
)
def test_encoded_form_is_that_of_the_specification(type_: Any, value: Any, data: bytes) -> None:
    assert codec(type_).encode(value) == data
    assert codec(type_).decode(data) == value


def test_bytes_at_the_top_have_no_length() -> None:
    assert codec("bytes").encode("\x00a\xff") == b"\x00a\xff"
    assert codec("bytes").decode(b"\x00a\xff") == "\x00a\xff"
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    assert codec(decimal).encode("12.34") == b"\x04\xd2"
    assert codec(decimal).decode(b"\x04\xd2") == "12.34"


def test_blocks_with_a_size_are_read() -> None:
    assert codec({"type": "array", "items": "int"}).decode(b"\x03\x04\x02\x04\x02\x06\x00") == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("type_", ["float", "double"])
def test_numbers_that_json_does_not_have_are_text(type_: str, value: str) -> None:
    assert of_field(type_, value) == value


def test_float_is_written_with_the_fewest_digits() -> None:
    assert of_field("float", 0.1) == 0.1
    assert of_field("float", 3.4028234663852886e38) == pytest.approx(3.4028235e38)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_is_the_same_float_after_json(value: float) -> None:
    decoded = json.loads(json.dumps(of_field("float", value)))
    assert struct.pack("<f", decoded) == struct.pack("<f", value)


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        ({"type": "int", "logicalType": "date"}, "2026-11-27", 20784),
        ({"type": "int", "logicalType": "date"}, 20784, 20784),
        ({"type": "int", "logicalType": "time-millis"}, "00:00:01.5", 1500),
        ({"type": "long", "logicalType": "time-micros"}, "00:00:01.000005", 1000005),
        ({"type": "long", "logicalType": "timestamp-millis"}, "1970-01-01T00:00:01.5Z", 1500),
        ({"type": "long", "logicalType": "timestamp-millis"}, "1970-01-01T01:00:00+01:00", 0),
        ({"type": "long", "logicalType": "timestamp-micros"}, "1969-12-31T23:59:59Z", -1000000),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "1970-01-01T00:00:00.000001Z", 1000),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "1970-01-01T00:00:01", 1000),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 5, 5),
    ],
)
def test_dates_and_times_may_be_text_and_are_numbers(type_: Any, value: Any, stored: int) -> None:
    assert of_field(type_, value) == stored


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, "2026-11-27T10:00:00", "offset"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "2026-11-27T10:00Z", "offset"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "2026-11-27T10:00:00.0001Z", "more"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "2026-11-27T10:00:00.0000001Z", "six"),
        ({"type": "int", "logicalType": "date"}, "today", "Invalid isoformat"),
        ({"type": "int", "logicalType": "time-millis"}, "10:00Z", "no offset"),
        ("int", "2026-11-27", "not a number"),
    ],
)
def test_inexact_dates_and_times_are_refused(type_: Any, value: Any, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        of_field(type_, value)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED_DECIMAL = {
    "type": "fixed",
    "name": "D",
    "size": 4,
    "logicalType": "decimal",
    "precision": 6,
    "scale": 2,
}


@pytest.mark.parametrize("type_", [DECIMAL, FIXED_DECIMAL])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("12.34", "12.34"),
        (Decimal("12.3"), "12.30"),
        (12, "12.00"),
        (-0.05, "-0.05"),
        ("-9999.99", "-9999.99"),
        ("0", "0.00"),
        ("1e3", "1000.00"),
        ("-1.28", "-1.28"),
    ],
)
def test_decimal_is_a_text_of_its_scale(type_: Any, value: Any, text: str) -> None:
    assert of_field(type_, value) == text


@pytest.mark.parametrize("value", ["10000", "0.001", "1.234", "NaN", "x", "1e99999999", True, None])
def test_decimal_that_does_not_fit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue):
        of_field(DECIMAL, value)


@given(st.integers(-(10**30), 10**30), st.integers(0, 30))
def test_decimals_come_back(unscaled: int, scale: int) -> None:
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": 31, "scale": scale}
    digits = tuple(map(int, str(abs(unscaled))))
    value = Decimal((int(unscaled < 0), digits, -scale))
    assert of_field(type_, value) == f"{value:f}"


@pytest.mark.parametrize(
    "properties",
    [
        {"precision": 0},
        {"precision": 2, "scale": 3},
        {"precision": 2, "scale": -1},
        {"scale": 1},
        {"precision": "4"},
        {"precision": 5000},
    ],
)
def test_invalid_decimal_is_plain_bytes(properties: dict[str, Any]) -> None:
    type_ = {"type": "bytes", "logicalType": "decimal", **properties}
    assert of_field(type_, "\x04\xd2") == "\x04\xd2"


UUID_TEXT = "6f2c1a90-4a5e-4f0b-9d43-7d8f3a3f7b11"


@pytest.mark.parametrize("base", ["string", {"type": "fixed", "name": "U", "size": 16}])
def test_uuid_is_text_over_a_string_and_over_bytes(base: Any) -> None:
    type_ = (
        {"type": base, "logicalType": "uuid"}
        if isinstance(base, str)
        else {**base, "logicalType": "uuid"}
    )
    assert of_field(type_, UUID_TEXT) == UUID_TEXT
    with pytest.raises(InvalidValue, match="not a UUID"):
        of_field(type_, "nope")


def test_unknown_logical_type_is_ignored() -> None:
    assert of_field({"type": "int", "logicalType": "colour"}, 3) == 3


@pytest.mark.parametrize(
    ("union", "value", "tagged"),
    [
        (["null", "string"], "a", {"string": "a"}),
        (["null", "string", "int"], 1, {"int": 1}),
        (["string", {"type": "array", "items": "int"}], [1], {"array": [1]}),
        (["null", {"type": "map", "values": "int"}], {"a": 1}, {"map": {"a": 1}}),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}], 5, {"long": 5}),
    ],
)
def test_branch_may_be_left_out_if_it_is_clear(union: Any, value: Any, tagged: Any) -> None:
    assert of_field(union, value) == tagged
    assert of_field(union, tagged) == tagged


def test_branch_must_be_named_if_two_take_the_value() -> None:
    with pytest.raises(InvalidValue, match=r"f: 5 is not clear: .*int, long.*\"int\""):
        of_field(["int", "long"], 5)
    assert of_field(["int", "long"], {"long": 5}) == {"long": 5}


def test_object_with_the_name_of_a_branch_is_that_branch() -> None:
    inner = {"type": "record", "name": "R", "fields": [{"name": "string", "type": "string"}]}
    union = ["null", inner, "string"]
    assert of_field(union, {"string": "a"}) == {"string": "a"}
    assert of_field(union, {"shop.R": {"string": "a"}}) == {"shop.R": {"string": "a"}}


def test_error_of_the_only_branch_is_reported() -> None:
    with pytest.raises(InvalidValue, match="'x' is not a number"):
        of_field(["null", "int"], "x")
    with pytest.raises(InvalidValue, match="branch of the union: int, string"):
        of_field(["int", "string"], None)


def test_missing_field_has_its_default() -> None:
    fields = [
        {"name": "a", "type": "int", "default": 7},
        {"name": "b", "type": ["null", "string"], "default": None},
        {"name": "c", "type": ["string", "null"], "default": "x"},
        {"name": "d", "type": "bytes", "default": "\u00ff"},
        {"name": "e", "type": {"type": "array", "items": "int"}, "default": []},
    ]
    whole = record(*fields)
    assert whole.decode(whole.encode({})) == {
        "a": 7,
        "b": None,
        "c": {"string": "x"},
        "d": "\u00ff",
        "e": [],
    }


def test_default_of_a_decimal_is_bytes() -> None:
    decimal = record(field(DECIMAL, default="\u0004\u00d2"))
    assert decimal.decode(decimal.encode({})) == {"f": "12.34"}


def test_missing_and_unknown_fields_are_named_with_their_path() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": "int"}]}
    lines = record({"name": "lines", "type": {"type": "array", "items": line}})
    with pytest.raises(InvalidValue, match=r"^lines\.1: the field 'price' of shop\.Line is miss"):
        lines.encode({"lines": [{"price": 1}, {}]})
    with pytest.raises(InvalidValue, match=r"^lines\.0: shop\.Line has no field 'prize'"):
        lines.encode({"lines": [{"price": 1, "prize": 2}]})
    with pytest.raises(InvalidValue, match=r"^lines\.0\.price: 'x' is not a number"):
        lines.encode({"lines": [{"price": "x"}]})


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", 2**31),
        ("long", 2**63),
        ("int", True),
        ("int", Decimal("1.0")),
        ("boolean", 1),
        ("float", 1e39),
        ("double", "x"),
        ("string", "\ud800"),
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "Y"),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, []),
        ("null", 0),
    ],
)
def test_value_of_another_type_is_refused(type_: Any, value: Any) -> None:
    with pytest.raises(InvalidValue):
        of_field(type_, value)


@pytest.mark.parametrize(
    ("type_", "data", "reason"),
    [
        ("string", b"\xfe\xff\xff\xff\x0f" + b"x" * 5, "a length of"),
        ("string", b"\x01", "a length of -1"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("boolean", b"\x02", "boolean"),
        ("int", b"\x80\x80\x80\x80\x80\x01", "for an int"),
        ("long", b"\xff" * 9 + b"\x7f", "64 bits"),
        ("long", b"\x80", "no last byte"),
        ("long", b"", "no last byte"),
        ("long", b"\x02\x02", "1 bytes follow"),
        (["null"], b"\x02", "branch 1"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, b"\x02", "symbol 1"),
        ({"type": "array", "items": "int"}, b"\x02", "no last byte"),
    ],
)
def test_damaged_bytes_are_refused(type_: Any, data: bytes, reason: str) -> None:
    with pytest.raises(UndecodableValue, match=reason):
        codec(type_).decode(data)


def test_items_without_bytes_do_not_fill_the_memory() -> None:
    nulls = codec({"type": "array", "items": "null"})
    assert nulls.decode(b"\x06\x00") == [None, None, None]
    too_many = codec("long").encode(EMPTY_ITEMS_MAX * 2) + b"\x00"
    with pytest.raises(UndecodableValue, match="an array or map"):
        nulls.decode(too_many)


def test_deep_value_is_refused() -> None:
    tree = record(field(["null", "shop.Order"]))
    with pytest.raises(UndecodableValue, match="nested too deeply"):
        tree.decode(b"\x02" * 100_000 + b"\x00")
    value: object = None
    for _ in range(100_000):
        value = {"f": {"shop.Order": value}}
    with pytest.raises(InvalidValue, match="nested too deeply"):
        tree.encode(value)


def test_recursive_schema_is_read() -> None:
    tree = record(field(["null", "Order"]), {"name": "n", "type": "int"})
    value = {"f": {"shop.Order": {"f": None, "n": 2}}, "n": 1}
    assert tree.decode(tree.encode(value)) == value


def test_names_of_references_are_known() -> None:
    address = {"type": "record", "name": "Address", "namespace": "geo", "fields": []}
    text = json.dumps({"type": "array", "items": ["null", "geo.Address"]})
    whole = AvroCodec(text, [ResolvedReference("geo.Address", json.dumps(address))])
    assert whole.decode(whole.encode([{"geo.Address": {}}, None])) == [{"geo.Address": {}}, None]


def test_namespace_of_an_outer_type_applies_to_names_in_it() -> None:
    inner = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    whole = record({"name": "a", "type": inner}, {"name": "b", "type": ["null", "Colour"]})
    assert whole.decode(whole.encode({"a": "RED", "b": "RED"})) == {
        "a": "RED",
        "b": {"shop.Colour": "RED"},
    }


@pytest.mark.parametrize(
    "schema",
    [
        "Missing",
        {"type": "record", "name": "R"},
        {"type": "record", "name": "R", "fields": {}},
        {"type": "enum", "name": "E", "symbols": 3},
        {"type": "fixed", "name": "F", "size": -1},
        {"type": "fixed", "size": 1},
        {"name": "R"},
        5,
    ],
)
def test_invalid_schema_is_refused(schema: Any) -> None:
    with pytest.raises(UnusableSchema):
        codec(schema)


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(UnusableSchema):
        AvroCodec("{")


def test_nan_is_not_a_decimal_number() -> None:
    with pytest.raises(InvalidValue):
        of_field(DECIMAL, math.nan)
