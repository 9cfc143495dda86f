"""Conversion between Protobuf messages and their JSON mapping, by the text of a schema.

The JSON form is Protobuf's own (ProtoJSON): field names in lowerCamelCase, integers of 64 bits as
strings, bytes in base64. Output has the fields without presence also if they are not set. Input may
use the names of the schema, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.schemas.parsed import InvalidSchema, ResolvedReference
from odradek.registry.schemas.protoc import compile_text
from odradek.registry.wire_format import INDEXES_MAX

Indexes = tuple[int, ...]


class ProtobufCodec:
    """Conversion of the messages of one schema.

    Args:
        text: The schema.
        references: The texts of its references.

    Raises:
        UnusableSchema: The schema is invalid, or has no messages.
    """

    def __init__(self, text: str, references: Sequence[ResolvedReference] = ()) -> None:
        try:
            compiled = compile_text(text, {each.name: each.text for each in references})
            self._pool = DescriptorPool()
            for file in (*compiled.dependencies, compiled.file):
                self._pool.AddSerializedFile(file.SerializeToString())
        except (InvalidSchema, TypeError) as error:
            raise UnusableSchema(f"the Protobuf schema is invalid: {error}") from None
        main = _effective(compiled.file, compiled.dependencies)
        self._names: dict[Indexes, str] = dict(_messages(main))
        self._package = main.package
        if not self._names:
            raise UnusableSchema("the Protobuf schema has no messages")

    def indexes(self, name: str) -> Indexes:
        """Return the message indexes of a message by its name, with or without the package.

        Without a name it is the first message.

        Raises:
            UnusableSchema: The schema has no such message.
        """
        if not name:
            return (0,)
        full = f"{self._package}.{name}" if self._package else name
        for indexes, each in self._names.items():
            if each in (name, full):
                return indexes
        listed = ", ".join(sorted(self._names.values()))
        raise UnusableSchema(f"the Protobuf schema has no message {name!r}. It has {listed}")

    def decode(self, indexes: Indexes, data: bytes) -> object:
        """Return the JSON value of a message.

        Raises:
            UndecodableValue: No message has these indexes, or the bytes are not such a message.
        """
        name = self._names.get(indexes)
        if name is None:
            raise UndecodableValue(f"the schema has no message with the indexes {list(indexes)}")
        message = self._message(name)
        try:
            message.ParseFromString(data)
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=self._pool
            )
        except (DecodeError, json_format.Error, TypeError, ValueError) as error:
            raise UndecodableValue(f"the bytes are not a message {name}: {error}") from None

    def encode(self, indexes: Indexes, value: object) -> bytes:
        """Return the bytes of a message.

        Raises:
            InvalidValue: The JSON value does not fit the message.
        """
        name = self._names[indexes]
        if not isinstance(value, dict):
            raise InvalidValue(f"the value for the message {name} is not a JSON object")
        message = self._message(name)
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
            return bytes(message.SerializeToString())
        except (EncodeError, json_format.Error, TypeError, ValueError) as error:
            raise InvalidValue(str(error)) from None

    def _message(self, name: str) -> Message:
        return GetMessageClass(self._pool.FindMessageTypeByName(name))()


def _effective(
    main: FileDescriptorProto, dependencies: Sequence[FileDescriptorProto]
) -> FileDescriptorProto:
    """Return the file whose messages the indexes count.

    It is the schema itself, or the file that a schema without messages imports publicly. This is
    the rule of Confluent's registry.
    """
    files = {each.name: each for each in dependencies}
    while not main.message_type and len(main.public_dependency) == 1:
        main = files[main.dependency[main.public_dependency[0]]]
    return main


def _messages(file: FileDescriptorProto) -> Iterator[tuple[Indexes, str]]:
    """Yield the indexes and the full name of each message."""
    prefix = f"{file.package}." if file.package else ""
    yield from _nested(file.message_type, prefix, ())


def _nested(
    types: Sequence[DescriptorProto], prefix: str, outer: Indexes
) -> Iterator[tuple[Indexes, str]]:
    # The text of a schema has no messages for the entries of maps, and the indexes count the
    # messages of the text.
    messages = [each for each in types if not each.options.map_entry]
    for number, each in enumerate(messages):
        indexes = (*outer, number)
        yield indexes, prefix + each.name
        if len(indexes) < INDEXES_MAX:
            yield from _nested(each.nested_type, f"{prefix}{each.name}.", indexes)
