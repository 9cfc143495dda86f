"""Forwards a write to the instance that is the writer, and reads its response.

A forwarded request has the header ``X-Forward: true``, as in Confluent's registry. Requests and
responses name the registry, that is cluster and topic, and the epoch of the writer. So an instance
of another registry, which listens at the URL by mistake, executes nothing, and its response is not
taken for the writer's. The response also has the last offset that the writer's state has applied.
The records of the write are at or below this offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.registry.election import Leader
from odradek.registry.errors import RegistryError, RegistryErrorCode, forwarding_failed
from odradek.registry.json_value import JsonFields, JsonValue, WrongType

if TYPE_CHECKING:
    import httpx

FORWARD_HEADER = "x-forward"
"""Marks a forwarded request, which is never forwarded again."""

REGISTRY_HEADER = "x-odradek-registry"
"""Cluster and group of the registry, in forwarded requests and in their responses."""

EPOCH_HEADER = "x-odradek-epoch"
"""The epoch of the newest writer that the sender knows, in the same messages."""

OFFSET_HEADER = "x-odradek-offset"
"""The last offset that the writer has applied, in responses to forwarded requests."""

PASSED_HEADERS = ("authorization", "x-request-id")
"""The headers of the client that a forwarded request keeps."""

WRITER_CONNECT_TIMEOUT_S = 2.0
"""Time limit of a connection to the writer in seconds."""

RESPONSE_TIMEOUT_S = 30.0
"""Time limit of the writer's response in seconds."""

TARGET_TOO_LONG = 414
"""Error code and HTTP status of a request whose path is longer than the HTTP client permits."""

CONNECTIONS_MAX = 64
"""Maximum number of connections to the writer."""

DIGITS_MAX = 19
"""Maximum number of digits of an offset or an epoch in a header."""

DOTS = {".": "%2E", "..": "%2E%2E"}
"""The encoded forms of segments that an HTTP client removes."""

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
        registry: The registry of that instance, or empty.
        epoch: The newest epoch that it knows, or 0.
        may_skip_writer: A decision without records is the response, also of an instance that is
            not the writer. True for registrations, most of which repeat an earlier one.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    is_forwarded: bool = False
    registry: str = ""
    epoch: int = 0
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
        registry: The name of this registry for `REGISTRY_HEADER`.
    """

    def __init__(self, make_client: Callable[[], httpx.AsyncClient], registry: str) -> None:
        self._make_client = make_client
        self._registry = registry
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    async def forward(self, leader: Leader, request: ForwardableRequest) -> ForwardedResponse:
        """Return the writer's response.

        Args:
            leader: The writer.
            request: The request.

        Raises:
            WriterUnreachable: The request was not sent.
            RegistryError: The writer's error, 50003 if it is unknown whether the writer has
                executed the request, or 414 if its path is too long.
        """
        import httpx

        if self._client is None:
            self._client = self._make_client()
        url = leader.url
        headers = {
            **request.headers,
            "content-type": _CONTENT_TYPE,
            "accept": _CONTENT_TYPE,
            FORWARD_HEADER: "true",
            REGISTRY_HEADER: self._registry,
            EPOCH_HEADER: str(leader.epoch),
        }
        target = _target_url(url, request.target)
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
        return self._read(leader, response)

    def _read(self, leader: Leader, response: httpx.Response) -> ForwardedResponse:
        value = _decode(leader.url, response)
        error = None if response.is_success else _error(response, value)
        if error is not None and error.code == RegistryErrorCode.UNKNOWN_LEADER:
            raise error
        self._require_same_registry(leader, response)
        if error is not None:
            raise error
        offset = header_number(response.headers.get(OFFSET_HEADER))
        if offset is None:
            raise forwarding_failed(f"The response of {leader.url} has no {OFFSET_HEADER}")
        return ForwardedResponse(value, offset)

    def _require_same_registry(self, leader: Leader, response: httpx.Response) -> None:
        """Check that an instance of this registry has sent a response.

        Raises:
            RegistryError: 50003, it is another server.
        """
        found = response.headers.get(REGISTRY_HEADER)
        if found != self._registry:
            raise forwarding_failed(
                f"The server at {leader.url} (status {response.status_code}) is not an instance of"
                f" registry {self._registry}, but of {found or 'none'}. Check --advertise of the"
                " writer"
            )
        epoch = header_number(response.headers.get(EPOCH_HEADER))
        if epoch is None or epoch < leader.epoch:
            raise forwarding_failed(
                f"The server at {leader.url} has responded in epoch {epoch}, before {leader.epoch}"
            )


def response_headers(registry: str, epoch: int, offset: int) -> dict[str, str]:
    """Return the headers of a response to a forwarded request.

    Args:
        registry: The name of this registry.
        epoch: The newest epoch that this instance knows.
        offset: The last offset that its state has applied, or -1.
    """
    return {REGISTRY_HEADER: registry, EPOCH_HEADER: str(epoch), OFFSET_HEADER: str(offset)}


def header_number(text: str | None) -> int | None:
    """Return the number in a header, which is -1 or greater, or None if it is not valid."""
    if text == "-1":
        return -1
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if text is not None and is_number else None


def forwarding_client() -> httpx.AsyncClient:
    """Return an HTTP client for requests between the instances of a registry."""
    import httpx

    return httpx.AsyncClient(
        timeout=httpx.Timeout(RESPONSE_TIMEOUT_S, connect=WRITER_CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
        trust_env=False,
    )


def _target_url(url: str, target: str) -> httpx.URL:
    """Return the URL of a request to the writer.

    A segment ``.`` or ``..`` is encoded, because the HTTP client would remove it, and the request
    would have another subject.
    """
    import httpx

    path, mark, query = target.partition("?")
    segments = (DOTS.get(each, each) for each in path.split("/"))
    base = url.rstrip("/")
    try:
        httpx.URL(base)
    except httpx.InvalidURL as error:
        raise WriterUnreachable(f"{url}: {error}") from error
    try:
        return httpx.URL(base + "/".join(segments) + mark + query)
    except httpx.InvalidURL as error:
        raise RegistryError(
            TARGET_TOO_LONG, f"The path cannot be forwarded to the writer: {error}"
        ) from error


def _error(response: httpx.Response, value: JsonValue) -> RegistryError:
    try:
        fields = JsonFields(value, "error")
        code, message = fields.integer("error_code"), fields.text("message")
    except WrongType:
        code, message = None, None
    return RegistryError(code or response.status_code, message or response.reason_phrase)


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
