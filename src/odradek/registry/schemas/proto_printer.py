"""Writes the descriptor of a .proto file as text, in the layout of Confluent's registry.

protoc compiles the text to an equal descriptor, except for the order of fields and imports: fields
of a oneof come after the other fields, public imports after the other imports. A oneof with a group
may come earlier. The order of nested
messages stays the same, because records name their message type by its position.

Differences from Confluent's text of a registered descriptor: a map is written as ``map<K, V>`` and
a group with its body, because protoc refuses their descriptors as messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from odradek.registry.schemas.parsed import InvalidSchema
from odradek.registry.schemas.proto_enums import enum_lines
from odradek.registry.schemas.proto_layout import block, in_brackets
from odradek.registry.schemas.proto_literals import quoted
from odradek.registry.schemas.proto_names import SYNTAX_PATH, SourcePath, name_in_text
from odradek.registry.schemas.proto_options import Option, OptionWriter, Style
from odradek.registry.schemas.proto_ranges import extension_lines, reserved_lines
from odradek.registry.schemas.proto_structure import (
    default_json_name,
    is_group,
    is_proto2,
    oneof_of,
    real_oneofs,
    scalar_name,
    visibility,
)

NESTED_TYPES = DescriptorProto.NESTED_TYPE_FIELD_NUMBER
MESSAGE_TYPES = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER


def print_file(
    files: Sequence[FileDescriptorProto],
    names: Mapping[SourcePath, str],
    style: Style,
) -> str:
    """Return the text of a file.

    Args:
        files: The files of the schema in the order of dependency. The last one is written.
        names: The names of types as another text has them. Without a name, the full name with a
            leading dot is written.
        style: The style of the text. A normalized text has full names only.

    Raises:
        InvalidSchema: The descriptor cannot be written as text.
    """
    return _FilePrinter(files, names, style).text()


_FieldAt: TypeAlias = tuple[int, FieldDescriptorProto]
"""A field and its position in the message."""


@dataclass(slots=True)
class _MessageScope:
    """A file or a message: the place of the messages that are declared in it.

    `synthetic` has the position of each map entry and group, which are written as fields.
    `pending` has the positions of the other messages that are not written yet, in order. `oneofs`
    has the fields of each oneof that is not written yet, by the position of the oneof.
    """

    path: SourcePath
    full_name: str
    messages: Sequence[DescriptorProto]
    messages_number: int
    synthetic: dict[str, int]
    pending: list[int]
    oneofs: dict[int, list[_FieldAt]]

    def first_in(self, oneof: int) -> float:
        """Return the lowest position of a group in a oneof, or infinity."""
        positions = [self.synthetic.get(field.type_name, inf) for _, field in self.oneofs[oneof]]
        return min(positions)

    def declared(self, type_name: str) -> int | None:
        """Return the position of the map entry or group with this full name, if it is here."""
        return self.synthetic.get(type_name)

    def message_path(self, position: int) -> SourcePath:
        return (*self.path, self.messages_number, position)


class _FilePrinter:
    def __init__(
        self,
        files: Sequence[FileDescriptorProto],
        names: Mapping[SourcePath, str],
        style: Style,
    ) -> None:
        self._file = files[-1]
        self._style = style
        self._names: Mapping[SourcePath, str] = {} if style.normalize else names
        self._syntax_is_written = SYNTAX_PATH in self._names
        self._options = OptionWriter(files, style)

    def text(self) -> str:
        file = self._file
        package = f".{file.package}" if file.package else ""
        extended = [each for each in file.extension if is_group(each)]
        scope = _scope((), package, file.message_type, MESSAGE_TYPES, extended, {})
        types = [line for at in list(scope.pending) for line in self._message(scope, at)]
        for enum in file.enum_type:
            types += self._enum(enum)
        sections = [
            self._imports(),
            self._option_lines(self._options.options(file.options)),
            types,
            self._extends(file.extension, (), FileDescriptorProto.EXTENSION_FIELD_NUMBER, scope),
            self._services(),
        ]
        lines = self._head()
        for section in sections:
            if section:
                lines += ["", *section]
        return "".join(f"{line}\n" for line in lines)

    def _head(self) -> list[str]:
        file = self._file
        lines = []
        if file.syntax == "editions":
            lines.append(f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";')
        elif not is_proto2(file):
            lines.append(f'syntax = "{file.syntax}";')
        elif self._syntax_is_written:
            lines.append('syntax = "proto2";')
        if file.package:
            lines.append(f"package {file.package};")
        return lines

    def _imports(self) -> list[str]:
        file = self._file
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        kinds: dict[str, list[str]] = {"": [], "weak ": [], "public ": []}
        for position, name in enumerate(file.dependency):
            kind = "public " if position in public else "weak " if position in weak else ""
            kinds[kind].append(name)
        kinds["option "] = list(getattr(file, "option_dependency", ()))
        lines = []
        for kind, names in kinds.items():
            arranged = sorted(set(names)) if self._style.normalize else names
            lines += [f"import {kind}{quoted(name)};" for name in arranged]
        return lines

    def _option_lines(self, options: Iterable[Option]) -> list[str]:
        return [line for each in options for line in f"option {each.text};".split("\n")]

    def _enum(self, enum: EnumDescriptorProto) -> list[str]:
        return enum_lines(enum, self._file, self._options, self._style)

    # Messages

    def _message(self, scope: _MessageScope, position: int) -> list[str]:
        """Return a declared message with its header, and remove it from the pending ones."""
        scope.pending.remove(position)
        message = scope.messages[position]
        sections = self._body(scope, position)
        return block(f"{visibility(message)}message {message.name}", sections)

    def _body(self, outer: _MessageScope, position: int) -> list[list[str]]:
        message = outer.messages[position]
        path = outer.message_path(position)
        fields = [*message.field, *(each for each in message.extension if is_group(each))]
        name = f"{outer.full_name}.{message.name}"
        oneofs = real_oneofs(message)
        scope = _scope(path, name, message.nested_type, NESTED_TYPES, fields, oneofs)
        return [
            reserved_lines(message, self._file, self._style),
            self._option_lines(self._options.options(message.options)),
            self._fields(message, scope),
            self._oneofs(message, scope),
            extension_lines(message, self._options, self._style),
            self._extends(message.extension, path, DescriptorProto.EXTENSION_FIELD_NUMBER, scope),
            self._nested(message, scope),
        ]

    def _fields(self, message: DescriptorProto, scope: _MessageScope) -> list[str]:
        found = [
            (position, field)
            for position, field in enumerate(message.field)
            if oneof_of(message, field) is None
        ]
        return self._field_lines(message, found, scope, with_label=True)

    def _oneofs(self, message: DescriptorProto, scope: _MessageScope) -> list[str]:
        order = list(scope.oneofs)
        if self._style.normalize:
            order.sort(key=lambda index: min(field.number for _, field in scope.oneofs[index]))
        lines: list[str] = []
        for index in order:
            lines += self._oneof(message, index, scope)
        return lines

    def _oneof(self, message: DescriptorProto, index: int, scope: _MessageScope) -> list[str]:
        """Return a oneof after the messages before it. Return nothing if it is written already."""
        members = scope.oneofs.pop(index, None)
        if members is None:
            return []
        lines = [line for _, field in members for line in self._before(message, scope, field)]
        declared = message.oneof_decl[index]
        sections = [
            self._option_lines(self._options.options(declared.options)),
            self._field_lines(message, members, scope, with_label=False),
        ]
        return lines + block(f"oneof {declared.name}", sections)

    def _nested(self, message: DescriptorProto, scope: _MessageScope) -> list[str]:
        lines = [line for at in list(scope.pending) for line in self._message(scope, at)]
        for enum in message.enum_type:
            lines += self._enum(enum)
        return lines

    # Fields

    def _field_lines(
        self,
        message: DescriptorProto,
        fields: list[_FieldAt],
        scope: _MessageScope,
        *,
        with_label: bool,
    ) -> list[str]:
        if self._style.normalize:
            fields = sorted(fields, key=lambda item: item[1].number)
        lines = []
        for position, field in fields:
            path = (*scope.path, DescriptorProto.FIELD_FIELD_NUMBER, position)
            lines += self._before(message, scope, field)
            lines += self._field(field, path, scope, with_label=with_label)
        return lines

    def _before(
        self, message: DescriptorProto, scope: _MessageScope, field: FieldDescriptorProto
    ) -> list[str]:
        """Return the declarations with a lower position than the field's map entry or group.

        protoc numbers a map entry or a group where it parses the field. So the messages with lower
        positions, and the oneofs with groups of lower positions, are written before the field.
        """
        position = scope.declared(field.type_name)
        if position is None or self._style.normalize:
            return []
        oneofs = [index for index in scope.oneofs if scope.first_in(index) < position]
        lines = []
        for index in sorted(oneofs, key=scope.first_in):
            lines += self._oneof(message, index, scope)
        before = [each for each in scope.pending if each < position]
        return lines + [line for each in before for line in self._message(scope, each)]

    def _field(
        self,
        field: FieldDescriptorProto,
        path: SourcePath,
        scope: _MessageScope,
        *,
        with_label: bool,
    ) -> list[str]:
        position = scope.declared(field.type_name)
        entry = None if position is None else scope.messages[position]
        is_map = entry is not None and entry.options.map_entry
        label = self._label(field) if with_label and not is_map else ""
        options = self._field_options(field)
        if is_group(field):
            if position is None:
                raise InvalidSchema(f"The type of the group '{field.name}' is declared elsewhere.")
            head = f"{label}group {scope.messages[position].name} = {field.number}{options}"
            return block(head, self._body(scope, position))
        written = self._map(field, path, entry) if is_map and entry else self._type(field, path)
        return f"{label}{written} {field.name} = {field.number}{options};".split("\n")

    def _type(self, field: FieldDescriptorProto, path: SourcePath) -> str:
        if not field.type_name:
            return scalar_name(field)
        return self._name((*path, FieldDescriptorProto.TYPE_NAME_FIELD_NUMBER), field.type_name)

    def _map(self, field: FieldDescriptorProto, path: SourcePath, entry: DescriptorProto) -> str:
        by_number = {each.number: each for each in entry.field}
        if set(by_number) != {1, 2}:
            raise InvalidSchema(f"The entry of the map '{field.name}' has no key or no value.")
        return f"map<{scalar_name(by_number[1])}, {self._type(by_number[2], path)}>"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if is_proto2(self._file) and field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        return "optional " if is_proto2(self._file) or field.proto3_optional else ""

    def _field_options(self, field: FieldDescriptorProto) -> str:
        options = self._options.options(field.options)
        if field.HasField("default_value") and self._file.syntax != "proto3":
            options.append(Option("default", False, f"default = {_default(field)}"))
        if not field.extendee and field.json_name not in ("", default_json_name(field.name)):
            options.append(Option("json_name", False, f"json_name = {quoted(field.json_name)}"))
        return in_brackets([each.text for each in self._options.arranged(options)])

    def _name(self, path: SourcePath, resolved: str) -> str:
        return name_in_text(self._names, path, resolved)

    # Extensions and services

    def _extends(
        self,
        extensions: Sequence[FieldDescriptorProto],
        path: SourcePath,
        number: int,
        scope: _MessageScope,
    ) -> list[str]:
        if self._style.ignore_extensions:
            return []
        by_extendee: dict[str, list[_FieldAt]] = {}
        for position, field in enumerate(extensions):
            by_extendee.setdefault(field.extendee, []).append((position, field))
        lines = []
        for extendee, fields in by_extendee.items():
            first = (*path, number, fields[0][0], FieldDescriptorProto.EXTENDEE_FIELD_NUMBER)
            if self._style.normalize:
                fields = sorted(fields, key=lambda item: item[1].number)
            section = []
            for position, field in fields:
                section += self._field(field, (*path, number, position), scope, with_label=True)
            lines += block(f"extend {self._name(first, extendee)}", [section])
        return lines

    def _services(self) -> list[str]:
        lines = []
        for position, service in enumerate(self._file.service):
            path = (FileDescriptorProto.SERVICE_FIELD_NUMBER, position)
            lines += block(f"service {service.name}", self._service(service, path))
        return lines

    def _service(self, service: ServiceDescriptorProto, path: SourcePath) -> list[list[str]]:
        methods = []
        for position, method in enumerate(service.method):
            methods += self._method(
                method, (*path, ServiceDescriptorProto.METHOD_FIELD_NUMBER, position)
            )
        return [self._option_lines(self._options.options(service.options)), methods]

    def _method(self, method: MethodDescriptorProto, path: SourcePath) -> list[str]:
        request = self._name(
            (*path, MethodDescriptorProto.INPUT_TYPE_FIELD_NUMBER), method.input_type
        )
        response = self._name(
            (*path, MethodDescriptorProto.OUTPUT_TYPE_FIELD_NUMBER), method.output_type
        )
        takes = "stream " if method.client_streaming else ""
        gives = "stream " if method.server_streaming else ""
        head = f"rpc {method.name} ({takes}{request}) returns ({gives}{response})"
        options = self._option_lines(self._options.options(method.options))
        return block(head, [options], end="};") if options else [f"{head};"]


def _scope(
    path: SourcePath,
    full_name: str,
    messages: Sequence[DescriptorProto],
    messages_number: int,
    fields: Iterable[FieldDescriptorProto],
    oneofs: dict[int, list[_FieldAt]],
) -> _MessageScope:
    positions = {f"{full_name}.{each.name}": at for at, each in enumerate(messages)}
    synthetic = {}
    for field in fields:
        position = positions.get(field.type_name)
        if position is None:
            continue
        if is_group(field) or messages[position].options.map_entry:
            synthetic[field.type_name] = position
    taken = set(synthetic.values())
    pending = [at for at in range(len(messages)) if at not in taken]
    return _MessageScope(path, full_name, messages, messages_number, synthetic, pending, oneofs)


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return quoted(field.default_value)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'
    return field.default_value
