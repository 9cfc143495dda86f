"""Keys and values of the coordinators' records, with type and version in front of them."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import MalformedMessage, UnencodableMessage, UnknownVersion
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue
from odradek.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.record_codec import (
    UnknownRecordType,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    value_class,
)
from odradek.protocol.record_types import RECORD_TYPES


def test_an_offset_commit_has_kafkas_bytes() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert encode_key(key) == b"\0\1\0\1g\0\1t\0\0\0\3"
    assert encode_value(value, 3) == b"\0\3" + b"\0" * 7 + b"\7\0\0\0\2\0\1m" + b"\0" * 7 + b"\x09"


@pytest.mark.parametrize(
    "key",
    [
        OffsetCommitKey(group="g", topic="t", partition=3),
        LegacyOffsetCommitKey(group="g", topic="t", partition=3),
        GroupMetadataKey(group="g"),
    ],
    ids=lambda key: type(key).__name__,
)
def test_the_type_in_front_of_a_key_determines_its_class(key: GroupMetadataKey) -> None:
    assert decode_key("group", encode_key(key)) == key


def test_type_zero_is_another_record_in_another_topic() -> None:
    data = encode_key(TransactionLogKey(transactional_id="id"))
    assert decode_key("transaction", memoryview(data)) == TransactionLogKey(transactional_id="id")


def test_a_key_determines_the_class_of_its_value() -> None:
    assert value_class("group", GroupMetadataKey()) is GroupMetadataValue


@pytest.mark.parametrize("version", range(5))
def test_values_read_back_in_every_version(version: int) -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    assert decode_value(OffsetCommitValue, encode_value(value, version)) == value


def test_every_type_has_a_key_and_a_value() -> None:
    counts = {family: len(types) for family, types in RECORD_TYPES.items()}
    assert counts == {"group": 22, "share": 2, "transaction": 1}


def test_a_type_of_a_later_kafka_is_unknown_and_not_malformed() -> None:
    with pytest.raises(UnknownRecordType, match="group records have no type 99"):
        decode_key("group", b"\0\x63rest")


def test_a_value_version_of_a_later_kafka_is_unknown_and_not_malformed() -> None:
    with pytest.raises(UnknownRecordType, match="no version 9"):
        decode_value(OffsetCommitValue, b"\0\x09rest")


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\x09g"])
def test_a_key_that_ends_early_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_key("group", data)


def test_a_value_is_not_written_in_a_version_that_does_not_exist() -> None:
    with pytest.raises(UnknownVersion):
        encode_value(OffsetCommitValue(), 5)


def test_a_value_out_of_range_is_not_written() -> None:
    with pytest.raises(UnencodableMessage):
        encode_value(OffsetCommitValue(offset=1 << 63), 3)
