"""Responses in JSON, with the media type that the client accepts."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from odradek.registry.errors import RegistryError
from odradek.registry.json_value import encode_json
from odradek.registry.routes.content_types import V1_JSON


@dataclass(frozen=True, slots=True)
class EncodedJson:
    """The body of a response that is encoded already."""

    body: bytes


class NoContent:
    """A response without a body."""


def json_response(body: bytes, content_type: bytes = V1_JSON, status: int = 200) -> Response:
    """Return a response with a body that is encoded already."""
    return Response(body, status, media_type=content_type.decode("ascii"))


def error_response(error: RegistryError, content_type: bytes = V1_JSON) -> Response:
    """Return the response of an error: its code and its message."""
    body = encode_json({"error_code": int(error.code), "message": error.message})
    return json_response(body, content_type, error.status)
