"""Keys and values of the coordinators' internal topics (``__consumer_offsets`` and its like).

Key: int16 type of the record, then the key's body in version 0. Value: int16 version, then its
body. The type determines the classes of key and value. Types of a later Kafka are unknown and
raise `UnknownRecordType`, so that a loader can skip them as Kafka does.
"""

from __future__ import annotations

import struct
from functools import cache

from odradek.protocol.codec import M, Message, decoder, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.record_types import RECORD_TYPES
from odradek.protocol.registry import message_class

KEY_VERSION = 0
_PREFIX = struct.Struct(">h")


class UnknownRecordType(ValueError):
    """The key's type, or the value's version, does not exist in this version of Kafka."""


def encode_key(key: Message) -> bytes:
    """Return the record key: type number and body. May raise `UnencodableMessage`."""
    return _PREFIX.pack(key.API_KEY) + encode(key, KEY_VERSION)


def encode_value(value: Message, version: int) -> bytes:
    """Return the record value: version and body.

    Raises:
        UnencodableMessage: A value does not fit the version.
        UnknownVersion: The message has no such version.
    """
    return _PREFIX.pack(version) + encode(value, version)


def decode_key(family: str, data: memoryview | bytes) -> Message:
    """Return the key of a record of `family`: "group", "share" or "transaction".

    Raises:
        UnknownRecordType: The family has no such type.
        MalformedMessage: The bytes are not such a key.
    """
    record_type = _prefix(data)
    key_class, _value_class = _classes(family, record_type)
    return decoder(key_class, KEY_VERSION)(memoryview(data), _PREFIX.size)[0]


def decode_value(cls: type[M], data: memoryview | bytes) -> M:
    """Return the value of a record whose value class is `cls`, with the errors of `decode_key`."""
    version = _prefix(data)
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnknownRecordType(f"{cls.SPEC} has no version {version}")
    return decoder(cls, version)(memoryview(data), _PREFIX.size)[0]


def value_class(family: str, key: Message) -> type[Message]:
    """Return the class of the value that belongs to a decoded `key`."""
    return _classes(family, key.API_KEY)[1]


@cache
def _classes(family: str, record_type: int) -> tuple[type[Message], type[Message]]:
    names = RECORD_TYPES[family].get(record_type)
    if names is None:
        raise UnknownRecordType(f"{family} records have no type {record_type}")
    return message_class(names[0]), message_class(names[1])


def _prefix(data: memoryview | bytes) -> int:
    if len(data) < _PREFIX.size:
        raise MalformedMessage(f"record of {len(data)} bytes has no type or version")
    number: int = _PREFIX.unpack_from(data)[0]
    return number
