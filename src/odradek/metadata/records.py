"""Records of the metadata, and their frames: the changes of an image in Kafka's schemas.

All changes of the metadata are Kafka's metadata records, with one exception: `TopicDeletionRecord`
is Odradek's, because Kafka has no record of a deletion whose logs still exist. A frame is a frame
version (1), the type and the version of the record, each an unsigned varint, and the record
(``MetadataRecordSerde``). The values of ``__cluster_metadata`` and the feed between brokers have
this form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from odradek.metadata import record_classes
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import MalformedMessage

if TYPE_CHECKING:
    MetadataRecord: TypeAlias = (
        record_classes.RegisterBrokerRecord
        | record_classes.UnregisterBrokerRecord
        | record_classes.BrokerRegistrationChangeRecord
        | record_classes.TopicRecord
        | record_classes.PartitionRecord
        | record_classes.PartitionChangeRecord
        | record_classes.RemoveTopicRecord
        | record_classes.TopicDeletionRecord
        | record_classes.ConfigRecord
        | record_classes.ClientQuotaRecord
        | record_classes.ProducerIdsRecord
        | record_classes.FeatureLevelRecord
    )
else:
    MetadataRecord: TypeAlias = Message

FRAME_VERSION = 1
_VARINT_BYTES_MAX = 5


class InvalidRecord(ValueError):
    """A record cannot be read, or does not fit the image. Neither has any effect."""


class Frame(NamedTuple):
    """The record's type, version and bytes."""

    api_key: int
    version: int
    body: memoryview


def read_frame(value: bytes | memoryview) -> Frame:
    """Split the bytes of one record.

    Raises:
        InvalidRecord: The frame is torn or has an unknown frame version.
    """
    frame_version, position = _unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise InvalidRecord(f"unknown frame version {frame_version}")
    api_key, position = _unsigned_varint(value, position)
    version, position = _unsigned_varint(value, position)
    return Frame(api_key, version, memoryview(value)[position:])


def record_class(api_key: int) -> type[Message] | None:
    """Return the class of a type of records, or None if the type changes no image."""
    name = record_classes.RECORD_TYPES.get(api_key)
    return None if name is None else getattr(record_classes, name)


def decode_frame(frame: Frame) -> MetadataRecord:
    """Decode a record of a known type.

    Raises:
        InvalidRecord: The type is unknown, the version is too new, or the record is malformed.
    """
    cls = record_class(frame.api_key)
    if cls is None:
        raise InvalidRecord(f"unknown type of record {frame.api_key}")
    if not cls.MIN_VERSION <= frame.version <= cls.MAX_VERSION:
        raise InvalidRecord(
            f"{cls.__name__} of version {frame.version}, which is newer than {cls.MAX_VERSION}"
        )
    try:
        return decode(cls, frame.version, frame.body)  # type: ignore[return-value]
    except MalformedMessage as error:
        raise InvalidRecord(f"invalid {cls.__name__}: {error!r}") from error


def decode_record(value: bytes | memoryview) -> MetadataRecord:
    """Decode the bytes that `encode_record` returned.

    Raises:
        InvalidRecord: As for `read_frame` and `decode_frame`.
    """
    return decode_frame(read_frame(value))


def encode_record(record: MetadataRecord) -> bytes:
    """Return the frame of a record, in the newest version."""
    version = record.MAX_VERSION
    head = bytearray((FRAME_VERSION,))
    for number in (record.API_KEY, version):
        while number > 0x7F:
            head.append(number & 0x7F | 0x80)
            number >>= 7
        head.append(number)
    return bytes(head) + encode(record, version)


def _unsigned_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    number = 0
    for i, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return number, position + i + 1
    raise InvalidRecord("a varint does not end")
