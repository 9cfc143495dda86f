"""Keys and values of records in Confluent's wire format as JSON, by the schemas of a registry.

The JSON forms are in `avro_values`, `json_schema_values` and `proto_values`. Each module is
imported with the first schema of its kind.

Confluent's serializers are not used here. They lose the branch of a union, need generated classes
for Protobuf, and run the rules of a schema.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Protocol
from uuid import UUID

from odradek.environment.clock import Clock
from odradek.registry.client import RegistryClient, RegistryRefusal, StoredSchema, Version
from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.schemas.parsed import SchemaKind
from odradek.registry.wire_format import (
    Framed,
    NotFramed,
    SchemaName,
    read_frame,
    write_indexes,
    write_prefix,
)

CODECS_MAX = 1000
"""Largest number of schemas that a decoder keeps."""

UNKNOWN_RETRY_MS = 5_000
"""Time until a decoder asks the registry again for a schema that it did not have."""


class UndefinedSchema(Exception):
    """A text names no schema. The message says why."""


class _Decoder(Protocol):
    def decode(self, framed: Framed) -> object: ...


class _Codec(_Decoder, Protocol):
    def encode(self, value: object) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """The schema of produced keys or values, as the command line names it.

    Attributes:
        id: A schema id, or None.
        subject: A subject, if `id` is None.
        version: The version of the subject.
        message: The name of a Protobuf message. Empty: the first message.
    """

    id: int | None = None
    subject: str = ""
    version: Version = "latest"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded key or value, and the id or guid of its schema."""

    value: object
    schema: int | str


class RecordEncoder:
    """Encodes JSON texts by one schema, with its id in the prefix.

    Args:
        client: The registry.
        schema: The schema with its id.
        message: The name of a Protobuf message. Empty: the first message.

    Raises:
        UnusableSchema: The schema has no id, is invalid, or has no such message.
    """

    def __init__(self, client: RegistryClient, schema: StoredSchema, message: str = "") -> None:
        if schema.id is None:
            raise UnusableSchema("the registry returned the schema without its id")
        if message and schema.kind != SchemaKind.PROTOBUF:
            raise UnusableSchema(f"a message was named, but the schema is of kind {schema.kind}")
        self._prefix = write_prefix(schema.id)
        self._codec = _open_codec(client, schema, message)
        # Floating-point numbers cannot hold all decimals of Avro.
        self._parse_float: Callable[[str], object] = (
            Decimal if schema.kind == SchemaKind.AVRO else float
        )

    def encode(self, text: bytes) -> bytes:
        """Return the encoded form of a JSON text.

        Raises:
            InvalidValue: The text is not JSON, or does not fit the schema.
        """
        try:
            value = json.loads(text, parse_float=self._parse_float, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"the text is not JSON: {error}") from None
        return self._prefix + self._codec.encode(value)


class RecordDecoder:
    """Decodes keys and values by the schemas that they name. Not for several threads.

    Args:
        client: The registry.
        clock: The time, for unknown schemas.
        codecs_max: Largest number of schemas that are kept. The least recently used are dropped.
    """

    def __init__(self, client: RegistryClient, clock: Clock, codecs_max: int = CODECS_MAX) -> None:
        self._client = client
        self._clock = clock
        self._codecs_max = codecs_max
        self._codecs: OrderedDict[SchemaName, _Decoder | _Failure] = OrderedDict()

    def decode(self, data: bytes, header: bytes | None = None) -> Decoded:
        """Return the JSON value of an encoded key or value.

        Args:
            data: The key or value.
            header: The value of the record's header with the schema, or None.

        Raises:
            UndecodableValue: The bytes name no schema, an unknown one, or do not fit it.
            RegistryUnavailable: The registry does not respond.
            RegistryRefusal: The registry refuses requests, for example the credentials.
        """
        try:
            framed = read_frame(data, header)
            codec = self._codec(framed.schema)
            value = codec.decode(framed)
        except (NotFramed, UnusableSchema) as error:
            raise UndecodableValue(str(error)) from None
        except UndecodableValue as error:
            raise UndecodableValue(f"schema {framed.schema}: {error}") from None
        schema = framed.schema
        return Decoded(value, str(schema) if isinstance(schema, UUID) else schema)

    def _codec(self, name: SchemaName) -> _Decoder:
        found = self._codecs.get(name)
        now_ms = self._clock.monotonic_ms()
        if found is None or (isinstance(found, _Failure) and found.is_over(now_ms)):
            found = self._open(name, now_ms)
            self._codecs[name] = found
        self._codecs.move_to_end(name)
        if len(self._codecs) > self._codecs_max:
            self._codecs.popitem(last=False)
        if isinstance(found, _Failure):
            raise UnusableSchema(found.reason)
        return found

    def _open(self, name: SchemaName, now_ms: float) -> _Decoder | _Failure:
        try:
            return _open_decoder(self._client, self._fetch(name))
        except UnusableSchema as error:
            return _Failure(f"schema {name}: {error}", now_ms)
        except RegistryRefusal as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return _Failure(f"the registry has no schema {name}", now_ms)

    def _fetch(self, name: SchemaName) -> StoredSchema:
        if isinstance(name, UUID):
            return self._client.schema_by_guid(name)
        return self._client.schema_by_id(name)


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a schema could not be used at a time."""

    reason: str
    at_ms: float

    def is_over(self, now_ms: float) -> bool:
        return now_ms - self.at_ms >= UNKNOWN_RETRY_MS


def parse_choice(text: str) -> SchemaChoice:
    """Return the schema that ``ID``, ``SUBJECT`` or ``SUBJECT:VERSION`` names.

    ``#MESSAGE`` at the end names a Protobuf message. A subject of digits only needs a version.

    Raises:
        UndefinedSchema: The text is empty, or the version is not a number or ``latest``.
    """
    name, message = split_message(text)
    if name.isascii() and name.isdigit():
        return SchemaChoice(id=int(name), message=message)
    subject, version = split_version(name)
    if not subject:
        raise UndefinedSchema(f"{text!r} names no schema")
    return SchemaChoice(subject=subject, version=version, message=message)


def split_message(text: str) -> tuple[str, str]:
    """Return a text without ``#MESSAGE`` at its end, and the message or an empty text."""
    name, found, message = text.rpartition("#")
    is_name = all(part.isidentifier() for part in message.split("."))
    return (name, message) if found and is_name else (text, "")


def split_version(text: str) -> tuple[str, Version]:
    """Return the subject and the version of ``SUBJECT[:VERSION]``. The default is ``latest``.

    The colons of a context, such as in ``:.sales:orders``, belong to the subject.
    """
    subject, found, version = text.rpartition(":")
    is_context = subject.startswith((":.", ":*")) and ":" not in subject[1:]
    if not found or is_context:
        return text, "latest"
    if version == "latest":
        return subject, "latest"
    return (subject, int(version)) if version.isascii() and version.isdigit() else (text, "latest")


def fetch_choice(client: RegistryClient, choice: SchemaChoice) -> StoredSchema:
    """Return the schema of a choice, with its id."""
    if choice.id is not None:
        return client.schema_by_id(choice.id)
    return client.version(choice.subject, choice.version)


def register_schema(client: RegistryClient, subject: str, schema: StoredSchema) -> StoredSchema:
    """Register a schema under a subject, and return it with its id."""
    return replace(schema, subject=subject, id=client.register(subject, schema))


def _open_codec(client: RegistryClient, schema: StoredSchema, message: str) -> _Codec:
    references = client.resolve(schema)
    match schema.kind:
        case SchemaKind.AVRO:
            from odradek.registry.avro_values.codec import AvroCodec

            return _Unindexed(AvroCodec(schema.text, references))
        case SchemaKind.JSON:
            from odradek.registry.json_schema_values import JsonSchemaCodec

            return _Unindexed(JsonSchemaCodec(schema.text, references))
        case SchemaKind.PROTOBUF:
            from odradek.registry.proto_values import ProtobufCodec

            codec = ProtobufCodec(schema.text, references)
            return _Indexed(codec, codec.indexes(message))
        case other:
            raise UnusableSchema(f"its kind {other} is unknown")


def _open_decoder(client: RegistryClient, schema: StoredSchema) -> _Decoder:
    if schema.kind != SchemaKind.JSON:
        return _open_codec(client, schema, "")
    from odradek.registry.json_schema_values import JsonDecoder

    return _UnindexedDecoder(JsonDecoder())


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


class _ValueDecoder(Protocol):
    """`JsonDecoder`."""

    def decode(self, data: bytes) -> object: ...


class _ValueCodec(_ValueDecoder, Protocol):
    """`AvroCodec` and `JsonSchemaCodec`."""

    def encode(self, value: object) -> bytes: ...


class _MessageCodec(Protocol):
    """`ProtobufCodec`."""

    def encode(self, indexes: tuple[int, ...], value: object) -> bytes: ...

    def decode(self, indexes: tuple[int, ...], data: bytes) -> object: ...


class _UnindexedDecoder:
    """A decoder of forms without message indexes."""

    def __init__(self, decoder: _ValueDecoder) -> None:
        self._decoder = decoder

    def decode(self, framed: Framed) -> object:
        return self._decoder.decode(framed.data)


class _Unindexed(_UnindexedDecoder):
    """A codec whose encoded form has no message indexes."""

    def __init__(self, codec: _ValueCodec) -> None:
        super().__init__(codec)
        self._codec = codec

    def encode(self, value: object) -> bytes:
        return self._codec.encode(value)


class _Indexed:
    """A codec of Protobuf messages. Encodes one message and decodes all."""

    def __init__(self, codec: _MessageCodec, indexes: tuple[int, ...]) -> None:
        self._codec = codec
        self._indexes = indexes

    def encode(self, value: object) -> bytes:
        return write_indexes(self._indexes) + self._codec.encode(self._indexes, value)

    def decode(self, framed: Framed) -> object:
        indexes, data = framed.message()
        return self._codec.decode(indexes, data)
