"""The message types of a Protobuf schema by full name, as a comparison needs them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from odradek.registry.schemas.proto_structure import (
    is_delimited,
    is_repeated,
    is_required,
    oneof_of,
    scalar_name,
)

EnumValues = Mapping[int, str]
"""The names of an enum's values by number."""


class FieldKind(Enum):
    """How the value of a field is encoded. An enum is a scalar."""

    SCALAR = auto()
    MESSAGE = auto()
    GROUP = auto()
    MAP = auto()


class ScalarGroup(Enum):
    """Scalar types whose encodings can be exchanged. An integer may be truncated."""

    GENERAL_NUMBER = auto()
    SIGNED_NUMBER = auto()
    STRING_OR_BYTES = auto()
    FIXED32 = auto()
    FIXED64 = auto()
    FLOAT = auto()
    DOUBLE = auto()


_GROUPS = {
    "int32": ScalarGroup.GENERAL_NUMBER,
    "int64": ScalarGroup.GENERAL_NUMBER,
    "uint32": ScalarGroup.GENERAL_NUMBER,
    "uint64": ScalarGroup.GENERAL_NUMBER,
    "bool": ScalarGroup.GENERAL_NUMBER,
    "enum": ScalarGroup.GENERAL_NUMBER,
    "sint32": ScalarGroup.SIGNED_NUMBER,
    "sint64": ScalarGroup.SIGNED_NUMBER,
    "string": ScalarGroup.STRING_OR_BYTES,
    "bytes": ScalarGroup.STRING_OR_BYTES,
    "fixed32": ScalarGroup.FIXED32,
    "sfixed32": ScalarGroup.FIXED32,
    "fixed64": ScalarGroup.FIXED64,
    "sfixed64": ScalarGroup.FIXED64,
    "float": ScalarGroup.FLOAT,
    "double": ScalarGroup.DOUBLE,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    `keyword` is the scalar type, or ``enum``. `type_name` is the full name of the message of a
    field that is a message or a group, or of the enum. `entry` has the key and the value of a map.
    """

    name: str
    kind: FieldKind
    keyword: str
    type_name: str
    is_repeated: bool
    is_required: bool
    oneof: str | None
    entry: tuple[Field, Field] | None

    @property
    def group(self) -> ScalarGroup | None:
        """The group of a scalar type."""
        return _GROUPS[self.keyword] if self.kind is FieldKind.SCALAR else None


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type.

    `nested` and `enums` are in the order of declaration, without the types of maps and groups.
    `in_root` is false for a type of an imported file.
    """

    full_name: str
    local_name: str
    in_root: bool
    fields: Mapping[int, Field]
    nested: Mapping[str, MessageType]
    enums: Mapping[str, EnumValues]


class Types:
    """The types of one schema.

    Args:
        files: The files of the schema in the order of dependency, its own file last.
    """

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._messages: dict[str, MessageType] = {}
        self._enum_values: dict[str, EnumValues] = {}
        for file in files:
            self._add_file(file, in_root=file is files[-1])
        root = files[-1]
        prefix = _prefix(root)
        groups = _group_names(root.extension)
        self.package = root.package
        self.messages: Mapping[str, MessageType] = {
            each.name: self._messages[f"{prefix}{each.name}"]
            for each in root.message_type
            if f"{prefix}{each.name}" not in groups
        }
        self.enums: Mapping[str, EnumValues] = _enums(root.enum_type)

    def message(self, full_name: str) -> MessageType:
        """Return a message type by its full name with a leading dot."""
        return self._messages[full_name]

    def enum_values(self, full_name: str) -> EnumValues:
        """Return the values of an enum by its full name with a leading dot."""
        return self._enum_values[full_name]

    def _add_file(self, file: FileDescriptorProto, *, in_root: bool) -> None:
        self._add_enums(_enums(file.enum_type), _prefix(file))
        for message in file.message_type:
            self._add_message(message, _prefix(file), file, in_root=in_root)

    def _add_message(
        self, message: DescriptorProto, prefix: str, file: FileDescriptorProto, *, in_root: bool
    ) -> MessageType:
        name = f"{prefix}{message.name}"
        entries = {
            f"{name}.{each.name}": each for each in message.nested_type if each.options.map_entry
        }
        hidden = entries.keys() | _group_names([*message.field, *message.extension])
        nested = {
            each.name: self._add_message(each, f"{name}.", file, in_root=in_root)
            for each in message.nested_type
        }
        added = MessageType(
            full_name=name,
            local_name=name.removeprefix(_prefix(file)),
            in_root=in_root,
            fields={each.number: _field(each, message, entries, file) for each in message.field},
            nested={key: each for key, each in nested.items() if each.full_name not in hidden},
            enums=_enums(message.enum_type),
        )
        self._messages[name] = added
        self._add_enums(added.enums, f"{name}.")
        return added

    def _add_enums(self, enums: Mapping[str, EnumValues], prefix: str) -> None:
        self._enum_values.update({f"{prefix}{name}": each for name, each in enums.items()})


def _prefix(file: FileDescriptorProto) -> str:
    return f".{file.package}." if file.package else "."


def _group_names(fields: Iterable[FieldDescriptorProto]) -> set[str]:
    return {each.type_name for each in fields if each.type == FieldDescriptorProto.TYPE_GROUP}


def _enums(enums: Iterable[EnumDescriptorProto]) -> dict[str, EnumValues]:
    return {each.name: {value.number: value.name for value in each.value} for each in enums}


def _field(
    field: FieldDescriptorProto,
    message: DescriptorProto,
    entries: Mapping[str, DescriptorProto],
    file: FileDescriptorProto,
) -> Field:
    entry = entries.get(field.type_name)
    key_and_value = None
    if entry is not None:
        parts = {each.number: _field(each, entry, {}, file) for each in entry.field}
        key_and_value = (parts[1], parts[2])
    kind = FieldKind.MAP if entry is not None else _kind(field, file)
    return Field(
        name=field.name,
        kind=kind,
        keyword=scalar_name(field),
        type_name=field.type_name,
        is_repeated=is_repeated(field),
        is_required=is_required(field),
        oneof=oneof_of(message, field),
        entry=key_and_value,
    )


def _kind(field: FieldDescriptorProto, file: FileDescriptorProto) -> FieldKind:
    if is_delimited(field, file):
        return FieldKind.GROUP
    if field.type == FieldDescriptorProto.TYPE_MESSAGE:
        return FieldKind.MESSAGE
    return FieldKind.SCALAR
