"""Request and response headers. Written by hand, because every request uses them.

A request header has: API key int16, version int16, correlation id int32, and the client id as a
nullable string with a length of two bytes. From header version 2 on, which flexible requests have,
a tag section follows. The client id keeps its old form in version 2 (KIP-482), so that a broker can
read it before it knows the API.

A response header has: correlation id int32, and a tag section if the response is flexible. The
response to ApiVersions has no tag section in any version, because its client does not yet know the
broker's versions (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from odradek.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.wire import ANY_LATER, skip_tags

REQUEST_NUMBERS = struct.Struct(">hhi")
"""The first bytes of a request: API key, version and correlation id."""

_REQUEST = struct.Struct(">hhih")
_RESPONSE_V0 = struct.Struct(">i")
_RESPONSE_V1 = struct.Struct(">ix")

RESPONSE_FLEXIBLE_FROM = FLEXIBLE_FROM | {int(ApiKey.API_VERSIONS): ANY_LATER}


def parse_request_header(view: memoryview) -> tuple[int, int, int, str | None, int]:
    """Parse the header of the request in frame `view`.

    An unknown API is assumed to have the header without a tag section.

    Returns:
        API key, version, correlation id, client id, and the position of the body.

    Raises:
        MalformedMessage: The frame ends within the header.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(view)
        pos = 10
        client_id = None
        if length >= 0:
            pos += length
            if pos > len(view):
                raise MalformedMessage(f"client id of {length} bytes in a frame of {len(view)}")
            client_id = str(view[10:pos], "utf-8", "replace")
        if version >= FLEXIBLE_FROM.get(api_key, ANY_LATER):
            tags = view[pos]
            pos += 1
            if tags:
                pos = skip_tags(view, pos, tags)
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"request header ends after {len(view)} bytes") from error
    return api_key, version, correlation_id, client_id, pos


def request_header(api_key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return the header in front of a request of this API and version."""
    name = client_id.encode()
    header = _REQUEST.pack(api_key, version, correlation_id, len(name)) + name
    return header + b"\0" if version >= FLEXIBLE_FROM.get(api_key, ANY_LATER) else header


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return the header in front of the response to a request of this API and version."""
    return response_header_packer(api_key, version)(correlation_id)


def response_header_packer(api_key: int, version: int) -> Callable[[int], bytes]:
    """Return the function that makes this header from a correlation id."""
    if version >= RESPONSE_FLEXIBLE_FROM.get(api_key, ANY_LATER):
        return _RESPONSE_V1.pack
    return _RESPONSE_V0.pack
