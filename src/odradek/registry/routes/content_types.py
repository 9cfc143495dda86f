"""The media types of the registry's REST interface, and the choice between them. Pure."""

from __future__ import annotations

from odradek.registry.errors import RegistryError, RegistryErrorCode

V1_JSON = b"application/vnd.schemaregistry.v1+json"
"""The media type of responses to clients that accept all."""

CONTENT_TYPES = (V1_JSON, b"application/vnd.schemaregistry+json", b"application/json")
"""The media types of responses, by preference between types that a client accepts equally."""

REQUEST_TYPES = frozenset({*CONTENT_TYPES, b"application/octet-stream"})
"""The media types of requests. Some older clients send JSON as ``application/octet-stream``."""

HEADERS_KEPT_MAX = 64
"""Values of ``Accept`` whose choice is kept. Each client library sends its own, always the same."""


class ContentNegotiation:
    """Chooses the media type of each response by the request's ``Accept`` header."""

    def __init__(self) -> None:
        self._chosen: dict[bytes, bytes] = {b"": V1_JSON}

    def choose(self, accept: bytes) -> bytes:
        """Return the media type of the response.

        Args:
            accept: The value of the header, or empty if the request does not have it.

        Raises:
            RegistryError: 406, the client accepts none of `CONTENT_TYPES`.
        """
        chosen = self._chosen.get(accept)
        if chosen is not None:
            return chosen
        chosen = _choose(accept)
        if len(self._chosen) < HEADERS_KEPT_MAX:
            self._chosen[accept] = chosen
        return chosen


def check_request_type(content_type: bytes) -> None:
    """Check the media type of a request's body.

    Args:
        content_type: The value of the ``Content-Type`` header, or empty if the request has none.

    Raises:
        RegistryError: 415, the media type is not one of `REQUEST_TYPES`.
    """
    media_type = content_type.partition(b";")[0].strip().lower()
    if media_type and media_type not in REQUEST_TYPES:
        raise RegistryError(
            RegistryErrorCode.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type"
        )


def _choose(accept: bytes) -> bytes:
    ranges = [_media_range(part) for part in accept.lower().split(b",") if part.strip()]
    if not ranges:
        return V1_JSON
    qualities = [_quality(content_type, ranges) for content_type in CONTENT_TYPES]
    best = max(qualities)
    if best <= 0.0:
        raise RegistryError(RegistryErrorCode.NOT_ACCEPTABLE, "HTTP 406 Not Acceptable")
    return CONTENT_TYPES[qualities.index(best)]


def _media_range(part: bytes) -> tuple[bytes, float]:
    """Return the media type and the quality of an element of ``Accept``."""
    media_type, *parameters = (piece.strip() for piece in part.split(b";"))
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return media_type, float(value)
            except ValueError:
                return media_type, 0.0
    return media_type, 1.0


def _quality(content_type: bytes, ranges: list[tuple[bytes, float]]) -> float:
    """Return the quality of the most specific range that a media type is in, or 0."""
    for pattern in (content_type, b"application/*", b"*/*"):
        for media_range, quality in ranges:
            if media_range == pattern:
                return quality
    return 0.0
