"""Properties of descriptors that depend on the syntax or edition of their file. Pure."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_VISIBILITIES = {1: "local ", 2: "export "}
"""The keywords of edition 2024 by the number of `SymbolVisibility`."""


def is_proto2(file: FileDescriptorProto) -> bool:
    """Whether the file has the syntax proto2, which is also the default."""
    return file.syntax in ("", "proto2")


def is_group(field: FieldDescriptorProto) -> bool:
    """Whether the field is declared as a group of proto2."""
    return field.type == FieldDescriptorProto.TYPE_GROUP


def is_delimited(field: FieldDescriptorProto, file: FileDescriptorProto) -> bool:
    """Whether the field is encoded between a start and an end tag, as a group is."""
    if is_group(field):
        return True
    encoding = field.options.features.message_encoding or file.options.features.message_encoding
    is_message = field.type == FieldDescriptorProto.TYPE_MESSAGE
    return is_message and encoding == FeatureSet.DELIMITED


def is_repeated(field: FieldDescriptorProto) -> bool:
    """Whether the field has a list of values, or is a map."""
    return field.label == FieldDescriptorProto.LABEL_REPEATED


def is_required(field: FieldDescriptorProto) -> bool:
    """Whether a message without the field is not valid."""
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return True
    return field.options.features.field_presence == FeatureSet.LEGACY_REQUIRED


def oneof_of(message: DescriptorProto, field: FieldDescriptorProto) -> str | None:
    """Return the name of the declared oneof that contains the field.

    The oneof that protoc adds for an optional field of proto3 is not declared.
    """
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return message.oneof_decl[field.oneof_index].name


def real_oneofs(message: DescriptorProto) -> dict[int, list[tuple[int, FieldDescriptorProto]]]:
    """Return the positions and fields of each declared oneof, by the position of the oneof."""
    members: dict[int, list[tuple[int, FieldDescriptorProto]]] = {}
    for position, field in enumerate(message.field):
        if oneof_of(message, field) is not None:
            members.setdefault(field.oneof_index, []).append((position, field))
    return dict(sorted(members.items()))


def scalar_name(field: FieldDescriptorProto) -> str:
    """Return the keyword of a scalar type, such as ``int32``."""
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def visibility(declared: DescriptorProto | EnumDescriptorProto) -> str:
    """Return the keyword before a message or an enum, with a space after it, or an empty text."""
    return _VISIBILITIES.get(getattr(declared, "visibility", 0), "")


def default_json_name(name: str) -> str:
    """Return the name of a field in JSON unless the option ``json_name`` changes it."""
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)
