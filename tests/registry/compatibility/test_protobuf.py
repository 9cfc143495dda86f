"""Each rule of the comparison of Protobuf schemas, and its message."""

from __future__ import annotations

import pytest

from odradek.registry.compatibility.proto_differences import ProtoDifference, ProtoDifferenceKind
from odradek.registry.compatibility.protobuf import check, differences
from odradek.registry.schemas.parsed import ResolvedReference
from odradek.registry.schemas.protobuf import ParsedProtobuf, parse

COMPATIBLE = {
    "a field is added": ("string a = 1;", "string a = 1; int32 b = 2;", ["FIELD_ADDED #/M/2"]),
    "a field is removed": ("string a = 1; int32 b = 2;", "string a = 1;", ["FIELD_REMOVED #/M/2"]),
    "a field is renamed": ("string a = 1;", "string b = 1;", ["FIELD_NAME_CHANGED #/M/1"]),
    "integers are exchanged": ("int32 a = 1; bool b = 2;", "uint64 a = 1; int64 b = 2;", []),
    "zigzag integers are exchanged": ("sint32 a = 1;", "sint64 a = 1;", []),
    "fixed integers are exchanged": ("fixed32 a = 1;", "sfixed32 a = 1;", []),
    "an enum becomes an integer": ("E a = 1;", "int64 a = 1;", []),
    "an integer becomes an enum": ("int32 a = 1;", "E a = 1;", []),
    "a string becomes bytes": ("string a = 1;", "bytes a = 1;", []),
    "a string becomes repeated": (
        "string a = 1;",
        "repeated string a = 1;",
        ["FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"],
    ),
    "a message becomes repeated": ("P a = 1;", "repeated P a = 1;", []),
    "an implicit field becomes optional": ("int32 a = 1;", "optional int32 a = 1;", []),
    "values of a map are exchanged": ("map<string, int32> a = 1;", "map<string, int64> a = 1;", []),
    "a field moves to a new oneof": (
        "int32 a = 1; int32 b = 2;",
        "int32 a = 1; oneof c { int32 b = 2; int32 d = 3; }",
        ["ONEOF_ADDED #/M/c", "ONEOF_FIELD_ADDED #/M/c/3"],
    ),
    "a field leaves its oneof": (
        "oneof c { int32 a = 1; int32 b = 2; }",
        "int32 a = 1; oneof c { int32 b = 2; }",
        ["ONEOF_FIELD_MOVED_TO_TOP_LEVEL #/M/1"],
    ),
    "a oneof is renamed": (
        "oneof c { int32 a = 1; int32 b = 2; }",
        "oneof d { int32 a = 1; int32 b = 2; }",
        ["ONEOF_REMOVED #/M/c", "ONEOF_ADDED #/M/d"],
    ),
    "a whole oneof is removed": (
        "int32 z = 9; oneof c { int32 a = 1; int32 b = 2; }",
        "int32 z = 9;",
        ["ONEOF_REMOVED #/M/c"],
    ),
    "a nested message is added": (
        "int32 a = 1;",
        "int32 a = 1; message N {}",
        ["MESSAGE_ADDED #/M/N"],
    ),
    "nested messages change places": (
        "message N {} message O {}",
        "message O {} message N {}",
        ["MESSAGE_MOVED #/M/N", "MESSAGE_MOVED #/M/O"],
    ),
    "a type is named in another way": ("P a = 1;", ".p.P a = 1;", []),
    "a nested enum changes": (
        "enum F { X = 0; Y = 1; Z = 2; }",
        "enum F { X = 0; W = 1; V = 3; }",
        [
            "ENUM_CONST_CHANGED #/M/F/1",
            "ENUM_CONST_REMOVED #/M/F/2",
            "ENUM_CONST_ADDED #/M/F/3",
        ],
    ),
    "a nested enum is replaced": (
        "enum F { X = 0; }",
        "enum G { X = 0; }",
        ["ENUM_REMOVED #/M/F", "ENUM_ADDED #/M/G"],
    ),
}
"""Bodies of the message M of the writer and the reader, and all differences."""

INCOMPATIBLE = {
    "an integer becomes a string": (
        "int32 a = 1;",
        "string a = 1;",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "an integer becomes zigzag": (
        "int32 a = 1;",
        "sint32 a = 1;",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "bytes become a string": (
        "bytes a = 1;",
        "string a = 1;",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "a float becomes a double": (
        "float a = 1;",
        "double a = 1;",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "a scalar becomes a message": ("int32 a = 1;", "P a = 1;", ["FIELD_KIND_CHANGED #/M/1"]),
    "a message becomes a map": (
        "repeated P a = 1;",
        "map<string, P> a = 1;",
        ["FIELD_KIND_CHANGED #/M/1"],
    ),
    "values of a map change": (
        "map<string, int32> a = 1;",
        "map<string, string> a = 1;",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "a message type changes": ("P a = 1;", "Q a = 1;", ["FIELD_NAMED_TYPE_CHANGED #/M/1"]),
    "a number becomes repeated": (
        "int32 a = 1;",
        "repeated int32 a = 1;",
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
    ),
    "a number in a oneof was repeated": (
        "repeated int32 a = 1;",
        "oneof c { int32 a = 1; }",
        ["ONEOF_ADDED #/M/c", "FIELD_NUMERIC_LABEL_CHANGED #/M/c/1"],
    ),
    "two fields move to a oneof": (
        "int32 a = 1; int32 b = 2;",
        "oneof c { int32 a = 1; int32 b = 2; }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/c", "ONEOF_ADDED #/M/c"],
    ),
    "a field moves to an existing oneof": (
        "int32 a = 1; oneof c { int32 b = 2; }",
        "oneof c { int32 a = 1; int32 b = 2; }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/c"],
    ),
    "two oneofs become one": (
        "oneof c { int32 a = 1; } oneof d { int32 b = 2; }",
        "oneof c { int32 a = 1; int32 b = 2; }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/c", "ONEOF_REMOVED #/M/d"],
    ),
    "a member of a oneof is removed": (
        "oneof c { int32 a = 1; int32 b = 2; }",
        "oneof c { int32 a = 1; }",
        ["ONEOF_FIELD_REMOVED #/M/c/2"],
    ),
    "a member of a renamed oneof is removed": (
        "oneof c { int32 a = 1; int32 b = 2; }",
        "oneof d { int32 a = 1; }",
        ["ONEOF_REMOVED #/M/c", "ONEOF_ADDED #/M/d", "ONEOF_FIELD_REMOVED #/M/c/2"],
    ),
    "a nested message is removed": ("message N {}", "", ["MESSAGE_REMOVED #/M/N"]),
}

PROTO2_INCOMPATIBLE = {
    "a required field is added": ("", "required int32 a = 1;", ["REQUIRED_FIELD_ADDED #/M/1"]),
    "a required field is removed": ("required int32 a = 1;", "", ["REQUIRED_FIELD_REMOVED #/M/1"]),
    "a string becomes required": (
        "optional string a = 1;",
        "required string a = 1;",
        ["REQUIRED_FIELD_ADDED #/M/1", "FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1"],
    ),
    "a message becomes required": (
        "optional P a = 1;",
        "required P a = 1;",
        ["REQUIRED_FIELD_ADDED #/M/1"],
    ),
    "a number is no longer required": (
        "required int32 a = 1;",
        "optional int32 a = 1;",
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
    ),
    "a required enum loses a value": (
        "required F a = 1; enum F { F_ZERO = 0; F_ONE = 1; }",
        "required F a = 1; enum F { F_ZERO = 0; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1", "ENUM_CONST_REMOVED #/M/F/1"],
    ),
    "a required integer becomes an enum": (
        "required int32 a = 1;",
        "required E a = 1;",
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
    ),
    "a group becomes a message": (
        "optional group G = 1 {}",
        "optional P g = 1;",
        ["FIELD_KIND_CHANGED #/M/1"],
    ),
    "a field of a group changes": (
        "optional group G = 1 { optional int32 a = 1; }",
        "optional group G = 1 { optional string a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED #/M/G/1"],
    ),
}

MODEL = "model.proto"


def _schema(body: str, syntax: str = "proto3") -> ParsedProtobuf:
    types = "message P {}\nmessage Q {}\nenum E { E_ZERO = 0; E_ONE = 1; }"
    return parse(f'syntax = "{syntax}";\npackage p;\nmessage M {{ {body} }}\n{types}\n', ())


def _texts(found: list[ProtoDifference]) -> list[str]:
    return [f"{each.kind.value} {each.location}" for each in found]


@pytest.mark.parametrize("name", COMPATIBLE)
def test_a_compatible_change_has_no_message(name: str) -> None:
    writer, reader = (_schema(body) for body in COMPATIBLE[name][:2])
    assert _texts(differences(reader, writer)) == COMPATIBLE[name][2]
    assert check(reader, writer) == []


@pytest.mark.parametrize("label", ["optional", "repeated"])
def test_an_enum_that_is_not_required_may_lose_a_value(label: str) -> None:
    writer = _schema(f"{label} F a = 1; enum F {{ F_ZERO = 0; F_ONE = 1; }}", "proto2")
    reader = _schema(f"{label} F a = 1; enum F {{ F_ZERO = 0; }}", "proto2")
    assert _texts(differences(reader, writer)) == ["ENUM_CONST_REMOVED #/M/F/1"]
    assert check(reader, writer) == []


@pytest.mark.parametrize("name", INCOMPATIBLE)
def test_an_incompatible_change_has_messages(name: str) -> None:
    writer, reader = (_schema(body) for body in INCOMPATIBLE[name][:2])
    assert _texts(differences(reader, writer)) == INCOMPATIBLE[name][2]
    assert check(reader, writer)


@pytest.mark.parametrize("name", PROTO2_INCOMPATIBLE)
def test_an_incompatible_change_of_proto2_has_messages(name: str) -> None:
    writer, reader = (_schema(body, "proto2") for body in PROTO2_INCOMPATIBLE[name][:2])
    assert _texts(differences(reader, writer)) == PROTO2_INCOMPATIBLE[name][2]
    assert check(reader, writer)


def test_another_package_is_incompatible() -> None:
    writer, reader = (parse(f"package {name}; message M {{}}", ()) for name in "ab")
    assert check(reader, writer) == [
        '{errorType:"PACKAGE_CHANGED", description:"The package at \'#/\' in the %s schema does '
        'not match the package in the %s schema"}'
    ]


def test_a_removed_message_is_incompatible() -> None:
    writer = parse("message A {} message B {}", ())
    reader = parse("message B {} enum A { ZERO = 0; }", ())
    assert _texts(differences(reader, writer)) == [
        "MESSAGE_REMOVED #/A",
        "MESSAGE_MOVED #/B",
        "ENUM_ADDED #/A",
    ]


def test_recursive_types_are_compared_once() -> None:
    writer = _schema("M m = 1; N n = 2; message N { M m = 1; int32 a = 2; }")
    reader = _schema("M m = 1; N n = 2; message N { M m = 1; string a = 2; }")
    assert _texts(differences(reader, writer)) == ["FIELD_SCALAR_KIND_CHANGED #/M/N/2"]


def _user(package: str, body: str) -> ParsedProtobuf:
    """Return a schema that uses the type `Model` of an imported file of another package."""
    imported = f'syntax = "proto3"; package {package}; message Model {{ {body} }} message B {{}}'
    text = f'syntax = "proto3"; import "{MODEL}"; message M {{ repeated {package}.Model a = 1; }}'
    return parse(text, (ResolvedReference(MODEL, imported),))


def test_an_imported_type_is_compared() -> None:
    writer, reader = _user("p", "int32 a = 1;"), _user("p", "string a = 1;")
    assert _texts(differences(reader, writer)) == [
        "FIELD_SCALAR_KIND_CHANGED #/Model/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/1",
    ]


def test_an_imported_type_may_move_to_another_package() -> None:
    assert differences(_user("p.v2", "int32 a = 1;"), _user("p.v1", "int64 a = 1;")) == []


def test_an_incompatible_type_is_reported_by_all_its_users() -> None:
    writer = _user("p", "B b = 1; message C { int32 a = 1; }")
    reader = _user("p", "B b = 1; message C { string a = 1; }")
    assert _texts(differences(reader, writer)) == [
        "FIELD_SCALAR_KIND_CHANGED #/Model/C/1",
        "FIELD_NAMED_TYPE_CHANGED #/M/1",
    ]


def test_a_long_chain_of_imported_types_is_compared() -> None:
    def chain(last: str) -> ParsedProtobuf:
        links = "".join(f"message L{at} {{ L{at + 1} next = 1; }}\n" for at in range(1_500))
        imported = f'syntax = "proto3";\n{links}message L1500 {{ {last} a = 1; }}\n'
        text = 'syntax = "proto3"; import "chain.proto"; message M { L0 first = 1; }'
        return parse(text, (ResolvedReference("chain.proto", imported),))

    found = differences(chain("string"), chain("int32"))
    assert found[0] == ProtoDifference(
        ProtoDifferenceKind.FIELD_SCALAR_KIND_CHANGED, ("L1500", "1")
    )
    assert found[-1] == ProtoDifference(ProtoDifferenceKind.FIELD_NAMED_TYPE_CHANGED, ("M", "1"))
    assert len(found) == 1_502


@pytest.mark.parametrize("kind", [each for each in ProtoDifferenceKind if not each.is_compatible])
def test_each_incompatible_difference_has_a_message_with_both_roles(
    kind: ProtoDifferenceKind,
) -> None:
    text = str(ProtoDifference(kind, ("M", "1")))
    assert text.count("%s") == 2
    assert "'#/M/1'" in text
