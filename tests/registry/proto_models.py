"""A small model of .proto files, which random changes can be made to, and its descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from odradek.registry.schemas.protobuf import ParsedProtobuf
from odradek.registry.schemas.protoc import ROOT_NAME

PROTO2 = "proto2"
PROTO3 = "proto3"

SCALARS = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string", "bytes"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "float", "double"),
)
MAP_KEYS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string")


class Kind(Enum):
    SCALAR = auto()
    ENUM = auto()
    MESSAGE = auto()
    GROUP = auto()


@dataclass(slots=True)
class FieldModel:
    """A field. `type` is a scalar's keyword, or the name of an enum or a message below the package.

    `map_key` makes a map whose values have the kind and the type. A group has a body and no type.
    """

    name: str
    number: int
    kind: Kind = Kind.SCALAR
    type: str = "string"
    label: str = ""
    oneof: str | None = None
    map_key: str | None = None
    body: MessageModel | None = None

    @property
    def can_be_in_oneof(self) -> bool:
        return self.map_key is None and self.label != "repeated"


@dataclass(slots=True)
class MessageModel:
    name: str
    fields: list[FieldModel] = field(default_factory=list)
    nested: list[MessageModel] = field(default_factory=list)

    def by_number(self) -> dict[int, FieldModel]:
        return {each.number: each for each in self.fields}


@dataclass(slots=True)
class FileModel:
    """A file. `enums` has the numbers of the values of each enum."""

    syntax: str
    package: str
    messages: list[MessageModel] = field(default_factory=list)
    enums: dict[str, list[int]] = field(default_factory=dict)

    def paths(self) -> dict[str, MessageModel]:
        """The declared messages by their name below the package. Not the bodies of groups."""
        return dict(_paths("", self.messages))

    def bodies(self) -> list[MessageModel]:
        """All messages, and the bodies of groups."""
        found = list(self.paths().values())
        for message in found:
            found += [each.body for each in message.fields if each.body is not None]
        return found


def _paths(prefix: str, messages: list[MessageModel]) -> Iterator[tuple[str, MessageModel]]:
    for message in messages:
        yield f"{prefix}{message.name}", message
        yield from _paths(f"{prefix}{message.name}.", message.nested)


def repair(file: FileModel) -> None:
    """Remove uses of types that are gone, and labels that the syntax does not have."""
    paths = file.paths()
    for message in file.bodies():
        message.fields = [each for each in message.fields if _has_type(each, paths, file)]
        for each in message.fields:
            if file.syntax == PROTO3 and each.label == "required":
                each.label = ""
            if file.syntax == PROTO3 and each.kind is Kind.GROUP:
                each.kind, each.type, each.body = Kind.SCALAR, "int32", None
            if not each.can_be_in_oneof:
                each.oneof = None
            if each.oneof is not None:
                each.label = ""
            if each.map_key is not None:
                each.label = ""


def _has_type(each: FieldModel, paths: dict[str, MessageModel], file: FileModel) -> bool:
    if each.kind is Kind.MESSAGE:
        return each.type in paths
    return each.kind is not Kind.ENUM or each.type in file.enums


def value_name(enum: str, number: int) -> str:
    return f"{enum.upper()}_{number}"


def descriptor(file: FileModel) -> FileDescriptorProto:
    """Return the descriptor of a file, as protoc gives it."""
    described = FileDescriptorProto(name=ROOT_NAME, package=file.package)
    if file.syntax == PROTO3:
        described.syntax = PROTO3
    for message in file.messages:
        _Describer(file).message(message, described.message_type.add(), f".{file.package}")
    for name, numbers in file.enums.items():
        enum: EnumDescriptorProto = described.enum_type.add(name=name)
        for number in numbers:
            enum.value.add(name=value_name(name, number), number=number)
    return described


def parsed(file: FileModel) -> ParsedProtobuf:
    """Return a schema without a run of protoc. It has no canonical text."""
    return ParsedProtobuf("", descriptor(file).SerializeToString(), (), {})


class _Describer:
    def __init__(self, file: FileModel) -> None:
        self._file = file

    def message(self, message: MessageModel, into: DescriptorProto, scope: str) -> None:
        into.name = message.name
        name = f"{scope}.{message.name}"
        oneofs = list(dict.fromkeys(each.oneof for each in message.fields if each.oneof))
        for oneof in oneofs:
            into.oneof_decl.add(name=oneof)
        for each in message.fields:
            described = into.field.add(name=each.name, number=each.number)
            self._label(each, described, into)
            if each.oneof is not None:
                described.oneof_index = oneofs.index(each.oneof)
            self._type(each, described, into, name)
        for nested in message.nested:
            self.message(nested, into.nested_type.add(), name)

    def _label(
        self, each: FieldModel, into: FieldDescriptorProto, message: DescriptorProto
    ) -> None:
        labels = {
            "required": FieldDescriptorProto.LABEL_REQUIRED,
            "repeated": FieldDescriptorProto.LABEL_REPEATED,
        }
        into.label = labels.get(each.label, FieldDescriptorProto.LABEL_OPTIONAL)
        if each.map_key is not None:
            into.label = FieldDescriptorProto.LABEL_REPEATED
        if self._file.syntax == PROTO3 and each.label == "optional":
            into.proto3_optional = True
            into.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{each.name}")

    def _type(
        self, each: FieldModel, into: FieldDescriptorProto, message: DescriptorProto, scope: str
    ) -> None:
        if each.kind is Kind.GROUP:
            assert each.body is not None
            each.body.name = f"G{each.name}"
            into.name = each.body.name.lower()
            into.type = FieldDescriptorProto.TYPE_GROUP
            into.type_name = f"{scope}.{each.body.name}"
            self.message(each.body, message.nested_type.add(), scope)
        elif each.map_key is None:
            self._plain_type(each, into)
        else:
            entry = message.nested_type.add(name=f"{each.name.capitalize()}Entry")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1)
            key.label = FieldDescriptorProto.LABEL_OPTIONAL
            key.type = FieldDescriptorProto.Type.Value(f"TYPE_{each.map_key.upper()}")
            value = entry.field.add(name="value", number=2)
            value.label = FieldDescriptorProto.LABEL_OPTIONAL
            self._plain_type(each, value)
            into.type = FieldDescriptorProto.TYPE_MESSAGE
            into.type_name = f"{scope}.{entry.name}"

    def _plain_type(self, each: FieldModel, into: FieldDescriptorProto) -> None:
        if each.kind is Kind.SCALAR:
            into.type = FieldDescriptorProto.Type.Value(f"TYPE_{each.type.upper()}")
            return
        is_enum = each.kind is Kind.ENUM
        into.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
        into.type_name = f".{self._file.package}.{each.type}"
