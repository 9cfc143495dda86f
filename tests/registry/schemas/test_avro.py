"""Avro schemas: the texts that Confluent's registry stores, references and limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.registry.schemas.avro import parse, parse_stored
from odradek.registry.schemas.avro_defaults import COMPARISONS_MAX
from odradek.registry.schemas.parsed import (
    DEPTH_MAX,
    TEXT_BYTES_MAX,
    InvalidSchema,
    ResolvedReference,
    SchemaKind,
    UnsupportedFormat,
)


def compact(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False)


def canonical(node: Any) -> str:
    return parse(json.dumps(node)).canonical


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "item", "type": "Item"}],
}
ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": []}


# --- The canonical text ---


@pytest.mark.parametrize("text", ['"int"', '{"type":"int"}', ' { "type" : "int" } '])
def test_a_primitive_without_attributes_is_its_name(text: str) -> None:
    assert parse(text).canonical == '"int"'


def test_attributes_have_the_order_of_java() -> None:
    record = {
        "aliases": ["Old"],
        "source": "a",
        "fields": [
            {
                "logicalHint": 1,
                "aliases": ["number"],
                "order": "descending",
                "default": 1,
                "doc": "The id.",
                "type": "int",
                "name": "id",
            }
        ],
        "doc": "An order.",
        "namespace": "shop",
        "name": "Order",
        "type": "record",
    }
    assert canonical(record) == compact(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "doc": "An order.",
            "fields": [
                {
                    "name": "id",
                    "type": "int",
                    "doc": "The id.",
                    "default": 1,
                    "order": "descending",
                    "aliases": ["number"],
                    "logicalHint": 1,
                }
            ],
            "source": "a",
            "aliases": ["Old"],
        }
    )


def test_every_kind_of_type_is_written() -> None:
    node = [
        "null",
        {"type": "array", "items": {"type": "map", "values": "long"}},
        {"type": "fixed", "name": "Hash", "size": 16},
        {"type": "enum", "name": "Colour", "symbols": ["RED"], "default": "RED"},
        {"type": "error", "name": "Failure", "fields": []},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    ]
    assert canonical(node) == compact(node)


def test_the_default_order_is_not_written() -> None:
    field = {"name": "id", "type": "int", "order": "ASCENDING"}
    written = json.loads(canonical({"type": "record", "name": "Order", "fields": [field]}))
    assert written["fields"] == [{"name": "id", "type": "int"}]


def test_a_namespace_is_written_where_it_changes() -> None:
    node = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "a", "type": {"type": "fixed", "name": "A", "namespace": "shop", "size": 1}},
            {"name": "b", "type": {"type": "fixed", "name": "B", "namespace": "other", "size": 1}},
            {"name": "c", "type": {"type": "fixed", "name": "C", "namespace": "", "size": 1}},
            {"name": "d", "type": "shop.A"},
            {"name": "e", "type": "other.B"},
            {"name": "f", "type": "C"},
        ],
    }
    written = json.loads(canonical(node))
    assert (written["name"], written["namespace"]) == ("Order", "shop")
    assert [field["type"] for field in written["fields"]] == [
        {"type": "fixed", "name": "A", "size": 1},
        {"type": "fixed", "name": "B", "namespace": "other", "size": 1},
        {"type": "fixed", "name": "C", "namespace": "", "size": 1},
        "A",
        "other.B",
        "C",
    ]


def test_a_type_named_as_a_kind_is_written_with_its_namespace() -> None:
    node = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "a", "type": {"type": "fixed", "name": "array", "size": 1}},
            {"name": "b", "type": "array"},
        ],
    }
    written = json.loads(canonical(node))
    assert written["fields"][1]["type"] == "shop.array"


def test_a_definition_is_written_at_its_first_use() -> None:
    node = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "first", "type": "Item"},
            {"name": "second", "type": {"type": "record", "name": "Item", "fields": []}},
        ],
    }
    written = json.loads(canonical(node))
    assert [field["type"] for field in written["fields"]] == [
        {"type": "record", "name": "Item", "fields": []},
        "Item",
    ]


def test_a_recursive_type_is_written_once() -> None:
    node = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "left", "type": ["null", "Tree"], "default": None}],
    }
    assert canonical(node) == compact(node)


def test_texts_of_other_alphabets_are_kept() -> None:
    node = {"type": "record", "name": "Order", "doc": "Bestellung für é\u2028", "fields": []}
    assert canonical(node) == compact(node)


@pytest.mark.parametrize(
    ("default", "written"),
    [("1.50", "1.5"), ('"2"', "2.0"), ('"1e3f"', "1000.0"), ('"NaN"', '"NaN"'), ("7", "7")],
)
def test_a_default_of_a_double_may_be_a_string(default: str, written: str) -> None:
    text = '{"type":"record","name":"A","fields":[{"name":"b","type":"double","default":%s}]}'
    assert parse(text % default).canonical == text % written


def test_aliases_are_written_relative_to_their_type() -> None:
    node = {
        "type": "fixed",
        "name": "shop.Hash",
        "size": 1,
        "aliases": ["Old", "shop.Older", "other.Oldest", "Old"],
    }
    assert json.loads(canonical(node))["aliases"] == ["Old", "Older", "other.Oldest"]


# --- References and formats ---


def test_a_type_of_a_reference_is_written_as_a_name() -> None:
    parsed = parse(json.dumps(ORDER), (ResolvedReference("item", json.dumps(ITEM)),))
    assert parsed.kind is SchemaKind.AVRO
    assert parsed.full_name == "shop.Order"
    assert parsed.canonical == compact(ORDER)
    assert parsed.formatted("") == parsed.formatted("default") == parsed.canonical
    resolved = json.loads(parsed.formatted("RESOLVED"))
    assert resolved["fields"][0]["type"] == {"type": "record", "name": "Item", "fields": []}
    with pytest.raises(UnsupportedFormat):
        parsed.formatted("serialized")


def test_a_type_inside_of_a_reference_is_written_where_it_is_used() -> None:
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}}],
    }
    parsed = parse(
        json.dumps({"type": "array", "items": "Hash"}),
        (ResolvedReference("outer", json.dumps(outer)),),
    )
    assert json.loads(parsed.canonical)["items"] == {"type": "fixed", "name": "Hash", "size": 4}


def test_references_may_use_earlier_ones() -> None:
    references = tuple(
        ResolvedReference(name, text)
        for name, text in [
            ("hash", '{"type":"fixed","name":"Hash","size":4}'),
            ("hashes", '{"type":"record","name":"Hashes","fields":[{"name":"a","type":"Hash"}]}'),
        ]
    )
    assert parse('["Hashes","Hash"]', references).canonical == '["Hashes","Hash"]'
    with pytest.raises(InvalidSchema, match="Reference 'hashes': The type 'Hash' is not defined"):
        parse('["Hashes","Hash"]', references[::-1])


def test_a_definition_may_be_repeated_but_not_changed() -> None:
    hashes = [{"type": "fixed", "name": "Hash", "size": size} for size in (4, 8)]
    reference = (ResolvedReference("hash", json.dumps(hashes[0])),)
    array = {"type": "array", "items": hashes[0]}
    assert parse(json.dumps(array), reference).canonical == '{"type":"array","items":"Hash"}'
    array["items"] = hashes[1]
    with pytest.raises(InvalidSchema, match="Can't redefine: Hash"):
        parse(json.dumps(array), reference)


# --- The normal text ---


def test_equivalent_schemas_have_one_normal_text() -> None:
    first = """{"type": "record", "name": "shop.Order", "doc": "", "z": {"b": 1, "a": 2},
        "aliases": ["b.Z", "A"], "y": 1, "fields": [
        {"name": "a", "type": {"type": "bytes", "x": 1, "scale": 0, "precision": 4,
         "logicalType": "decimal"}},
        {"name": "b", "type": "double", "default": 1, "aliases": ["y", "x"]},
        {"name": "c", "type": {"type": "map", "values": "int"}, "default": {"b": 1, "a": 2}}]}"""
    second = """{"aliases": ["shop.A", "b.Z"], "namespace": "shop", "name": "Order", "y": 1,
        "z": {"a": 2, "b": 1}, "type": "record", "fields": [
        {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4,
         "scale": 0, "x": 1}, "order": "ascending"},
        {"name": "b", "aliases": ["x", "y"], "type": {"type": "double"}, "default": 1.0},
        {"name": "c", "default": {"a": 2, "b": 1}, "type": {"type": "map", "values": "int"}}]}"""
    normal = parse(first).normalized()
    assert parse(second).normalized() == normal
    assert parse(normal).normalized() == normal
    assert json.loads(normal)["aliases"] == ["b.Z", "A"]
    assert '"logicalType":"decimal","precision":4,"scale":0,"x":1' in normal
    assert "doc" not in normal


def test_a_normal_text_keeps_what_differs() -> None:
    node = {
        "type": "record",
        "name": "Order",
        "doc": 'hi"there',
        "fields": [{"name": "f1", "type": "string", "doc": 'bye"now'}],
    }
    assert parse(json.dumps(node)).normalized() == compact(node)


def test_a_normal_default_of_a_float_has_the_digits_of_a_float() -> None:
    text = '{"type":"record","name":"A","fields":[{"name":"b","type":"float","default":%s}]}'
    assert parse(text % "0.100000001").normalized() == text % "0.1"
    assert parse(text % "16777217").normalized() == text % "1.6777216E7"


def test_a_normal_text_keeps_the_default_of_a_later_branch() -> None:
    text = '{"type":"record","name":"A","fields":[{"name":"b","type":["null","int"],"default":5}]}'
    assert parse(text).normalized() == text


def test_a_normal_text_names_the_types_of_references() -> None:
    parsed = parse(json.dumps(ORDER), (ResolvedReference("item", json.dumps(ITEM)),))
    assert parsed.normalized() == compact(ORDER)


# --- Limits ---


def test_the_text_is_limited_in_bytes() -> None:
    text = '"int"' + " " * (TEXT_BYTES_MAX - 5)
    assert parse(text).canonical == '"int"'
    with pytest.raises(InvalidSchema, match="bytes"):
        parse(text + " ")


def test_references_are_limited_in_bytes_together() -> None:
    half = '"int"' + " " * (TEXT_BYTES_MAX // 2 - 5)
    references = (ResolvedReference("a", half), ResolvedReference("b", half))
    assert parse('"int"', references).canonical == '"int"'
    with pytest.raises(InvalidSchema, match="bytes"):
        parse('"int"', (*references, ResolvedReference("c", '"int"')))


def _nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


def test_the_depth_of_types_is_limited() -> None:
    assert parse(_nested(DEPTH_MAX)).canonical == _nested(DEPTH_MAX)
    with pytest.raises(InvalidSchema, match="nested deeper than"):
        parse(_nested(DEPTH_MAX + 1))


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_any_depth_of_json_is_answered(depth: int) -> None:
    attribute = '{"type":"int","a":' + "[" * depth + "]" * depth + "}"
    for text in (_nested(depth // 5), attribute, "[" * depth + "]" * depth):
        with pytest.raises(InvalidSchema):
            parse(text)


def test_defaults_of_shared_types_are_validated_once() -> None:
    """Each record has two fields of the record before it. Java compares 2**60 values."""
    part: Any = {
        "type": "record",
        "name": "Type0",
        "fields": [{"name": "a", "type": "int", "default": 1}],
    }
    fields: list[dict[str, Any]] = []
    for number in range(1, 60):
        fields.append({"name": f"f{number}", "type": part})
        part = {
            "type": "record",
            "name": f"Type{number}",
            "fields": [{"name": name, "type": f"Type{number - 1}", "default": {}} for name in "ab"],
        }
    fields.append({"name": "last", "type": part, "default": {}})
    text = json.dumps({"type": "record", "name": "Root", "fields": fields})
    assert parse(text).full_name == "Root"


def test_comparisons_of_defaults_are_limited() -> None:
    branches = [{"type": "fixed", "name": f"Hash{number}", "size": 1} for number in range(2_000)]
    items = {"type": "array", "items": [*branches, "int"]}
    field = {"name": "a", "type": items, "default": [1] * (COMPARISONS_MAX // 2_000 + 1)}
    with pytest.raises(InvalidSchema, match=str(COMPARISONS_MAX)):
        parse(json.dumps({"type": "record", "name": "Root", "fields": [field]}))


def test_a_default_that_needs_itself_is_invalid() -> None:
    text = """{"type": "record", "name": "Loop", "fields": [
        {"name": "next", "type": "Loop", "default": {}}]}"""
    with pytest.raises(InvalidSchema, match="inside of its own default"):
        parse(text)
    assert parse_stored(text).full_name == "Loop"


def test_half_of_a_surrogate_pair_is_invalid() -> None:
    with pytest.raises(InvalidSchema, match="surrogate"):
        parse('{"type":"int","note":"\\ud800"}')
