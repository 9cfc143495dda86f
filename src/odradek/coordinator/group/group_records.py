"""The records of committed offsets and of classic groups, in Kafka's schemas.

OffsetCommitKey/Value (key type 1) and GroupMetadataKey/Value (key type 2) of
``__consumer_offsets``. Key types 3 to 16 are in `coordinator.group.consumer.consumer_records`.
OffsetCommitValue is written in version 3. It is written in version 1 when the client sent a
retention time, because only version 1 has an expire timestamp. GroupMetadataValue is written in
version 3, by `GroupMembership.metadata_record`. A null value is a tombstone.

`encode` returns their bytes. Nearly every record is a committed offset, which has a fast path
without the generic encoder.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from odradek.coordinator.coordinator_result import CoordinatorRecord, encode_record
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue

GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
# A group commits the same topics repeatedly. A name may have 32 KiB.
KEY_PREFIXES_REMEMBERED_MAX = 1_000

_KEY_TYPE = struct.Struct(">hh")
_SIZE = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_VALUE = struct.Struct(">hqih")
_TIMESTAMP = struct.Struct(">q")


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes a classic group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None, GROUP_METADATA_VALUE_VERSION)


def offset_commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the record that removes one committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, None, OFFSET_COMMIT_VALUE_VERSION)


def offset_commit_record(key: OffsetCommitKey, value: OffsetCommitValue) -> CoordinatorRecord:
    """Return the record of one committed offset, in the version that has all of its fields."""
    version = OFFSET_COMMIT_VALUE_VERSION
    if value.expire_timestamp != -1:
        version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY
    return CoordinatorRecord(key, value, version)


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return key and value with the bytes of `record_codec`. Raise `UnencodableMessage`."""
    key, value, version = record
    if type(key) is not OffsetCommitKey or version != OFFSET_COMMIT_VALUE_VERSION:
        return encode_record(record)
    try:
        encoded = _commit_key_prefix(key.group, key.topic) + _PARTITION.pack(key.partition)
        if value is None:
            return encoded, None
        assert type(value) is OffsetCommitValue
        metadata = value.metadata.encode()
        front = _VALUE.pack(version, value.offset, value.leader_epoch, len(metadata))
        return encoded, front + metadata + _TIMESTAMP.pack(value.commit_timestamp)
    except (struct.error, UnicodeEncodeError):
        return encode_record(record)  # its error names the field


@lru_cache(KEY_PREFIXES_REMEMBERED_MAX)
def _commit_key_prefix(group: str, topic: str) -> bytes:
    """Return the bytes of an OffsetCommitKey before the partition."""
    group_id, name = group.encode(), topic.encode()
    front = _KEY_TYPE.pack(OffsetCommitKey.API_KEY, len(group_id))
    return front + group_id + _SIZE.pack(len(name)) + name
