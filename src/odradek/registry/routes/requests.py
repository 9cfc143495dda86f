"""A request to an endpoint: parameters, body, and the form in which it is forwarded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import Receive, Scope

from odradek.registry.errors import RegistryError, RegistryErrorCode, bad_request
from odradek.registry.forwarding import (
    EPOCH_HEADER,
    FORWARD_HEADER,
    PASSED_HEADERS,
    REGISTRY_HEADER,
    ForwardableRequest,
    header_number,
)
from odradek.registry.json_value import JsonValue
from odradek.registry.records import JSON_DEPTH_ERRORS
from odradek.registry.routes.content_types import check_request_type
from odradek.registry.routes.parameters import QueryParameters, parse_integer, parse_version
from odradek.registry.routes.paths import decode_segment
from odradek.registry.subjects import QualifiedSubject

BODY_BYTES_MAX = 4 * 1_048_576
"""Maximum size of a request's body.

A schema of the maximum size (`odradek.registry.schemas.parsed.TEXT_BYTES_MAX`) fits, also if each
of its quotes and line ends is escaped, and with metadata and rules.
"""

BODY_TIMEOUT_S = 60.0
"""Time in seconds for a whole body. A client that sends none would keep its connection."""

BODY_TIMEOUT = 408
"""Error code and HTTP status of a body that did not arrive within `BODY_TIMEOUT_S`."""

LENGTH_DIGITS_MAX = 20
"""Number of digits of ``Content-Length`` that are read. So many exceed `BODY_BYTES_MAX` already."""

TOO_LARGE = 413
"""Error code and HTTP status of a body above `BODY_BYTES_MAX`."""

_FORWARD = FORWARD_HEADER.encode()


class RegistryRequest:
    """A request to one endpoint. It reads the body once."""

    __slots__ = ("_body", "_query", "_receive", "_scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._query: QueryParameters | None = None
        self._body: bytes | None = None

    @property
    def query(self) -> QueryParameters:
        """The parameters in the query string."""
        if self._query is None:
            self._query = QueryParameters(self._scope["query_string"])
        return self._query

    def header(self, name: bytes) -> bytes:
        """Return the value of a header by its lower-case name, or empty."""
        for key, value in self._scope["headers"]:
            if key == name:
                return bytes(value)
        return b""

    @property
    def is_forwarded(self) -> bool:
        """Whether another instance has forwarded this request."""
        return self.header(_FORWARD).lower() == b"true"

    def text(self, name: str) -> str:
        """Return the decoded text of a parameter of the path."""
        return decode_segment(self._scope["path_params"][name])

    def integer(self, name: str) -> int:
        """Return the number of a parameter of the path.

        Raises:
            RegistryError: 404, the text is not a 32-bit number.
        """
        return parse_integer(self.text(name))

    def version(self) -> int:
        """Return the version in the path, or -1 for the latest one.

        Raises:
            RegistryError: 42202, the text is not a version.
        """
        return parse_version(self.text("version"))

    def subject(self) -> QualifiedSubject:
        """Return the subject in the path. A path without one stands for the default context."""
        name = self.text("subject") if "subject" in self._scope["path_params"] else ""
        return QualifiedSubject.parse(name)

    async def json(self) -> JsonValue:
        """Return the body, which must be JSON.

        Raises:
            RegistryError: 400, 408, 413, 415 or 422, the body is absent, late, too large or not
                JSON.
            ClientDisconnect: The client has closed the connection.
        """
        check_request_type(self.header(b"content-type"))
        body = await self._read_body()
        if not body.strip():
            raise RegistryError(RegistryErrorCode.UNPROCESSABLE, "The request has no body")
        try:
            value: JsonValue = json.loads(body, parse_constant=_refuse_constant)
        except JSON_DEPTH_ERRORS as error:
            raise bad_request(f"The body is not JSON: {error}") from error
        return value

    async def forwardable(self, *, may_skip_writer: bool = False) -> ForwardableRequest:
        """Return this request as the writer can execute it.

        Args:
            may_skip_writer: A decision without records needs no writer.
        """
        target: bytes = self._scope["raw_path"]
        if self._scope["query_string"]:
            target += b"?" + self._scope["query_string"]
        return ForwardableRequest(
            method=self._scope["method"],
            target=_ascii(target),
            headers=self._passed_headers(),
            body=await self._read_body(),
            is_forwarded=self.is_forwarded,
            registry=self.header(REGISTRY_HEADER.encode()).decode("latin-1"),
            epoch=header_number(self.header(EPOCH_HEADER.encode()).decode("latin-1")) or 0,
            may_skip_writer=may_skip_writer,
        )

    def _passed_headers(self) -> Mapping[str, str]:
        values = ((name, self.header(name.encode())) for name in PASSED_HEADERS)
        return {name: value.decode("latin-1") for name, value in values if value}

    async def _read_body(self) -> bytes:
        if self._body is None:
            try:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    self._body = await self._receive_body()
            except TimeoutError:
                raise RegistryError(
                    BODY_TIMEOUT, f"The body did not arrive within {BODY_TIMEOUT_S:g} s"
                ) from None
        return self._body

    async def _receive_body(self) -> bytes:
        length = self.header(b"content-length")
        if length.isdigit() and int(length[:LENGTH_DIGITS_MAX]) > BODY_BYTES_MAX:
            raise _too_large()
        chunks: list[bytes] = []
        size = 0
        async for chunk in Request(self._scope, self._receive).stream():
            chunks.append(chunk)
            size += len(chunk)
            if size > BODY_BYTES_MAX:
                raise _too_large()
        return b"".join(chunks)


def _too_large() -> RegistryError:
    return RegistryError(TOO_LARGE, f"The body is larger than {BODY_BYTES_MAX} bytes")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _ascii(target: bytes) -> str:
    """Return a target with its bytes above 127 encoded, which some clients send as they are."""
    return "".join(chr(byte) if byte < 128 else f"%{byte:02X}" for byte in target)
