"""Forwarding: the request that reaches the writer, and its responses."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import httpx
import pytest

from odradek.registry.election import Leader
from odradek.registry.errors import RegistryError
from odradek.registry.forwarding import (
    EPOCH_HEADER,
    OFFSET_HEADER,
    REGISTRY_HEADER,
    ForwardableRequest,
    Forwarder,
    WriterUnreachable,
    _target_url,
    response_headers,
)

REGISTRY = "cluster/group"
WRITER_URL = "http://writer:8081"
WRITER = Leader(WRITER_URL, 7)
HEADERS = response_headers(REGISTRY, epoch=7, offset=12)
REQUEST = ForwardableRequest("PUT", "/config", {}, b'{"compatibility":"FULL"}')


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (httpx.Response(500, json={"error_code": 50003, "message": "m"}), 50003),
        (httpx.Response(409, json={"error_code": 409, "message": "m"}, headers=HEADERS), 409),
        (httpx.Response(409, json={"error_code": 409, "message": "m"}), 50003),
        (httpx.Response(404, json={"detail": "m"}, headers=HEADERS), 404),
        (httpx.Response(502, json={"detail": "a proxy"}), 50003),
        (httpx.Response(503, json={"error_code": 50004, "message": "m"}), 50004),
        (httpx.Response(200, json={"id": 1}), 50003),
        (httpx.Response(200, json={"id": 1}, headers={**HEADERS, REGISTRY_HEADER: "b/g"}), 50003),
        (httpx.Response(200, json={"id": 1}, headers={**HEADERS, EPOCH_HEADER: "6"}), 50003),
        (httpx.Response(200, json={"id": 1}, headers={**HEADERS, OFFSET_HEADER: "x"}), 50003),
        (httpx.Response(200, content=b"<html>"), 50003),
        (httpx.Response(503, content=b"<html>"), 50003),
        (httpx.ReadTimeout("late"), 50003),
        (httpx.RemoteProtocolError("closed"), 50003),
    ],
)
def test_forwarder_reports_errors(response: httpx.Response | httpx.HTTPError, code: int) -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        if isinstance(response, httpx.HTTPError):
            raise response
        return response

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            with pytest.raises(RegistryError) as raised:
                await Forwarder(lambda: client, REGISTRY).forward(WRITER, REQUEST)
        assert raised.value.code == code

    asyncio.run(main())


def test_forwarder_reports_a_request_that_was_not_sent() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("late")

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
            with pytest.raises(WriterUnreachable):
                await Forwarder(lambda: client, REGISTRY).forward(WRITER, REQUEST)

    asyncio.run(main())


def test_forwarded_request_has_the_headers_of_the_client_and_its_own() -> None:
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=[1], headers=HEADERS)

    async def main() -> None:
        request = ForwardableRequest("DELETE", "/subjects/a%2Fb", {"x-request-id": "7"}, b"")
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            forwarder = Forwarder(lambda: client, REGISTRY)
            forwarded = await forwarder.forward(Leader(f"{WRITER_URL}/", 7), request)
        assert (forwarded.value, forwarded.offset) == ([1], 12)

    asyncio.run(main())
    (request,) = seen
    assert str(request.url) == f"{WRITER_URL}/subjects/a%2Fb"
    assert (request.headers["x-request-id"], request.headers["x-forward"]) == ("7", "true")
    assert request.headers[REGISTRY_HEADER] == REGISTRY
    assert request.headers[EPOCH_HEADER] == "7"


@pytest.mark.parametrize(
    "path", ["/config/.", "/config/%2E%2E", "/config/..", "/mode/.", "/mode/../config/a"]
)
def test_segments_of_dots_reach_the_writer_as_they_are(path: str) -> None:
    forwarded = str(_target_url(WRITER_URL, f"{path}?x=/./"))
    segments = [unquote(each) for each in path.split("/")]
    sent, _, query = forwarded.removeprefix(WRITER_URL).partition("?")
    assert [unquote(each) for each in sent.split("/")] == segments
    assert query == "x=/./"
