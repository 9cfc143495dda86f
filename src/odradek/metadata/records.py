"""Records of the metadata, and their frames: the changes of an image in Kafka's schemas.

All changes of the metadata are Kafka's metadata records, with one exception: `TopicDeletionRecord`
is Odradek's, because Kafka has no record of a deletion whose logs still exist. A frame is a frame
version (1), the type and the version of the record, each an unsigned varint, and the record
(``MetadataRecordSerde``). The values of ``__cluster_metadata`` and the feed between brokers have
this form.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord

MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | TopicDeletionRecord
    | ConfigRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
)

FRAME_VERSION = 1
_VARINT_BYTES_MAX = 5
_CLASSES: dict[int, type[Message]] = {cls.API_KEY: cls for cls in MetadataRecord.__args__}


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
    return _CLASSES.get(api_key)


def decode_frame(frame: Frame) -> MetadataRecord:
    """Decode a record of a known type.

    Raises:
        InvalidRecord: The type is unknown, the version is too new, or the record is malformed.
    """
    cls = _CLASSES.get(frame.api_key)
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
    number = 0
    for i, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return number, position + i + 1
    raise InvalidRecord("a varint does not end")
