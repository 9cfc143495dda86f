"""Arrays, maps, records and unions of Avro, with their values in Avro's JSON encoding. Pure.

A value of a union is null, or an object with one field: the name of the branch and the value, such
as ``{"string": "x"}``. For input, a value without this object is accepted if exactly one branch
takes it. An object whose only field has the name of a branch is always a value with its branch.
"""

from __future__ import annotations

from odradek.registry.avro_values.binary import Reader, Writer
from odradek.registry.avro_values.types import AvroType, Null, String, mismatch
from odradek.registry.codec_errors import InvalidValue, UndecodableValue


class Array(AvroType):
    """Blocks of items. The writer uses one block."""

    branch = "array"

    def __init__(self, items: AvroType) -> None:
        self._items = items

    def read(self, reader: Reader) -> list[object]:
        read = self._items.read
        return [read(reader) for count in reader.blocks() for _ in range(count)]

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, list):
            raise mismatch(value, "an array")
        if value:
            writer.long(len(value))
        for number, item in enumerate(value):
            _write(self._items, item, writer, str(number))
        writer.long(0)


class Map(AvroType):
    """Blocks of keys and values. The writer uses one block."""

    branch = "map"

    def __init__(self, values: AvroType) -> None:
        self._keys = String()
        self._values = values

    def read(self, reader: Reader) -> dict[str, object]:
        found: dict[str, object] = {}
        for count in reader.blocks():
            for _ in range(count):
                key = self._keys.read(reader)
                found[key] = self._values.read(reader)
        return found

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, dict):
            raise mismatch(value, "an object")
        if value:
            writer.long(len(value))
        for key, each in value.items():
            self._keys.write(key, writer)
            _write(self._values, each, writer, key)
        writer.long(0)


class RecordField:
    """A field of a record, with its default if it has one."""

    __slots__ = ("_default", "_encoded", "has_default", "name", "type")

    def __init__(self, name: str, type_: AvroType, has_default: bool, default: object) -> None:
        self.name = name
        self.type = type_
        self.has_default = has_default
        self._default = default
        self._encoded: bytes | None = None

    def encoded_default(self) -> bytes:
        """Return the bytes of the default. A default may be invalid in old schemas."""
        if self._encoded is None:
            writer = Writer(as_default=True)
            self.type.write(self._default, writer)
            self._encoded = bytes(writer.out)
        return self._encoded


class Record(AvroType):
    """A record. `fields` is set after construction, because they may contain the record."""

    def __init__(self, name: str) -> None:
        self.branch = name
        self.fields: list[RecordField] = []

    def read(self, reader: Reader) -> dict[str, object]:
        return {field.name: field.type.read(reader) for field in self.fields}

    def write(self, value: object, writer: Writer) -> None:
        if not isinstance(value, dict):
            raise mismatch(value, f"an object for {self.branch}")
        unknown = value.keys() - {field.name for field in self.fields}
        if unknown:
            raise InvalidValue(f"{self.branch} has no field {min(unknown)!r}")
        for field in self.fields:
            if field.name in value:
                _write(field.type, value[field.name], writer, field.name)
            elif field.has_default:
                writer.out += field.encoded_default()
            else:
                raise InvalidValue(f"the field {field.name!r} of {self.branch} is missing")


class Union(AvroType):
    """The number of a branch, then its value."""

    branch = "union"

    def __init__(self, branches: list[AvroType]) -> None:
        self._branches = branches
        self._numbers = {each.branch: number for number, each in enumerate(branches)}

    def read(self, reader: Reader) -> object:
        number = reader.long()
        if not 0 <= number < len(self._branches):
            raise UndecodableValue(f"the branch {number} of a union of {len(self._branches)}")
        branch = self._branches[number]
        value = branch.read(reader)
        return value if isinstance(branch, Null) else {branch.branch: value}

    def write(self, value: object, writer: Writer) -> None:
        tag = None if writer.as_default else self._tag(value)
        if tag is not None and isinstance(value, dict):
            writer.long(self._numbers[tag])
            _write(self._branches[self._numbers[tag]], value[tag], writer, tag)
            return
        number, data = self._only(value, writer)
        writer.long(number)
        writer.out += data

    def _tag(self, value: object) -> str | None:
        """Return the branch that an object names, or None."""
        if isinstance(value, dict) and len(value) == 1:
            (name,) = value
            return name if name in self._numbers else None
        return None

    def _only(self, value: object, writer: Writer) -> tuple[int, bytes]:
        """Return the number and the bytes of the branch for a value that names none."""
        found: list[tuple[int, bytes]] = []
        errors: list[InvalidValue] = []
        for number, branch in enumerate(self._branches):
            trial = writer.fork()
            try:
                branch.write(value, trial)
            except InvalidValue as error:
                if not isinstance(branch, Null):
                    errors.append(error)
                continue
            found.append((number, bytes(trial.out)))
            if writer.as_default:
                break
        if len(found) == 1:
            return found[0]
        if not found and len(errors) == 1 and value is not None:
            raise errors[0]
        raise self._unclear(value, [self._branches[number].branch for number, _ in found])

    def _unclear(self, value: object, fitting: list[str]) -> InvalidValue:
        if not fitting:
            return mismatch(value, f"a value of a branch of the union: {', '.join(self._numbers)}")
        example = f'{{"{fitting[0]}": ...}}'
        return mismatch(
            value,
            f"clear: it fits the branches {', '.join(fitting)} of the union. Name the branch,"
            f" such as {example}",
        )


def _write(type_: AvroType, value: object, writer: Writer, name: str) -> None:
    try:
        type_.write(value, writer)
    except InvalidValue as error:
        raise error.below(name) from None
