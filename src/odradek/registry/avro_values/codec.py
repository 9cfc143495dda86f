"""Conversion between Avro's binary encoding and JSON, by a schema. Pure.

`AvroCodec` needs no library for Avro. Libraries return the values of a union without the branch, so
that a value of two similar branches could not be written again. This codec keeps the branch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from odradek.registry.avro_values.binary import Reader, Writer
from odradek.registry.avro_values.containers import Array, Map, Record, RecordField, Union
from odradek.registry.avro_values.logical import DecimalType, logical
from odradek.registry.avro_values.types import AvroType, Bytes, Enum, Fixed, bytes_of, primitive
from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.schemas.parsed import ResolvedReference

JsonObject = Mapping[str, object]


class AvroCodec:
    """Conversion of the values of one schema.

    Args:
        text: The schema.
        references: The texts of its references, in the order of dependency.

    Raises:
        UnusableSchema: The schema is invalid.
    """

    def __init__(self, text: str, references: Sequence[ResolvedReference] = ()) -> None:
        compiler = _CodecCompiler()
        try:
            for each in references:
                compiler.compile(json.loads(each.text), "")
            self._type = compiler.compile(json.loads(text), "")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnusableSchema(f"the Avro schema is invalid: {error}") from None
        except RecursionError:
            raise UnusableSchema("the Avro schema is nested too deeply") from None

    def decode(self, data: bytes) -> object:
        """Return the JSON value of an encoded value.

        Raises:
            UndecodableValue: The bytes are not a value of the schema.
        """
        try:
            return self._decode(data)
        except RecursionError:
            raise UndecodableValue("the value is nested too deeply") from None

    def encode(self, value: object) -> bytes:
        """Return the encoded form of a JSON value.

        Raises:
            InvalidValue: The value does not fit the schema.
        """
        try:
            return self._encode(value)
        except RecursionError:
            raise InvalidValue("the value is nested too deeply") from None

    # Confluent's serializers write a value of the schema "bytes" without its length.

    def _decode(self, data: bytes) -> object:
        match self._type:
            case Bytes():
                return data.decode("latin-1")
            case DecimalType(base=Bytes()) as decimal:
                return decimal.from_bytes(data)
        reader = Reader(data)
        value = self._type.read(reader)
        reader.finish()
        return value

    def _encode(self, value: object) -> bytes:
        match self._type:
            case Bytes():
                return bytes_of(value)
            case DecimalType(base=Bytes()) as decimal:
                return decimal.to_bytes(value)
        writer = Writer()
        self._type.write(value, writer)
        return bytes(writer.out)


class _CodecCompiler:
    """Builds the types of schemas. The names of records, enums and fixeds remain known."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def compile(self, schema: object, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return Union([self.compile(each, namespace) for each in schema])
        if not isinstance(schema, dict):
            raise ValueError(f"{schema!r} is not a type")
        return self._by_object(schema, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        found = primitive(name)
        if found is not None:
            return found
        for full in (_full_name(name, namespace), name):
            if full in self._named:
                return self._named[full]
        raise ValueError(f"the type {name!r} is not defined")

    def _by_object(self, schema: JsonObject, namespace: str) -> AvroType:
        match schema["type"]:
            case "array":
                return Array(self.compile(schema["items"], namespace))
            case "map":
                return Map(self.compile(schema["values"], namespace))
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                return self._define(schema, namespace, self._enum)
            case "fixed":
                return self._define(schema, namespace, self._fixed)
            case other:
                return logical(self.compile(other, namespace), schema)

    def _record(self, schema: JsonObject, namespace: str) -> AvroType:
        name, inner = _names(schema, namespace)
        record = Record(name)
        self._named[name] = record  # its fields may contain it
        fields = schema["fields"]
        if not isinstance(fields, list):
            raise ValueError(f"the fields of {name} are not an array")
        record.fields = [
            RecordField(
                field["name"],
                self.compile(field["type"], inner),
                "default" in field,
                field.get("default"),
            )
            for field in fields
        ]
        return record

    def _enum(self, schema: JsonObject, name: str) -> AvroType:
        symbols = schema["symbols"]
        if not isinstance(symbols, list):
            raise ValueError(f"the symbols of {name} are not an array")
        return Enum(name, symbols)

    def _fixed(self, schema: JsonObject, name: str) -> AvroType:
        size = schema["size"]
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"the size of {name} is not a number")
        return logical(Fixed(name, size), schema)

    def _define(
        self,
        schema: JsonObject,
        namespace: str,
        build: Callable[[JsonObject, str], AvroType],
    ) -> AvroType:
        name, _ = _names(schema, namespace)
        self._named[name] = build(schema, name)
        return self._named[name]


def _full_name(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _names(schema: JsonObject, namespace: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace of the names in it."""
    name = schema["name"]
    own = schema.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str | None):
        raise ValueError(f"{name!r} is not a name")
    full = _full_name(name, own or "")
    return full, full.rpartition(".")[0]
