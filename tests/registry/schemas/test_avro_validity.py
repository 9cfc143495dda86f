"""Which texts are Avro schemas: the verdicts of Java's library 1.12 with strict names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.schemas.avro import parse, parse_stored
from odradek.registry.schemas.parsed import InvalidSchema
from tests.registry.avro_pairs import AvroPair
from tests.registry.java_verdicts import java_verdicts


def record(*fields: Any, **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields), **attributes}


def with_default(type_: Any, default: Any) -> dict[str, Any]:
    return record({"name": "id", "type": type_, "default": default})


def enum(*symbols: Any, **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **attributes}


def fixed(size: Any, **attributes: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "Hash", "size": size, **attributes}


VALID: dict[str, Any] = {
    "an empty union": [],
    "a record without fields": record(),
    "an enum without symbols": enum(),
    "a fixed of no bytes": fixed(0),
    "a type that is defined later": record(
        {"name": "a", "type": "Hash"}, {"name": "b", "type": fixed(4)}
    ),
    "a type that is defined twice alike": record(
        {"name": "a", "type": fixed(4)}, {"name": "b", "type": fixed(4)}
    ),
    "definitions that differ in documents": record(
        {"name": "a", "type": fixed(4, doc="a")}, {"name": "b", "type": fixed(4, aliases=["B"])}
    ),
    "an attribute of a second definition": record(
        {"name": "a", "type": fixed(4)}, {"name": "b", "type": fixed(4, note="b")}
    ),
    "an open type without a namespace inside of one": record(
        {
            "name": "part",
            "type": record({"name": "order", "type": ["null", "Order"]}, name="shop.Part"),
        }
    ),
    "a name without a namespace inside of one": record(
        {"name": "a", "type": fixed(4, namespace="")},
        {"name": "b", "type": "Hash"},
        namespace="shop",
    ),
    "a name in the type's place of an object": record(
        {"name": "a", "type": fixed(4)}, {"name": "b", "type": {"type": "Hash"}}
    ),
    "a type named as another kind": record(name="record"),
    "an unknown logical type": {"type": "int", "logicalType": "unknown"},
    "an invalid decimal": {"type": "bytes", "logicalType": "decimal", "precision": -1},
    "a document that is no string": record(doc=5),
    "a namespace that is no string": record(namespace=5),
    "an order in capitals": record({"name": "a", "type": "int", "order": "IGNORE"}),
    "an enum with a default that is no string": enum("RED", default=5),
    "a default of a later branch": with_default(["null", "int"], 5),
    "an unknown symbol as a default": with_default(enum("RED"), "BLUE"),
    "a default of another length": with_default(fixed(4), "x"),
    "a whole number for a float": with_default("float", 1),
    "a string for a float": with_default("float", " 1.5f "),
    "a default null": with_default("null", None),
    "a default of a record": with_default(
        {"type": "record", "name": "Part", "fields": [{"name": "a", "type": "int", "default": 1}]},
        {"unknown": 1},
    ),
    "a default of a map": with_default({"type": "map", "values": "long"}, {"a": 1 << 40}),
}

INVALID: dict[str, Any] = {
    "a number": 5,
    "null": None,
    "a boolean": True,
    "an unknown name": "Unknown",
    "an empty name": "",
    "no type": {"name": "Order"},
    "a type that is an object": {"type": {"type": "int"}},
    "a type that is a union": {"type": ["null", "int"]},
    "the word union": {"type": "union"},
    "a record without a list of fields": {"type": "record", "name": "Order"},
    "fields that are an object": record(fields={}),
    "a record without a name": {"type": "record", "fields": []},
    "a record with a name that is no string": record(name=5),
    "a record named as a primitive": record(name="int"),
    "a name with a hyphen": record(name="or-der"),
    "a name that begins with a digit": record(name="1order"),
    "a name of another alphabet": record(name="Größe"),
    "a name that ends with a dot": record(name="shop."),
    "a namespace with a hyphen": record(namespace="my-shop"),
    "a namespace with two dots": record(namespace="my..shop"),
    "a field that is a string": record("id"),
    "a field without a name": record({"type": "int"}),
    "a field with an empty name": record({"name": "", "type": "int"}),
    "a field with a dot in its name": record({"name": "a.b", "type": "int"}),
    "a field without a type": record({"name": "id"}),
    "a field of type null": record({"name": "id", "type": None}),
    "two fields of one name": record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
    "an unknown order": record({"name": "a", "type": "int", "order": "up"}),
    "an order that is no string": record({"name": "a", "type": "int", "order": None}),
    "an array without items": {"type": "array"},
    "a map without values": {"type": "map", "items": "int"},
    "an enum without a list of symbols": {"type": "enum", "name": "Colour"},
    "a symbol that is no string": enum(5),
    "a symbol with a space": enum("RED GREEN"),
    "a symbol twice": enum("RED", "RED"),
    "a default that is not a symbol": enum("RED", default="BLUE"),
    "a fixed without a size": {"type": "fixed", "name": "Hash"},
    "a negative size": fixed(-1),
    "a size that is a fraction": fixed(1.5),
    "a size that is a boolean": fixed(True),
    "a size that is a string": fixed("4"),
    "a size above the limit": fixed(1 << 31),
    "a union in a union": ["null", ["int"]],
    "a primitive twice in a union": ["int", {"type": "int", "logicalType": "date"}],
    "two arrays in a union": [{"type": "array", "items": each} for each in ("int", "long")],
    "a name twice in a union": record(
        {"name": "a", "type": fixed(4)}, {"name": "b", "type": ["Hash", "Hash"]}
    ),
    "a later name twice in a union": record(
        {"name": "a", "type": ["Hash", "Hash"]}, {"name": "b", "type": fixed(4)}
    ),
    "a type that is defined twice": record(
        {"name": "a", "type": fixed(4)}, {"name": "b", "type": fixed(8)}
    ),
    "an attribute of a first definition": record(
        {"name": "a", "type": fixed(4, note="b")}, {"name": "b", "type": fixed(4)}
    ),
    "a record that is defined twice alike": record(
        {"name": "a", "type": record(name="Part")}, {"name": "b", "type": record(name="Part")}
    ),
    "a later type without a namespace inside of one": record(
        {"name": "part", "type": record({"name": "hash", "type": "Hash"}, name="shop.Part")},
        {"name": "hash", "type": fixed(4)},
    ),
    "a default with an open record": with_default("Order", {}),
    "a default with an open record or a map": with_default(
        ["Order", {"type": "map", "values": "int"}], {}
    ),
    "aliases that are no list": record(aliases="Old"),
    "an alias that is no string": record(aliases=[5]),
    "an alias with a hyphen": record(aliases=["or-der"]),
    "aliases of a field that are no list": record({"name": "a", "type": "int", "aliases": "b"}),
    "a string for an int": with_default("int", "1"),
    "a fraction for an int": with_default("int", 1.0),
    "a boolean for an int": with_default("int", True),
    "a number above an int": with_default("int", 1 << 31),
    "a number above a long": with_default("long", 1 << 63),
    "a number for a boolean": with_default("boolean", 1),
    "a number for a string": with_default("string", 1),
    "null for an int": with_default("int", None),
    "a word for a float": with_default("float", "fast"),
    "a boolean for a double": with_default("double", True),
    "an item of another type": with_default({"type": "array", "items": "int"}, [1, "2"]),
    "a value of another type": with_default({"type": "map", "values": "int"}, {"a": "2"}),
    "a default of no branch": with_default(["null", "int"], "text"),
    "a default without a field": with_default(
        {"type": "record", "name": "Part", "fields": [{"name": "a", "type": "int"}]}, {}
    ),
}

TEXTS = {
    "two values": ('"int" "long"', False),
    "a comment": ('/* a */ {"type": // b\n "int"}', True),
    "a comment at the end": ('"int" // b', False),
    "a member twice": ('{"type":"long","type":"int"}', True),
    "no text": ("", False),
    "spaces": ("  ", False),
    "a name without quotation marks": ("int", False),
    "a number that is not in JSON": ('{"type":"int","a":NaN}', False),
}


@pytest.mark.parametrize("name", VALID)
def test_valid_schemas_are_accepted(name: str) -> None:
    parse(json.dumps(VALID[name]))


@pytest.mark.parametrize("name", INVALID)
def test_invalid_schemas_are_rejected_with_a_message(name: str) -> None:
    with pytest.raises(InvalidSchema, match=r"\w"):
        parse(json.dumps(INVALID[name]))


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_read_as_by_jackson(name: str) -> None:
    text, is_valid = TEXTS[name]
    if is_valid:
        assert parse(text).canonical == '"int"'
    else:
        with pytest.raises(InvalidSchema):
            parse(text)


def test_java_has_the_same_verdicts() -> None:
    named = {name: json.dumps(node) for name, node in {**VALID, **INVALID}.items()}
    named |= {name: text for name, (text, _) in TEXTS.items()}
    verdicts = java_verdicts([AvroPair(text, '"int"') for text in named.values()])
    accepted = {name for name, each in zip(named, verdicts, strict=True) if each.reader is not None}
    assert accepted == set(VALID) | {name for name, (_, is_valid) in TEXTS.items() if is_valid}


def test_a_message_has_the_place() -> None:
    part = {"type": "array", "items": {"type": "map", "values": "nothing.Here"}}
    with pytest.raises(InvalidSchema, match=r"The type 'nothing.Here' is not defined"):
        parse(json.dumps(record({"name": "a", "type": part})))
    part["items"] = {"type": "map", "values": 5}
    with pytest.raises(InvalidSchema, match=r"at '/fields/0/type/items/values'"):
        parse(json.dumps(record({"name": "a", "type": part})))


@pytest.mark.parametrize(
    "node",
    [with_default("int", "1"), record(name="Größe"), record(namespace="my-shop")],
    ids=["an invalid default", "a name of another alphabet", "a namespace with a hyphen"],
)
def test_stored_schemas_may_break_newer_rules(node: Any) -> None:
    with pytest.raises(InvalidSchema):
        parse(json.dumps(node))
    assert json.loads(parse_stored(json.dumps(node)).canonical)["type"] == "record"


def test_a_record_inside_of_itself_is_invalid() -> None:
    """Java's library accepts it, and replaces the inner record by the outer one."""
    inner = record({"name": "id", "type": "int"})
    with pytest.raises(InvalidSchema, match="Can't redefine: Order"):
        parse(json.dumps(record({"name": "part", "type": inner})))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["int", "record", "enum", "fixed", "array", "map", "A", "a.B", "", "null"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("type", "name", "namespace", "fields", "items", "values", "symbols", "size"),
                    *("default", "aliases", "doc", "order", "logicalType", "x"),
                ]
            ),
            children,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_json_is_a_schema_or_invalid(node: Any) -> None:
    try:
        parsed = parse(json.dumps(node))
    except InvalidSchema:
        return
    assert parse(parsed.canonical).canonical == parsed.canonical
    assert parse(parsed.normalized()).normalized() == parsed.normalized()
    assert parse_stored(json.dumps(node)).canonical == parsed.canonical
