"""Protobuf schemas: the text of a .proto file, or its descriptor in base64.

protoc compiles every schema. A descriptor, as the serializers of confluent-kafka-python register
it, is first written as text: the registry stores and returns text for it, and protoc validates it.

Differences from Confluent's registry:

- Types that are not defined are an error at once. Confluent's parser only checks the syntax.
- The canonical text has one statement for each reserved range, and options in the order of their
  numbers. Confluent's has those of the registered text.
- A normalized text has numbers with all their digits. Confluent's has three after the point.
- Google's common types (``google/type/*.proto``) need a reference, unless the package
  `googleapis-common-protos` is installed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    ResolvedReference,
    SchemaKind,
    UnsupportedFormat,
)
from odradek.registry.schemas.proto_literals import quoted
from odradek.registry.schemas.proto_map_entries import (
    has_map_entries,
    set_map_entries,
    with_marks,
)
from odradek.registry.schemas.proto_names import SourcePath, written_names
from odradek.registry.schemas.proto_options import Style, pool_of
from odradek.registry.schemas.proto_printer import print_file
from odradek.registry.schemas.protoc import compile_text, root_name

DEFAULT_FORMAT = "default"
"""The format of the canonical text."""

IGNORE_EXTENSIONS_FORMAT = "ignore_extensions"
"""The format without extensions and custom options."""

SERIALIZED_FORMAT = "serialized"
"""The format of clients without a parser: the base64 text of the file's descriptor."""

_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?|[A-Za-z0-9+/]{2}=="
)


@dataclass(frozen=True, slots=True, eq=False)
class ParsedProtobuf:
    """A valid Protobuf schema.

    The descriptors are kept in their binary form, which takes less memory.
    """

    canonical: str
    descriptor: bytes
    dependencies: tuple[bytes, ...]
    names: Mapping[SourcePath, str]

    @property
    def kind(self) -> SchemaKind:
        return SchemaKind.PROTOBUF

    def files(self) -> list[FileDescriptorProto]:
        """Return the files in the order of dependency. The schema's own file is the last one."""
        return [
            FileDescriptorProto.FromString(each) for each in (*self.dependencies, self.descriptor)
        ]

    def normalized(self) -> str:
        """Return the text with full names, and with sorted fields, options and imports."""
        return print_file(self.files(), self.names, Style(normalize=True))

    def formatted(self, name: str) -> str:
        """Return the text in the format `default`, `ignore_extensions` or `serialized`.

        Raises:
            UnsupportedFormat: The format has another name.
        """
        if name.lower() in ("", DEFAULT_FORMAT):
            return self.canonical
        if name.lower() == IGNORE_EXTENSIONS_FORMAT:
            return print_file(self.files(), self.names, Style(ignore_extensions=True))
        if name.lower() == SERIALIZED_FORMAT:
            return base64.b64encode(self.descriptor).decode()
        raise UnsupportedFormat(f"A Protobuf schema has no format '{name}'.")


def parse(text: str, references: tuple[ResolvedReference, ...]) -> ParsedProtobuf:
    """Return a schema.

    Args:
        text: The text of a .proto file, or the base64 text of its `FileDescriptorProto`.
        references: The texts of all references, transitively, in the order of dependency. A file
            imports a reference by its name.

    Raises:
        InvalidSchema: protoc refuses the text, a type or an import is not defined, or the texts
            are larger than `TEXT_BYTES_MAX`.
    """
    _check_size(text, references)
    files: dict[str, str] = {}
    for each in references:
        files.setdefault(each.name, _as_proto(each.text, files))
    return _parse_proto(_as_proto(text, files), files)


def _check_size(text: str, references: tuple[ResolvedReference, ...]) -> None:
    try:
        size = len(text.encode()) + sum(len(each.text.encode()) for each in references)
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"The text is not valid Unicode: {error.reason}.") from error
    if size > TEXT_BYTES_MAX:
        raise InvalidSchema(
            f"The schema and its references have {size} bytes. The maximum is {TEXT_BYTES_MAX}."
        )


def _parse_proto(text: str, files: Mapping[str, str]) -> ParsedProtobuf:
    compiled = compile_text(text, files)
    own = compiled.file
    names = written_names(own, text)
    own.ClearField("source_code_info")
    for each in compiled.dependencies:
        each.ClearField("source_code_info")
    return ParsedProtobuf(
        canonical=print_file([*compiled.dependencies, own], names, Style()),
        descriptor=own.SerializeToString(deterministic=True),
        dependencies=tuple(
            each.SerializeToString(deterministic=True) for each in compiled.dependencies
        ),
        names=MappingProxyType(names),
    )


def _as_proto(text: str, files: Mapping[str, str]) -> str:
    """Return a text that protoc accepts, for a text or a descriptor in base64."""
    if _BASE64.fullmatch(text.strip()) is not None:
        own = _decode(text.strip())
        own.name = root_name(files)
        own.ClearField("source_code_info")
        all_files = [*_dependencies(own, files), own]
        pool_of(all_files)  # refuses names and indexes that the printer could not write
        return print_file(all_files, {}, Style())
    if has_map_entries(text):
        compiled = compile_text(with_marks(text), files)
        set_map_entries(compiled.file)
        return print_file([*compiled.dependencies, compiled.file], {}, Style())
    return text


def _decode(text: str) -> FileDescriptorProto:
    try:
        own = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise InvalidSchema(
            "The text is neither a .proto file nor a FileDescriptorProto in base64."
        ) from error
    if not (own.message_type or own.enum_type or own.service or own.extension or own.dependency):
        raise InvalidSchema("The FileDescriptorProto in base64 declares nothing.")
    return own


def _dependencies(
    file: FileDescriptorProto, files: Mapping[str, str]
) -> tuple[FileDescriptorProto, ...]:
    """Return the files that a descriptor depends on, which define its custom options."""
    if not file.dependency:
        return ()
    imports = "".join(f"import {quoted(name)};\n" for name in file.dependency)
    compiled = compile_text(f'syntax = "proto3";\n{imports}', files)
    for each in compiled.dependencies:
        each.ClearField("source_code_info")
    return compiled.dependencies
