"""Builds random messages from their definitions, with every value that a version allows."""

from __future__ import annotations

import sys
from dataclasses import fields
from random import Random
from typing import Any

from odradek.protocol.codec import Message
from odradek.protocol.registry import message_class
from odradek.protocol.spec import NO_VERSIONS, FieldSpec, StructSpec, load, paths

INTEGER_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
STRINGS = ["", "a", "topic-1", "größe-ß", "日本語", "\U0001f980", "x" * 127, "y" * 128, "z" * 300]
SIZES = [0, 0, 1, 2, 3]


def all_classes() -> list[type[Message]]:
    """Return the class of each message that has a valid version."""
    specs = [load(path) for path in paths()]
    return [message_class(spec.name) for spec in specs if spec.versions != NO_VERSIONS]


def golden_classes() -> list[type[Message]]:
    """Return the classes in tests/golden. Metadata records are in tests/data/kafka-4.3.0."""
    return [cls for cls in kafkas_classes() if not cls.SPEC.startswith("metadata/")]


def kafkas_classes() -> list[type[Message]]:
    """Return the classes of all messages that Kafka has."""
    return [cls for cls in all_classes() if not cls.SPEC.startswith("odradek/")]


def versions(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


def build(cls: type[Message], version: int, random: Random) -> Any:
    """Return a message that can be written in `version` and reads back as the same."""
    return Builder(cls, version, random).struct(load(cls.SPEC).body)


def plain(value: Any) -> Any:
    """Convert views to bytes at every level, so that messages can be compared and printed."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [plain(element) for element in value]
    if hasattr(type(value), "__dataclass_fields__"):
        for field in fields(value):
            setattr(value, field.name, plain(getattr(value, field.name)))
    return value


class Builder:
    """Builds one message. Subclasses restrict the values to those of other codecs, by `scalar`.

    Without `own_fields` the message has only fields that Kafka knows.
    """

    own_fields = True

    def __init__(self, cls: type[Message], version: int, random: Random) -> None:
        self.classes = vars(sys.modules[cls.__module__])
        self.version = version
        self.random = random

    def struct(self, spec: StructSpec) -> Any:
        known = [*spec.present(self.version), *spec.tagged(self.version)]
        fields = {f.attribute: self.field(f) for f in known if self.own_fields or not f.own}
        return self.classes[spec.name](**fields)

    def field(self, field: FieldSpec) -> Any:
        if field.is_nullable(self.version) and self.random.random() < 0.3:
            return None
        if not field.is_array:
            return self.single(field)
        return [self.value(field) for _ in range(self.random.choice(SIZES))]

    def single(self, field: FieldSpec) -> Any:
        value = self.value(field)
        # A tagged struct with nothing set is not sent, and reads back as None.
        is_unset = field.tag >= 0 and field.struct is not None and field.default is None
        return None if is_unset and value == self.classes[field.struct.name]() else value  # type: ignore[union-attr]

    def value(self, field: FieldSpec) -> Any:
        return self.scalar(field) if field.struct is None else self.struct(field.struct)

    def scalar(self, field: FieldSpec) -> Any:
        match field.kind:
            case "bool":
                return self.random.random() < 0.5
            case "float64":
                return self.random.choice([0.0, -1.5, 1e300, self.random.random()])
            case "string":
                return self.random.choice(STRINGS)
            case "uuid":
                return self.random.choice([bytes(16), self.random.randbytes(16)])
            case "bytes" | "records":
                size = self.random.choice([0, 1, 20, 126, 127, 128, 16_383, 16_384])
                return bytes(size // 2) + b"\xfe" * (size - size // 2)
            case _:
                return self.integer(field.kind)

    def integer(self, kind: str) -> int:
        bits = INTEGER_BITS[kind]
        lowest = 0 if kind.startswith("u") else -(1 << bits - 1)
        highest = lowest + (1 << bits) - 1
        return self.random.choice(
            [lowest, highest, 0, 1, self.random.randint(lowest, highest), *([-1] if lowest else [])]
        )
