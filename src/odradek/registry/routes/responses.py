"""Responses in JSON, with the media type that the client accepts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from starlette.responses import Response, StreamingResponse

from odradek.registry.errors import RegistryError
from odradek.registry.json_value import JsonValue, encode_json
from odradek.registry.routes.content_types import V1_JSON

ARRAY_CHUNK_BYTES = 65_536
"""Size from which on the encoded elements of an array are sent."""


@dataclass(frozen=True, slots=True)
class EncodedJson:
    """The body of a response that is encoded already."""

    body: bytes


@dataclass(frozen=True, slots=True)
class JsonArray:
    """An array whose elements are encoded while the response is sent.

    The texts of all elements together may be much larger than the memory of the process.
    """

    elements: Iterable[JsonValue]


class NoContent:
    """A response without a body."""


def json_response(body: bytes, content_type: bytes = V1_JSON, status: int = 200) -> Response:
    """Return a response with a body that is encoded already."""
    return Response(body, status, media_type=content_type.decode("ascii"))


def array_response(array: JsonArray, content_type: bytes = V1_JSON) -> Response:
    """Return a response that encodes the elements of an array in chunks."""
    return StreamingResponse(_chunks(array.elements), media_type=content_type.decode("ascii"))


async def _chunks(elements: Iterable[JsonValue]) -> AsyncIterator[bytes]:
    chunk = bytearray(b"[")
    separator = b""
    for each in elements:
        chunk += separator + encode_json(each)
        separator = b","
        if len(chunk) >= ARRAY_CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
            await asyncio.sleep(0)  # other requests continue, also if the client reads fast
    yield bytes(chunk + b"]")


def error_response(error: RegistryError, content_type: bytes = V1_JSON) -> Response:
    """Return the response of an error: its code and its message."""
    body = encode_json({"error_code": int(error.code), "message": error.message})
    return json_response(body, content_type, error.status)
