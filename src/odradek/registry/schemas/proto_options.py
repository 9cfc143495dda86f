"""Writes the options of a descriptor as text, custom options included.

A custom option is an extension of a message of `google/protobuf/descriptor.proto`. Python's
descriptors keep it as an unknown field, so the options are decoded again with a pool of the
schema's own files. An option that no file of the schema defines is dropped, as in Confluent's
registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from odradek.registry.schemas.parsed import InvalidSchema
from odradek.registry.schemas.proto_known import CUSTOM_OPTION_PREFIX
from odradek.registry.schemas.proto_layout import enclosed
from odradek.registry.schemas.proto_literals import double, quoted, quoted_bytes, single

_FIRST_OPTIONS = {
    "java_package": 0,
    "java_outer_classname": 1,
    "java_multiple_files": 2,
    "java_generate_equals_and_hash": 3,
    "java_string_check_utf8": 4,
    "optimize_for": 5,
}
"""Options of files that Confluent's registry writes first, in another order than their numbers."""

_NOT_WRITTEN = frozenset({"uninterpreted_option", "map_entry"})


@dataclass(frozen=True, slots=True)
class Option:
    """One assignment, such as ``deprecated = true`` with the name ``deprecated``.

    The text may have several lines.
    """

    name: str
    is_custom: bool
    text: str


@dataclass(frozen=True, slots=True)
class Style:
    """How a descriptor is written.

    `normalize` gives equivalent descriptors the same text. `ignore_extensions` omits extensions
    and custom options, except Confluent's.
    """

    normalize: bool = False
    ignore_extensions: bool = False


class OptionWriter:
    """Writes the options of the descriptors of one schema.

    Args:
        files: The files of the schema in the order of dependency, its own file last.
        style: The style of the text.
    """

    def __init__(self, files: Sequence[FileDescriptorProto], style: Style) -> None:
        self._files = files
        self._style = style

    def options(self, options: Message) -> list[Option]:
        """Return the assignments of an options message in the order in which they are written.

        Raises:
            InvalidSchema: The files of the schema contradict each other.
        """
        if not options.ByteSize():
            return []
        decoded = self._decoded(options)
        found = [each for field, value in _fields(decoded) for each in self._of(field, value)]
        return self.arranged(found)

    def arranged(self, options: Iterable[Option]) -> list[Option]:
        """Return the options that the style keeps, in the style's order."""
        kept = [
            each
            for each in options
            if not (each.is_custom and self._style.ignore_extensions)
            or each.name.startswith(CUSTOM_OPTION_PREFIX)
        ]
        return sorted(kept, key=lambda each: each.name) if self._style.normalize else kept

    def _of(self, field: FieldDescriptor, value: object) -> Iterator[Option]:
        if not field.is_extension and field.name in _NOT_WRITTEN:
            return
        name = self._custom_name(field.full_name) if field.is_extension else field.name
        for each in value if is_list(value) else [value]:
            text = f"{name} = {self._value(field, each)}"
            plain = field.full_name if field.is_extension else field.name
            yield Option(plain, field.is_extension, text)

    def _custom_name(self, full_name: str) -> str:
        """Return the name in parentheses. A leading dot prevents a match with another symbol."""
        first, _, _ = full_name.partition(".")
        return f"(.{full_name})" if first in self._inner_names else f"({full_name})"

    def _value(self, field: FieldDescriptor, value: object) -> str:
        if isinstance(value, Message):
            return self._block(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, bytes):
            return quoted_bytes(value)
        if isinstance(value, float):
            return single(value) if field.type == FieldDescriptor.TYPE_FLOAT else double(value)
        assert isinstance(value, int)
        return _enum_name(field, value) if field.enum_type is not None else str(value)

    def _block(self, message: Message) -> str:
        """Return a message in the text format, with a comma after each field but the last."""
        fields = [
            (_key(field), self._field_value(field, value)) for field, value in _fields(message)
        ]
        if self._style.normalize:
            fields.sort()
        return enclosed("{", [f"{key}: {value}" for key, value in fields], "}")

    def _field_value(self, field: FieldDescriptor, value: object) -> str:
        if isinstance(value, Mapping):
            values = [self._map_entry(field, each) for each in sorted(value.items())]
        elif is_list(value):
            values = [self._value(field, each) for each in value]
        else:
            return self._value(field, value)
        if self._style.normalize and len(values) == 1:
            return values[0]
        return enclosed("[", values, "]")

    def _map_entry(self, field: FieldDescriptor, entry: tuple[object, object]) -> str:
        parts = _message_type(field).fields_by_number
        key, value = parts[1], parts[2]
        texts = [f"key: {self._value(key, entry[0])}", f"value: {self._value(value, entry[1])}"]
        return enclosed("{", texts, "}")

    def _decoded(self, options: Message) -> Message:
        name = options.DESCRIPTOR.full_name
        try:
            descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise InvalidSchema(f"No file of the schema defines {name}.") from None
        decoded: Message = message_factory.GetMessageClass(descriptor)()
        try:
            decoded.ParseFromString(options.SerializeToString())
        except DecodeError as error:
            raise InvalidSchema(f"An option in {name} is not valid: {error}") from error
        return decoded

    @cached_property
    def _pool(self) -> DescriptorPool:
        return pool_of(self._files)

    @cached_property
    def _inner_names(self) -> frozenset[str]:
        """The names that a relative name in the schema could match, except outermost packages."""
        names: set[str] = set()
        for file in self._files:
            names.update(file.package.split(".")[1:])
            names.update(each.name for each in file.message_type)
            names.update(each.name for each in file.enum_type)
        own = self._files[-1]
        names.update(each.name for each in own.service)
        names.update(each.name for each in own.extension)
        for message in own.message_type:
            names.update(_declared_names(message))
        return frozenset(names)


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """Return a pool of a schema's files, which are in the order of dependency.

    Raises:
        InvalidSchema: A file is not valid.
    """
    pool = DescriptorPool()
    added = list(files)
    if not any(_defines_options(file) for file in added):
        pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    for file in added:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise InvalidSchema(str(error)) from error
    return pool


def _defines_options(file: FileDescriptorProto) -> bool:
    """Whether the file is Google's descriptor.proto, which a schema may also be a copy of."""
    names = {each.name for each in file.message_type}
    return file.package == "google.protobuf" and "FileOptions" in names


def is_list(value: object) -> TypeGuard[Iterable[object]]:
    """Whether a field's value is a container of values."""
    return not isinstance(value, bool | int | float | str | bytes | Message)


def _fields(message: Message) -> list[tuple[FieldDescriptor, object]]:
    """Return the fields that are set: known ones, then Confluent's custom options, then others."""

    def order(item: tuple[FieldDescriptor, object]) -> tuple[bool, bool, int, int]:
        field = item[0]
        first = _FIRST_OPTIONS.get(field.name, len(_FIRST_OPTIONS))
        confluent = field.full_name.startswith(CUSTOM_OPTION_PREFIX)
        return field.is_extension, not confluent, first, field.number

    return sorted(message.ListFields(), key=order)


def _key(field: FieldDescriptor) -> str:
    """Return the name of a field in the text format. A group has the name of its type."""
    if field.is_extension:
        return f"[{field.full_name}]"
    if field.type == FieldDescriptor.TYPE_GROUP:
        return str(_message_type(field).name)
    return str(field.name)


def _message_type(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None, f"{field.full_name} is not a message"
    return field.message_type


def _enum_name(field: FieldDescriptor, number: int) -> str:
    assert field.enum_type is not None, f"{field.full_name} is not an enum"
    value = field.enum_type.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


def _declared_names(message: DescriptorProto) -> Iterator[str]:
    yield message.name
    for each in (message.field, message.oneof_decl, message.enum_type, message.extension):
        yield from (declared.name for declared in each)
    for nested in message.nested_type:
        yield from _declared_names(nested)
