"""The media types of requests and responses."""

from __future__ import annotations

import pytest

from odradek.registry.errors import RegistryError
from odradek.registry.routes.content_types import (
    HEADERS_KEPT_MAX,
    V1_JSON,
    ContentNegotiation,
    check_request_type,
)

DEFAULT_JSON = b"application/vnd.schemaregistry+json"
JSON = b"application/json"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (b"", V1_JSON),
        (b"*/*", V1_JSON),
        (b"application/*", V1_JSON),
        (b"application/json", JSON),
        (b"Application/JSON", JSON),
        (b"application/vnd.schemaregistry+json", DEFAULT_JSON),
        # confluent-kafka-python
        (
            b"application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json,"
            b" application/json",
            V1_JSON,
        ),
        (b"application/json;q=0.9, application/vnd.schemaregistry+json;q=0.8", JSON),
        (b"application/json; q=0.1, */*", V1_JSON),
        (b"application/vnd.schemaregistry.v1+json;q=0, */*;q=0.5", DEFAULT_JSON),
        # a browser
        (b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", V1_JSON),
    ],
)
def test_accept_header_chooses_the_media_type_of_the_response(
    accept: bytes, expected: bytes
) -> None:
    negotiation = ContentNegotiation()
    assert negotiation.choose(accept) == expected
    assert negotiation.choose(accept) == expected, "the second choice comes from the cache"


@pytest.mark.parametrize("accept", [b"text/plain", b"*/*;q=0", b"application/json;q=x"])
def test_client_that_accepts_no_json_gets_406(accept: bytes) -> None:
    with pytest.raises(RegistryError) as raised:
        ContentNegotiation().choose(accept)
    assert raised.value.status == 406


def test_number_of_kept_accept_headers_is_bounded() -> None:
    negotiation = ContentNegotiation()
    for number in range(HEADERS_KEPT_MAX * 2):
        negotiation.choose(b"application/json, text/n%d" % number)
    assert len(negotiation._chosen) == HEADERS_KEPT_MAX


@pytest.mark.parametrize(
    "content_type",
    [
        b"",
        b"application/vnd.schemaregistry.v1+json",
        b"application/vnd.schemaregistry+json",
        b"application/json",
        b"application/octet-stream",
        b"Application/Json; charset=utf-8",
    ],
)
def test_request_types_of_clients_are_accepted(content_type: bytes) -> None:
    check_request_type(content_type)


@pytest.mark.parametrize("content_type", [b"text/plain", b"application/x-www-form-urlencoded"])
def test_other_request_types_are_415(content_type: bytes) -> None:
    with pytest.raises(RegistryError) as raised:
        check_request_type(content_type)
    assert raised.value.status == 415
