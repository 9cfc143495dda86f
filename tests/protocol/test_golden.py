"""Bytes written by Kafka's own message classes, read and written in every message and version."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from odradek.protocol import interpret
from odradek.protocol.codec import Message, decoder, encode
from odradek.protocol.spec import NEW_STRUCT, FieldSpec, StructSpec, load
from tests.protocol.building import Builder, golden_classes, plain, versions
from tests.protocol.golden import golden_messages

CLASSES = golden_classes()


class GoldenBuilder(Builder):
    """Builds by the rule of tests/golden/kafka/GoldenMessages.java: values by a running number."""

    own_fields = False

    def __init__(self, cls: type[Message], version: int, full: bool) -> None:
        super().__init__(cls, version, Random(0))
        self.full = full
        self.number = 0

    def field(self, field: FieldSpec) -> Any:
        if not self.full and field.is_nullable(self.version):
            return None
        if field.is_array:
            return [self.value(field) for _ in range(2 if self.full else 0)]
        return self.value(field)

    def scalar(self, field: FieldSpec) -> Any:
        self.number += 1
        n = self.number
        sign = 1 if n % 2 == 0 else -1
        values: dict[str, Any] = {
            "bool": self.full,
            "int8": sign * (40 + n % 80),
            "int16": sign * (1000 + n),
            "uint16": 40_000 + n,
            "int32": sign * (70_000 + n),
            "uint32": 3_000_000_000 + n,
            "int64": sign * ((1 << 40) + n),
            "float64": n + 0.5,
            "string": f"s{n}-\u00e9",
            "bytes": f"b{n}".encode(),
            "records": f"b{n}".encode(),
            "uuid": n.to_bytes(8, "big") + (7 * n).to_bytes(8, "big"),
        }
        return values[field.kind]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_kafkas_bytes_are_read_and_written_back_unchanged(cls: type[Message]) -> None:
    for version, full, data in golden_messages()[cls]:
        expected = GoldenBuilder(cls, version, full).struct(load(cls.SPEC).body)
        decoded, end = decoder(cls, version)(memoryview(data), 0)
        assert end == len(data)
        assert plain(decoded) == expected
        assert encode(decoded, version) == data
        assert encode(expected, version) == data
        assert interpret.encode(expected, version) == data


def test_each_message_and_version_has_a_golden_instance() -> None:
    for cls in CLASSES:
        entries = [(version, full) for version, full, _ in golden_messages()[cls]]
        assert entries == [(version, full) for version in versions(cls) for full in (True, False)]
    assert golden_messages().keys() == set(CLASSES)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_in_full_instances_no_field_has_its_default(cls: type[Message]) -> None:
    spec = load(cls.SPEC)
    for version, full, data in golden_messages()[cls]:
        if full:
            assert_nothing_default(
                decoder(cls, version)(memoryview(data), 0)[0], spec.body, version
            )


def assert_nothing_default(value: Any, spec: StructSpec, version: int) -> None:
    for field in [*spec.present(version), *spec.tagged(version)]:
        if field.own:
            continue
        content = getattr(value, field.attribute)
        # Every bool is true in a full instance. In the bare one, the four that default to true
        # are false.
        is_true_by_default = field.kind == "bool" and field.default is True
        if field.default is not NEW_STRUCT and not is_true_by_default:
            assert content != field.default, field.name
        if field.struct is not None:
            for element in content if field.is_array else [content]:
                assert_nothing_default(element, field.struct, version)
