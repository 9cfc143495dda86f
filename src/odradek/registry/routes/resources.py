"""The endpoint of one path: its handlers by HTTP method, and the form of responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from odradek.registry.errors import RegistryError, RegistryErrorCode
from odradek.registry.json_value import JsonValue, encode_json
from odradek.registry.routes.content_types import V1_JSON, ContentNegotiation
from odradek.registry.routes.requests import RegistryRequest
from odradek.registry.routes.responses import (
    EncodedJson,
    JsonArray,
    NoContent,
    array_response,
    error_response,
    json_response,
)

NO_CONTENT_STATUS = 204

Result: TypeAlias = "JsonValue | EncodedJson | JsonArray | NoContent"
Handler: TypeAlias = Callable[[RegistryRequest], Awaitable[Result]]
ResourceTable: TypeAlias = Mapping[str, Mapping[str, Handler]]
"""Handlers by path and method."""


class Resource:
    """The ASGI endpoint of one path.

    Args:
        handlers: The handler of each method. The handler of GET also serves HEAD. OPTIONS returns
            the methods.
        negotiation: Chooses the media type of responses.
        forwarded_headers: Returns the headers of responses to forwarded requests.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        negotiation: ContentNegotiation,
        forwarded_headers: Callable[[], Mapping[str, str]],
    ) -> None:
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self._allow = ", ".join([*self._handlers, "OPTIONS"])
        self._negotiation = negotiation
        self._forwarded_headers = forwarded_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        request = RegistryRequest(scope, receive)
        try:
            response = await self._respond(scope["method"], request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, method: str, request: RegistryRequest) -> Response:
        handler = self._handlers.get(method)
        if handler is None:
            return self._without_handler(method)
        content_type = V1_JSON
        try:
            content_type = self._negotiation.choose(request.header(b"accept"))
            response = _response(await handler(request), content_type)
        except RegistryError as error:
            response = error_response(error, content_type)
        if request.is_forwarded:
            response.headers.update(self._forwarded_headers())
        return response

    def _without_handler(self, method: str) -> Response:
        if method == "OPTIONS":
            response = Response(status_code=200)
        else:
            response = error_response(
                RegistryError(RegistryErrorCode.METHOD_NOT_ALLOWED, "HTTP 405 Method Not Allowed")
            )
        response.headers["allow"] = self._allow
        return response


def _response(result: Result, content_type: bytes) -> Response:
    if isinstance(result, EncodedJson):
        return json_response(result.body, content_type)
    if isinstance(result, JsonArray):
        return array_response(result, content_type)
    if isinstance(result, NoContent):
        return Response(status_code=NO_CONTENT_STATUS)
    return json_response(encode_json(result), content_type)
