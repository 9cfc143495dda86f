"""The rules by which an Avro schema reads data of another, each with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.registry.compatibility.avro import (
    COMPARISONS_MAX,
    REASONS_MAX,
    Reason,
    ReasonKind,
    check,
    reasons,
)
from odradek.registry.schemas.avro import ParsedAvro, parse
from odradek.registry.schemas.parsed import ResolvedReference


def schema(node: Any) -> ParsedAvro:
    return parse(json.dumps(node))


def record(*fields: Any, name: str = "Order", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def field(name: str, type_: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **attributes}


def enum(*symbols: str, **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **attributes}


def found(reader: Any, writer: Any) -> list[Reason]:
    return reasons(schema(reader), schema(writer))


PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PROMOTIONS = {
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("bytes", "string"),
    ("string", "bytes"),
}


@pytest.mark.parametrize("reader", PRIMITIVES)
@pytest.mark.parametrize("writer", PRIMITIVES)
def test_primitives_are_promoted(reader: str, writer: str) -> None:
    is_readable = reader == writer or (reader, writer) in PROMOTIONS
    assert (found(reader, writer) == []) == is_readable


def test_different_types_are_a_type_mismatch() -> None:
    assert found(record(field("id", "int")), record(field("id", "string"))) == [
        Reason(
            ReasonKind.TYPE_MISMATCH,
            "/fields/0/type",
            "reader type: INT not compatible with writer type: STRING",
        )
    ]


def test_a_field_without_a_writer_needs_a_default() -> None:
    writer = record()
    assert found(record(field("id", "int", default=1)), writer) == []
    assert found(record(field("id", ["null", "int"], default=None)), writer) == []
    assert found(record(field("id", "int")), writer) == [
        Reason(ReasonKind.READER_FIELD_MISSING_DEFAULT_VALUE, "/fields/0", "id")
    ]


def test_a_field_of_the_writer_may_be_unknown_to_the_reader() -> None:
    assert found(record(), record(field("id", "int"))) == []


def test_an_enum_without_a_writer_is_compared_with_the_record() -> None:
    """Java has this rule for a field whose enum has a default of its own."""
    reader = record(field("colour", enum("RED", default="RED")))
    assert found(reader, record()) == [
        Reason(
            ReasonKind.TYPE_MISMATCH,
            "/fields/0/type",
            "reader type: ENUM not compatible with writer type: RECORD",
        )
    ]


def test_field_aliases_of_the_reader_count() -> None:
    renamed = record(field("number", "int", aliases=["id"]))
    assert found(renamed, record(field("id", "int"))) == []
    assert found(record(field("id", "int")), renamed) != []


def test_a_field_with_two_writers_is_incomparable() -> None:
    reader = schema(record(field("id", "int", aliases=["number"])))
    writer = schema(record(field("id", "int"), field("number", "int")))
    (message,) = check(reader, writer)
    assert message == (
        "Unexpected exception during compatibility check: Reader record field id type:INT pos:0"
        f" matches multiple fields in writer record schema {writer.canonical}"
    )


def test_names_are_compared_without_namespaces() -> None:
    assert found(record(namespace="a"), record(namespace="b")) == []
    assert found(record(name="Order"), record(name="Purchase", namespace="shop")) == [
        Reason(ReasonKind.NAME_MISMATCH, "/name", "expected: shop.Purchase")
    ]


@pytest.mark.parametrize(
    ("alias", "is_readable"),
    [("shop.Purchase", True), ("Purchase", False), ("other.Purchase", False)],
)
def test_aliases_of_the_reader_are_full_names(alias: str, is_readable: bool) -> None:
    reader = record(name="Order", namespace="other", aliases=[alias])
    writer = record(name="Purchase", namespace="shop")
    assert (found(reader, writer) == []) == is_readable


def test_an_alias_is_in_the_namespace_of_its_type() -> None:
    reader = record(name="Order", namespace="shop", aliases=["Purchase"])
    assert found(reader, record(name="Purchase", namespace="shop")) == []


def test_missing_symbols_are_sorted() -> None:
    assert found(enum("RED"), enum("RED", "WHITE", "BLUE")) == [
        Reason(ReasonKind.MISSING_ENUM_SYMBOLS, "/symbols", "[BLUE, WHITE]")
    ]


def test_a_default_symbol_replaces_missing_ones() -> None:
    assert found(enum("RED", default="RED"), enum("RED", "BLUE")) == []
    assert found(enum("RED"), enum("RED", "BLUE", default="RED")) != []


def test_sizes_of_fixed_types_are_equal() -> None:
    reader, writer = ({"type": "fixed", "name": "Hash", "size": size} for size in (8, 16))
    assert found(reader, writer) == [
        Reason(ReasonKind.FIXED_SIZE_MISMATCH, "/size", "expected: 16, found: 8")
    ]


def test_every_branch_of_a_writers_union_is_readable() -> None:
    assert found(["null", "long"], ["int", "null"]) == []
    assert found(["null", "int"], ["null", "long", "string"]) == [
        Reason(ReasonKind.MISSING_UNION_BRANCH, "/1", "reader union lacking writer type: LONG"),
        Reason(ReasonKind.MISSING_UNION_BRANCH, "/2", "reader union lacking writer type: STRING"),
    ]


def test_a_union_reads_a_type_by_one_of_its_branches() -> None:
    assert found(["null", "double"], "int") == []
    assert found(["null", "int"], "string") == [
        Reason(ReasonKind.MISSING_UNION_BRANCH, "/", "reader union lacking writer type: STRING")
    ]


def test_a_type_reads_a_union_whose_branches_it_reads() -> None:
    assert found("long", ["int", "long"]) == []
    assert found(record(field("id", "long")), record(field("id", ["null", "int"]))) == [
        Reason(
            ReasonKind.TYPE_MISMATCH,
            "/fields/0/type/0",
            "reader type: LONG not compatible with writer type: NULL",
        )
    ]


@pytest.mark.parametrize("kind", ["array", "map"])
def test_collections_are_compared_by_their_parts(kind: str) -> None:
    part = "items" if kind == "array" else "values"
    assert found({"type": kind, part: "long"}, {"type": kind, part: "int"}) == []
    (reason,) = found({"type": kind, part: "int"}, {"type": kind, part: "long"})
    assert reason.location == f"/{part}"


def test_recursive_types_are_compared_once() -> None:
    def tree(value: str) -> dict[str, Any]:
        return record(
            field("value", value),
            field("left", ["null", "Tree"], default=None),
            field("right", ["null", "Tree"], default=None),
            name="Tree",
        )

    assert found(tree("long"), tree("int")) == []
    locations = [reason.location for reason in found(tree("int"), tree("long"))]
    assert locations == ["/fields/0/type"]


def test_types_of_references_are_compared() -> None:
    item = ResolvedReference("item", json.dumps(record(field("id", "int"), name="Item")))
    old = ResolvedReference("item", json.dumps(record(field("id", "string"), name="Item")))
    order = json.dumps(record(field("item", "Item")))
    (reason,) = reasons(parse(order, (item,)), parse(order, (old,)))
    assert reason.location == "/fields/0/type/fields/0/type"


def test_a_chain_of_types_may_be_deeper_than_pythons_stack() -> None:
    length = 5_000
    chain = [
        record(field("next", ["null", f"Link{number + 1}"], default=None), name=f"Link{number}")
        for number in range(length)
    ]
    last = record(field("end", "int"), name=f"Link{length}")
    links = (field(f"link{number}", each) for number, each in enumerate([*chain, last]))
    root = schema(record(*links, name="Root"))
    assert reasons(root, root) == []


def test_shared_types_do_not_multiply_reasons() -> None:
    """Each record has two fields of the record before it, so Java returns 2**40 reasons."""

    def shared(type_: str) -> ParsedAvro:
        types: list[Any] = [record(field("a", type_), name="Type0")]
        for number in range(1, 41):
            part = f"Type{number - 1}"
            types.append(record(field("a", part), field("b", part), name=f"Type{number}"))
        wrapped = record(*(field(f"f{at}", each) for at, each in enumerate(types)), name="Root")
        return schema(wrapped)

    assert len(reasons(shared("int"), shared("string"))) == REASONS_MAX


def test_too_many_comparisons_are_incompatible() -> None:
    size = 1 + int((2 * COMPARISONS_MAX) ** 0.5)
    reader = schema([record(name=f"Reader{number}") for number in range(size)])
    writer = schema([record(name=f"Writer{number}") for number in range(size)])
    (message,) = check(reader, writer)
    assert str(COMPARISONS_MAX) in message


def test_messages_are_those_of_confluents_registry() -> None:
    (message,) = check(schema(record(field("id", "int"))), schema(record()))
    assert message == (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'id' at path"
        " '/fields/0' in the %s schema has no default value and is missing in the %s schema',"
        " additionalInfo:'id'}"
    )


@pytest.mark.parametrize("kind", list(ReasonKind))
def test_every_reason_has_a_description(kind: ReasonKind) -> None:
    assert "description:'The " in str(Reason(kind, "/fields/0", "details"))
