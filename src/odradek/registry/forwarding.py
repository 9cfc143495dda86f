"""Forwards a write to the instance that is the writer, and reads its response.

A forwarded request has the header ``X-Forward: true``, as in Confluent's registry. The response of
the writer has the header ``X-Odradek-Offset``: the last offset that its state has applied. The
records of the write are at or below this offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.registry.errors import RegistryError, forwarding_failed
from odradek.registry.json_value import JsonFields, JsonValue, WrongType

if TYPE_CHECKING:
    import httpx

FORWARD_HEADER = "x-forward"
"""Marks a forwarded request, which is never forwarded again."""

OFFSET_HEADER = "x-odradek-offset"
"""The last offset that the writer has applied, in responses to forwarded requests."""

PASSED_HEADERS = ("authorization", "x-request-id")
"""The headers of the client that a forwarded request keeps."""

WRITER_CONNECT_TIMEOUT_S = 2.0
"""Time limit of a connection to the writer in seconds."""

RESPONSE_TIMEOUT_S = 30.0
"""Time limit of the writer's response in seconds."""

CONNECTIONS_MAX = 64
"""Maximum number of connections to the writer."""

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class ForwardableRequest:
    """A write as a client sent it, for the instance that can execute it.

    Attributes:
        method: The HTTP method.
        target: Path and query string, still encoded, with the prefix of the context.
        headers: The headers of the client that are in `PASSED_HEADERS`.
        body: The body.
        is_forwarded: Another instance has forwarded the request to this one.
        may_skip_writer: A decision without records is the response, also of an instance that is
            not the writer. True for registrations, most of which repeat an earlier one.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    is_forwarded: bool = False
    may_skip_writer: bool = False


@dataclass(frozen=True, slots=True)
class ForwardedResponse:
    """The writer's response to a forwarded request.

    Attributes:
        value: The body, or None if it is empty.
        offset: The offset that this instance has to apply before it responds.
    """

    value: JsonValue
    offset: int


class WriterUnreachable(Exception):
    """No connection to the writer could be established, so it has not executed the request."""


class Forwarder:
    """Sends writes to the URL of the writer.

    Args:
        make_client: Returns the HTTP client for all requests, such as `forwarding_client`. Most
            instances are the writer and need none.
    """

    def __init__(self, make_client: Callable[[], httpx.AsyncClient]) -> None:
        self._make_client = make_client
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    async def forward(self, url: str, request: ForwardableRequest) -> ForwardedResponse:
        """Return the writer's response.

        Args:
            url: The advertised URL of the writer.
            request: The request.

        Raises:
            WriterUnreachable: The request was not sent.
            RegistryError: The writer's error, or 50003 if it is unknown whether the writer has
                executed the request.
        """
        import httpx

        if self._client is None:
            self._client = self._make_client()
        headers = {
            **request.headers,
            "content-type": _CONTENT_TYPE,
            "accept": _CONTENT_TYPE,
            FORWARD_HEADER: "true",
        }
        target = url.rstrip("/") + request.target
        try:
            response = await self._client.request(
                request.method, target, content=request.body, headers=headers
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise WriterUnreachable(f"{url}: {error}") from error
        except httpx.HTTPError as error:
            raise forwarding_failed(
                f"Unexpected error while forwarding the request to {url}: {error!r}"
            ) from error
        return _read(url, response)


def forwarding_client() -> httpx.AsyncClient:
    """Return an HTTP client for requests between the instances of a registry."""
    import httpx

    return httpx.AsyncClient(
        timeout=httpx.Timeout(RESPONSE_TIMEOUT_S, connect=WRITER_CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
        trust_env=False,
    )


def _read(url: str, response: httpx.Response) -> ForwardedResponse:
    value = _decode(url, response)
    if response.is_success:
        return ForwardedResponse(value, _offset(response))
    try:
        fields = JsonFields(value, "error")
        code, message = fields.integer("error_code"), fields.text("message")
    except WrongType:
        code, message = None, None
    raise RegistryError(code or response.status_code, message or response.reason_phrase)


def _decode(url: str, response: httpx.Response) -> JsonValue:
    if not response.content:
        return None
    try:
        value: JsonValue = json.loads(response.content)
    except ValueError as error:
        raise forwarding_failed(
            f"The response of {url} to a forwarded request is not JSON (status"
            f" {response.status_code})"
        ) from error
    return value


def _offset(response: httpx.Response) -> int:
    """Return the offset in the header, or -1 if the response does not have it."""
    text = response.headers.get(OFFSET_HEADER, "")
    return int(text) if text.isascii() and text.isdigit() else -1
