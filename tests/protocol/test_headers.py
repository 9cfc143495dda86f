"""Request and response headers compared with the definitions, as the slow codec reads them."""

from __future__ import annotations

import pytest

from odradek.protocol import interpret
from odradek.protocol.api_keys import API_RANGES, FLEXIBLE_FROM, ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.headers import parse_request_header, request_header, response_header
from odradek.protocol.messages.request_header import RequestHeader
from odradek.protocol.messages.response_header import ResponseHeader

ALL_VERSIONS = [
    (key, version)
    for key, (lowest, highest, _flexible) in API_RANGES.items()
    for version in range(lowest, highest + 1)
]


def encoded_request_header(key: int, version: int, client_id: str | None) -> bytes:
    header = RequestHeader(key, version, -77, client_id)
    return interpret.encode(header, 2 if version >= FLEXIBLE_FROM[key] else 1)


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe" * 50])
def test_request_headers_of_every_api_and_version_are_read(client_id: str | None) -> None:
    for key, version in ALL_VERSIONS:
        data = encoded_request_header(key, version, client_id)
        parsed = parse_request_header(memoryview(data + b"body"))
        assert parsed == (key, version, -77, client_id, len(data))


@pytest.mark.parametrize("client_id", ["", "rdkafka", "größe" * 50])
def test_request_headers_of_every_api_and_version_are_written(client_id: str) -> None:
    for key, version in ALL_VERSIONS:
        expected = encoded_request_header(key, version, client_id)
        assert request_header(key, version, -77, client_id) == expected


def test_response_headers_of_every_api_and_version_are_written() -> None:
    for key, version in ALL_VERSIONS:
        is_flexible = version >= FLEXIBLE_FROM[key] and key != ApiKey.API_VERSIONS
        expected = interpret.encode(ResponseHeader(correlation_id=-5), int(is_flexible))
        assert response_header(key, version, -5) == expected


def test_tags_of_a_request_header_are_skipped() -> None:
    data = encoded_request_header(ApiKey.FETCH, 12, "c")[:-1] + b"\1\x07\2ab"
    assert parse_request_header(memoryview(data))[4] == len(data)


def test_a_request_header_truncated_anywhere_is_malformed() -> None:
    data = encoded_request_header(ApiKey.FETCH, 12, "client")
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            parse_request_header(memoryview(data)[:size])


def test_a_client_id_longer_than_its_frame_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="client id of 32767 bytes"):
        parse_request_header(memoryview(b"\0\1\0\4\0\0\0\1\x7f\xff" + bytes(20)))


def test_a_client_id_that_is_not_utf_8_is_read_as_in_kafka() -> None:
    header = parse_request_header(memoryview(b"\0\1\0\4\0\0\0\1\0\2\xe4x"))
    assert header == (1, 4, 1, "\ufffdx", 12)


def test_an_unknown_api_is_returned_without_reading_its_whole_header() -> None:
    assert parse_request_header(memoryview(b"\x03\xe7\0\1\0\0\0\1\xff\xff")) == (
        999,
        1,
        1,
        None,
        10,
    )


def test_the_header_of_a_version_that_does_not_exist_yet_is_read() -> None:
    data = b"\0\x12\0\x63\0\0\0\7\xff\xff\0"
    assert parse_request_header(memoryview(data)) == (18, 99, 7, None, 11)
