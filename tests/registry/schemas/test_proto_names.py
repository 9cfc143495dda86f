"""The names of types as the text has them."""

from __future__ import annotations

import pytest

from odradek.registry.schemas.proto_names import name_in_text, written_names
from odradek.registry.schemas.proto_structure import default_json_name
from odradek.registry.schemas.protobuf import parse
from odradek.registry.schemas.protoc import compile_text

HEAD = 'syntax = "proto3"; package shop; message Line {} '


@pytest.mark.parametrize(
    ("field", "canonical"),
    [
        ("Line a = 1;", "Line a = 1;"),
        ("shop.Line a = 1;", "shop.Line a = 1;"),
        ("repeated\n\t.shop.Line\r\n a = 1;", "repeated .shop.Line a = 1;"),
        ("\t/* é */\tLine a = 1;", "Line a = 1;"),
        ("map<int32,Line> a = 1;", "map<int32, Line> a = 1;"),
        ("map\n<\tint32 ,\n\tshop.Line\t> a = 1;", "map<int32, shop.Line> a = 1;"),
        ("shop . Line a = 1;", ".shop.Line a = 1;"),
        ("shop./* x */Line a = 1;", ".shop.Line a = 1;"),
        ("map</* x */int32, Line> a = 1;", "map<int32, .shop.Line> a = 1;"),
        ("map<int32, int64> a = 1;", "map<int32, int64> a = 1;"),
        ("oneof o { Line a = 1; }", "Line a = 1;"),
    ],
)
def test_a_field_keeps_the_name_of_its_type(field: str, canonical: str) -> None:
    assert f"  {canonical}\n" in parse(f"{HEAD}message M {{ {field} }}", ()).canonical


def test_a_name_that_is_not_the_end_of_the_full_name_is_not_used() -> None:
    assert name_in_text({(1,): "Line"}, (1,), ".shop.Line") == "Line"
    assert name_in_text({(1,): "ine"}, (1,), ".shop.Line") == ".shop.Line"
    assert name_in_text({}, (1,), ".shop.Line") == ".shop.Line"


def test_wide_lines_with_tabs_are_read_once() -> None:
    """The time is linear in the size of the text."""
    fields = "".join(f"\tLine f{number} = {number};" for number in range(1, 15_000))
    text = f"{HEAD}message M {{ {fields} }}"
    names = written_names(compile_text(text, {}).file, text)
    assert list(names.values()).count("Line") == 14_999


@pytest.mark.parametrize(
    ("name", "json_name"),
    [
        ("a", "a"),
        ("a_b", "aB"),
        ("_a", "A"),
        ("a__b_", "aB"),
        ("aB_c2_3d", "aBC23d"),
        ("A_b", "AB"),
    ],
)
def test_the_default_json_name_is_that_of_protoc(name: str, json_name: str) -> None:
    assert default_json_name(name) == json_name
    text = f'syntax = "proto3"; message M {{ int32 {name} = 1; }}'
    assert compile_text(text, {}).file.message_type[0].field[0].json_name == json_name
