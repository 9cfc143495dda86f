"""Prefixes, headers and message indexes of Confluent's wire format."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.wire_format import (
    INDEXES_MAX,
    NotFramed,
    has_prefix,
    read_frame,
    write_indexes,
    write_prefix,
)

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=INDEXES_MAX)


def test_prefix_has_the_magic_byte_and_the_id() -> None:
    assert write_prefix(258) == b"\x00\x00\x00\x01\x02"
    framed = read_frame(b"\x00\x00\x00\x01\x02data", None)
    assert (framed.schema, framed.data) == (258, b"data")


def test_header_has_a_guid_and_the_data_has_no_prefix() -> None:
    framed = read_frame(b"data", b"\x01" + GUID.bytes)
    assert (framed.schema, framed.data) == (GUID, b"data")


def test_prefix_may_have_a_guid_and_a_header_an_id() -> None:
    assert read_frame(b"\x01" + GUID.bytes + b"data", None).schema == GUID
    assert read_frame(b"data", b"\x00\x00\x00\x00\x07").schema == 7


def test_first_message_is_one_byte() -> None:
    assert write_indexes((0,)) == b"\x00"
    assert read_frame(write_prefix(1) + b"\x00data", None).message() == ((0,), b"data")


def test_indexes_of_a_header_follow_its_guid() -> None:
    header = b"\x01" + GUID.bytes + write_indexes((1, 2))
    assert read_frame(b"data", header).message() == ((1, 2), b"data")


@given(INDEXES, st.binary(max_size=20))
def test_indexes_are_read_as_they_were_written(indexes: list[int], data: bytes) -> None:
    framed = read_frame(write_prefix(1) + write_indexes(indexes) + data, None)
    assert framed.message() == (tuple(indexes), data)


@given(INDEXES, st.integers(0, 2**31 - 1))
def test_indexes_agree_with_confluents_serializers(indexes: list[int], id_: int) -> None:
    name = SchemaId("PROTOBUF", id_, str(GUID), indexes)
    framed = read_frame(name.id_to_bytes(), None)
    assert (framed.schema, framed.message()[0]) == (id_, tuple(indexes))
    header = read_frame(b"", name.guid_to_bytes())
    assert (header.schema, header.message()[0]) == (GUID, tuple(indexes))
    theirs = SchemaId("PROTOBUF")
    theirs.from_bytes(io.BytesIO(write_prefix(id_) + write_indexes(indexes)))
    assert (theirs.id, theirs.message_indexes) == (id_, indexes)


@pytest.mark.parametrize(
    ("data", "header", "reason"),
    [
        (b"", None, "it is empty"),
        (b"plain text", None, "the first byte is 112, not 0"),
        (b"\x00\x00\x00", None, "too short for a schema id"),
        (b"\x01\x00\x00\x00\x01", None, "too short for a schema id"),
        (b"data", b"", "it is empty"),
        (b"data", b"\x02", "the first byte is 2"),
    ],
)
def test_bytes_without_a_schema_are_refused(data: bytes, header: bytes | None, reason: str) -> None:
    with pytest.raises(NotFramed, match=reason):
        read_frame(data, header)


@pytest.mark.parametrize(
    ("indexes", "reason"),
    [
        (b"", "truncated"),
        (b"\x02", "truncated"),
        (b"\x80\x80\x80\x80\x80\x01", "truncated"),
        (b"\x01", "-1 message indexes"),
        (b"\x02\x01", "the message index -1"),
        (write_indexes(range(INDEXES_MAX + 1)), "101 message indexes"),
    ],
)
def test_invalid_indexes_are_refused(indexes: bytes, reason: str) -> None:
    with pytest.raises(NotFramed, match=reason):
        read_frame(write_prefix(1) + indexes, None).message()


@given(st.binary(max_size=30), st.none() | st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(data: bytes, header: bytes | None) -> None:
    try:
        read_frame(data, header).message()
    except NotFramed:
        return


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"\x00\x00\x00\x00\x01", True), (b"\x00\x00", False), (b"user-17", False), (b"", False)],
)
def test_prefix_is_recognized(data: bytes, expected: bool) -> None:
    assert has_prefix(data) is expected
