"""Random messages of a model's schema."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from odradek.registry.schemas.proto_options import pool_of
from tests.registry.proto_models import (
    PROTO3,
    FieldModel,
    FileModel,
    Kind,
    MessageModel,
    descriptor,
)

DEPTH_MAX = 3
"""Deeper messages have no optional messages."""

REQUIRED_DEPTH_MAX = 12
"""Types that require each other have no valid message."""

TEXTS = ("", "text", "\x00", "é", "𝄞 music")
BYTES = (b"", b"bytes", b"\xff\xfe", "é".encode())
FLOATS = (0.0, -1.5, 3.0e38, float("inf"), float("nan"))


class NoInstance(Exception):
    """The message type requires itself."""


class Instances:
    """Makes messages of one file.

    Args:
        random: The source of all choices.
        file: The model of the file.
    """

    def __init__(self, random: Random, file: FileModel) -> None:
        self._random = random
        self._file = file
        self._pool: DescriptorPool = pool_of([descriptor(file)])

    def empty(self, path: str) -> Message:
        """Return a message without fields of the type with this name below the package."""
        found = self._pool.FindMessageTypeByName(f"{self._file.package}.{path}")
        made: Message = message_factory.GetMessageClass(found)()
        return made

    def message(self, path: str) -> Message:
        """Return a random message.

        Raises:
            NoInstance: The type requires itself.
        """
        made = self.empty(path)
        self._fill(made, self._file.paths()[path], 0)
        return made

    def _fill(self, message: Message, model: MessageModel, depth: int) -> None:
        if depth > REQUIRED_DEPTH_MAX:
            raise NoInstance(model.name)
        for field in model.fields:
            if field.label == "required" or self._is_set(field, depth):
                self._set(message, field, depth)

    def _is_set(self, field: FieldModel, depth: int) -> bool:
        is_message = field.kind in (Kind.MESSAGE, Kind.GROUP)
        return self._random.random() < 0.7 and not (is_message and depth >= DEPTH_MAX)

    def _set(self, message: Message, field: FieldModel, depth: int) -> None:
        name = f"g{field.name}" if field.kind is Kind.GROUP else field.name
        if field.map_key is not None:
            self._set_map(getattr(message, name), field, depth)
        elif field.label == "repeated":
            for _ in range(self._random.randint(0, 3)):
                if self._model_of(field) is None:
                    getattr(message, name).append(self._value(field.kind, field.type))
                else:
                    self._fill(getattr(message, name).add(), self._body(field), depth + 1)
        elif self._model_of(field) is None:
            setattr(message, name, self._value(field.kind, field.type))
        else:
            getattr(message, name).SetInParent()
            self._fill(getattr(message, name), self._body(field), depth + 1)

    def _set_map(self, entries: Any, field: FieldModel, depth: int) -> None:
        assert field.map_key is not None
        for _ in range(self._random.randint(0, 3)):
            key = self._value(Kind.SCALAR, field.map_key)
            if self._model_of(field) is None:
                entries[key] = self._value(field.kind, field.type)
            else:
                self._fill(entries[key], self._body(field), depth + 1)

    def _model_of(self, field: FieldModel) -> MessageModel | None:
        return field.body if field.kind is Kind.GROUP else self._file.paths().get(field.type)

    def _body(self, field: FieldModel) -> MessageModel:
        found = self._model_of(field)
        assert found is not None
        return found

    def _value(self, kind: Kind, keyword: str) -> object:
        random = self._random
        if kind is Kind.ENUM:
            known = self._file.enums[keyword]
            return random.choice([*known, 77] if self._file.syntax == PROTO3 else known)
        choices: dict[str, tuple[object, ...]] = {
            "string": TEXTS,
            "bytes": BYTES,
            "bool": (False, True),
            "float": FLOATS,
            "double": FLOATS,
        }
        if keyword in choices:
            return random.choice(choices[keyword])
        bits = 32 if keyword.endswith("32") else 64
        if keyword.startswith(("u", "f")):
            return random.choice([0, 1, 300, 2**bits - 1])
        return random.choice([0, 1, -1, 300, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
