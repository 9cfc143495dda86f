"""A form of descriptors in which those with the same meaning are equal.

Only the order of nested messages has a meaning: records name a message type by it. Custom options
are left out, because protoc orders their bytes as in the text. Tests compare them as text.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
)

from odradek.registry.schemas.proto_structure import default_json_name


def comparable(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a copy without a name and source info, with sorted fields, oneofs and imports."""
    copied = FileDescriptorProto.FromString(file.SerializeToString())
    copied.DiscardUnknownFields()
    copied.ClearField("name")
    copied.ClearField("source_code_info")
    if copied.syntax == "proto2":
        copied.ClearField("syntax")
    _sort_imports(copied)
    _sort_fields(copied.extension)
    for message in copied.message_type:
        _sort_message(message)
    return copied


def _sort_imports(file: FileDescriptorProto) -> None:
    names = list(file.dependency)
    public = {names[at] for at in file.public_dependency}
    weak = {names[at] for at in file.weak_dependency}
    names.sort()
    for field in ("dependency", "public_dependency", "weak_dependency"):
        file.ClearField(field)
    file.dependency.extend(names)
    file.public_dependency.extend(names.index(each) for each in sorted(public))
    file.weak_dependency.extend(names.index(each) for each in sorted(weak))


def _sort_message(message: DescriptorProto) -> None:
    oneofs = [
        OneofDescriptorProto.FromString(each.SerializeToString()) for each in message.oneof_decl
    ]
    names = [each.name for each in oneofs]
    oneofs.sort(key=lambda each: each.name)
    for field in message.field:
        if field.HasField("oneof_index"):
            name = names[field.oneof_index]
            field.oneof_index = [each.name for each in oneofs].index(name)
    message.ClearField("oneof_decl")
    message.oneof_decl.extend(oneofs)
    _sort_fields(message.field)
    _sort_fields(message.extension)
    for nested in message.nested_type:
        _sort_message(nested)


def _sort_fields(fields: Iterable[FieldDescriptorProto]) -> None:
    for field in fields:
        if field.extendee or field.json_name == default_json_name(field.name):
            field.ClearField("json_name")
    fields.sort(key=lambda each: (each.extendee, each.number))  # type: ignore[attr-defined]
