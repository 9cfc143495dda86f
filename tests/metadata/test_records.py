"""Frames of metadata records: round trips, and bytes that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.ids import Uuid
from odradek.metadata.image import MetadataImage
from odradek.metadata.image_records import image_records
from odradek.metadata.records import InvalidRecord, decode_record, encode_record
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
from tests.metadata.image_strategies import images

REMOVAL = RemoveTopicRecord(Uuid(b"i" * 16))


@settings(max_examples=50, deadline=None)
@given(images())
def test_records_are_decoded_as_they_were_encoded(image: MetadataImage) -> None:
    for record in image_records(image):
        assert decode_record(encode_record(record)) == record
        assert decode_record(memoryview(encode_record(record))) == record


def test_frame_has_frame_version_type_and_version_before_the_record() -> None:
    assert encode_record(REMOVAL) == b"\x01\x09\x00" + b"i" * 16 + b"\x00"


def test_type_of_a_record_of_our_own_takes_three_bytes() -> None:
    data = encode_record(TopicDeletionRecord(Uuid(b"i" * 16), "t", [2]))
    assert data[:5] == b"\x01\x84\x9d\x01\x00"  # 20100 as a varint, then version 0


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    for value in (data, b"\x01" + data, encode_record(REMOVAL)[:3] + data):
        try:
            record = decode_record(value)
        except InvalidRecord:
            continue
        assert replace(record) == record


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "varint"),
        (b"\x80\x80\x80\x80\x80\x01", "varint"),
        (b"\x02\x09\x00" + b"i" * 17, "frame version 2"),
        (b"\x01\x7f\x00", "unknown type of record 127"),
        (b"\x01\x09\x05" + b"i" * 17, "RemoveTopicRecord of version 5"),
        (encode_record(REMOVAL)[:-1], "invalid RemoveTopicRecord"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        decode_record(value)
