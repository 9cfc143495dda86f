"""The slow codec. It walks a definition field by field, as an oracle for tests of the compiled one.

It shares the definitions, the message classes and the limits with `compile.py`, but no code and no
optimizations.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

from odradek.protocol.codec import M, Message
from odradek.protocol.errors import MalformedMessage, UnencodableMessage
from odradek.protocol.spec import NEW_STRUCT, FieldSpec, MessageSpec, StructSpec, load
from odradek.protocol.wire import REQUEST_ELEMENTS_MAX, TAGS_MAX

_FORMATS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


def decode(cls: type[M], version: int, buffer: memoryview | bytes, pos: int = 0) -> tuple[M, int]:
    """Return the message at `pos` and the position after it, or raise `MalformedMessage`."""
    reader = _Reader(cls, version, memoryview(buffer), pos)
    message: M = reader.struct(reader.spec.body)
    return message, reader.pos


def encode(message: Message, version: int) -> bytes:
    """Return the message's bytes, or raise `UnencodableMessage`."""
    writer = _Writer(type(message), version)
    writer.struct(writer.spec.body, message)
    return bytes(writer.out)


class _Codec:
    def __init__(self, cls: type[Message], version: int) -> None:
        self.spec: MessageSpec = load(cls.SPEC)
        self.version = version
        self.classes = vars(sys.modules[cls.__module__])

    def is_flexible(self, field: FieldSpec | None = None) -> bool:
        if field is not None and field.flexible is not None:
            return field.flexible.has(self.version)
        return self.spec.flexible.has(self.version)

    def default(self, field: FieldSpec) -> Any:
        if field.default is NEW_STRUCT:
            assert field.struct is not None
            return self.classes[field.struct.name]()
        return list(field.default) if field.is_array and field.default == [] else field.default


class _Reader(_Codec):
    def __init__(self, cls: type[Message], version: int, view: memoryview, pos: int) -> None:
        super().__init__(cls, version)
        self.view = view
        self.pos = pos
        self.left = REQUEST_ELEMENTS_MAX if load(cls.SPEC).kind == "request" else sys.maxsize

    def take(self, size: int) -> memoryview:
        if size > len(self.view) - self.pos:
            raise MalformedMessage(f"{size} bytes expected, {len(self.view) - self.pos} remain")
        self.pos += size
        return self.view[self.pos - size : self.pos]

    def number(self, kind: str) -> Any:
        form = _FORMATS[kind]
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                if value >= 1 << 31:
                    raise MalformedMessage("varint out of range")
                return value
        raise MalformedMessage("varint too long")

    def length(self, field: FieldSpec, kind: str, nullable: bool) -> int | None:
        length = self.uvarint() - 1 if self.is_flexible(field) else self.number(kind)
        if length >= 0:
            return int(length)
        if not nullable:
            raise MalformedMessage(f"{field.name} is null")
        return None

    def struct(self, spec: StructSpec) -> Any:
        values = {f.attribute: self.default(f) for f in spec.fields}
        for field in spec.present(self.version):
            values[field.attribute] = self.field(field)
        if self.is_flexible():
            known = {field.tag: field for field in spec.tagged(self.version)}
            count = self.uvarint()
            if count > TAGS_MAX:
                raise MalformedMessage(f"{count} tagged fields")
            for _ in self.bounded(count):
                self.tag(known, values)
        return self.classes[spec.name](**values)

    def tag(self, known: dict[int, FieldSpec], values: dict[str, Any]) -> None:
        tag, size = self.uvarint(), self.uvarint()
        stop = self.pos + size
        if tag not in known:
            self.take(size)
            return
        values[known[tag].attribute] = self.field(known[tag])
        if self.pos != stop or stop > len(self.view):
            raise MalformedMessage(f"tag {tag} does not have its announced size")

    def field(self, field: FieldSpec) -> Any:
        nullable = field.is_nullable(self.version)
        if not field.is_array:
            return self.value(field, nullable)
        count = self.length(field, "int32", nullable)
        if count is None:
            return None
        return [self.value(field, False) for _ in self.bounded(count)]

    def bounded(self, count: int) -> range:
        """Check that each element can have at least one byte."""
        if count > len(self.view) - self.pos:
            raise MalformedMessage(f"{count} elements in {len(self.view) - self.pos} bytes")
        self.left -= count
        if self.left < 0:
            raise MalformedMessage("too many elements in a request")
        return range(count)

    def value(self, field: FieldSpec, nullable: bool) -> Any:
        if field.struct is not None:
            return None if nullable and self.is_null(field) else self.struct(field.struct)
        if field.kind == "uuid":
            return bytes(self.take(16))
        if field.kind in _FORMATS:
            return self.number(field.kind)
        is_string = field.kind == "string"
        length = self.length(field, "int16" if is_string else "int32", nullable)
        if length is None:
            return None
        if is_string and length > 32767:
            raise MalformedMessage(f"{field.name} is too long")
        data = self.take(length)
        if is_string:
            return bytes(data).decode("utf-8", "replace")
        return data if field.kind == "records" else bytes(data)

    def is_null(self, field: FieldSpec) -> bool:
        """Return whether a nullable struct is null, from the byte before it or a tag's varint."""
        if field.tagged.has(self.version):
            return self.uvarint() == 0
        return bool(self.number("int8") < 0)


class _Writer(_Codec):
    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.out = bytearray()

    def number(self, kind: str, value: Any) -> None:
        try:
            self.out += struct.pack(_FORMATS[kind], value)
        except struct.error as error:
            raise UnencodableMessage(f"{value!r} is no {kind}") from error

    def uvarint(self, value: int) -> None:
        while value > 127:
            self.out.append(value % 128 + 128)
            value //= 128
        self.out.append(value)

    def length(self, field: FieldSpec, kind: str, value: Any, nullable: bool) -> None:
        if value is None and not nullable:
            raise UnencodableMessage(f"{field.name} is null")
        length = -1 if value is None else len(value)
        if kind == "int16" and length > 32767:
            raise UnencodableMessage(f"{field.name} is too long")
        if self.is_flexible(field):
            self.uvarint(length + 1)
        else:
            self.number(kind, length)

    def struct(self, spec: StructSpec, value: Any) -> None:
        for field in spec.absent(self.version):
            if not field.ignorable and self.is_set(field, value):
                raise UnencodableMessage(f"{field.name} does not exist in version {self.version}")
        for field in spec.present(self.version):
            self.field(field, getattr(value, field.attribute))
        if self.is_flexible():
            tags = [field for field in spec.tagged(self.version) if self.is_set(field, value)]
            self.uvarint(len(tags))
            for field in tags:
                self.tag(field, getattr(value, field.attribute))

    def is_set(self, field: FieldSpec, owner: Any) -> bool:
        value = getattr(owner, field.attribute)
        if field.struct is not None and not field.is_array and field.tag >= 0:
            return bool(value != self.default(field) and value != self.classes[field.struct.name]())
        return bool(value != self.default(field))

    def tag(self, field: FieldSpec, value: Any) -> None:
        outer, self.out = self.out, bytearray()
        self.field(field, value)
        inner, self.out = self.out, outer
        self.uvarint(field.tag)
        self.uvarint(len(inner))
        self.out += inner

    def field(self, field: FieldSpec, value: Any) -> None:
        nullable = field.is_nullable(self.version)
        if not field.is_array:
            self.value(field, value, nullable)
            return
        self.length(field, "int32", value, nullable)
        for element in value or ():
            self.value(field, element, False)

    def value(self, field: FieldSpec, value: Any, nullable: bool) -> None:
        if field.struct is not None:
            self.marked_struct(field, value, nullable)
        elif field.kind in _FORMATS:
            self.number(field.kind, value)
        elif field.kind == "uuid":
            if len(value) != 16:
                raise UnencodableMessage(f"{field.name} is no uuid: {value!r}")
            self.out += value
        elif field.kind == "string":
            data = value if value is None else self.utf_8(field, value)
            self.length(field, "int16", data, nullable)
            self.out += data or b""
        else:
            self.length(field, "int32", value, nullable)
            self.out += value or b""

    def utf_8(self, field: FieldSpec, value: str) -> bytes:
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise UnencodableMessage(f"{field.name} is no text") from error

    def marked_struct(self, field: FieldSpec, value: Any, nullable: bool) -> None:
        """Write a struct. A nullable one has a byte before it: 1, or for null -1 (0 in a tag)."""
        assert field.struct is not None
        if value is None and not nullable:
            raise UnencodableMessage(f"{field.name} is null")
        null = 0 if field.tagged.has(self.version) else -1
        if nullable:
            self.number("int8", null if value is None else 1)
        if value is not None:
            self.struct(field.struct, value)
