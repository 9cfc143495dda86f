"""Paths of requests: encoded segments, redundant slashes, and the prefix of a context.

The router matches the encoded path, because a subject may contain a slash, as ``%2F``. Routes
decode their segments by `decode_segment`.

``/contexts/sales/subjects/orders/versions`` is a request to ``/subjects/:.sales:orders/versions``.
A path or a parameter that names a context itself is not changed, as in Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.registry.errors import RegistryError, bad_request
from odradek.registry.routes.responses import error_response
from odradek.registry.subjects import CONTEXT_PREFIX, CONTEXT_WILDCARD, normalize_context

_CONTEXTS = "contexts"
_SETTINGS = ("config", "mode")
_LISTS = (["schemas"], ["subjects"])


class PathRewriting:
    """Middleware that gives the router the path without a context, and still encoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            raw_path = scope.get("raw_path")
            if raw_path is None:
                raw_path = quote(scope["path"]).encode()
                scope = {**scope, "raw_path": raw_path}
            if _needs_rewriting(raw_path):
                try:
                    path, query_string = rewrite(raw_path, scope["query_string"])
                except RegistryError as error:
                    await error_response(error)(scope, receive, send)
                    return
                # The server's access log reads the path of the original scope.
                scope = {**scope, "path": path, "query_string": query_string}
        await self._app(scope, receive, send)


def rewrite(raw_path: bytes, query_string: bytes) -> tuple[str, bytes]:
    """Return the path and the query string of a request without the prefix of a context.

    Args:
        raw_path: The path as the client sent it.
        query_string: The query string as the client sent it.

    Returns:
        The path, whose segments are still encoded, and the query string.

    Raises:
        RegistryError: 400, the name of the context is not valid.
    """
    segments = [segment for segment in raw_path.decode("latin-1").split("/") if segment]
    if len(segments) > 1 and segments[0] == _CONTEXTS:
        prefix = _context_prefix(segments[1])
        rest = segments[2:]
        segments = _in_context(prefix, rest)
        query_string = _query_in_context(prefix, rest, query_string)
    return "/" + "/".join(segments), query_string


def decode_segment(segment: str) -> str:
    """Return the text of a segment of a path.

    Raises:
        RegistryError: 400, the segment is not UTF-8.
    """
    if "%" not in segment and segment.isascii():
        return segment
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise bad_request(f"'{segment}' in the path is not UTF-8") from None


def _needs_rewriting(raw_path: bytes) -> bool:
    return (
        b"%" in raw_path
        or b"//" in raw_path
        or raw_path.startswith(b"/contexts/")
        or (raw_path.endswith(b"/") and len(raw_path) > 1)
        or not raw_path.isascii()
    )


def _context_prefix(segment: str) -> str:
    try:
        return normalize_context(decode_segment(segment))
    except ValueError as error:
        raise bad_request(str(error)) from error


def _in_context(prefix: str, segments: Sequence[str]) -> list[str]:
    """Return the segments after the context, with the context in the subject."""
    if not segments:
        return [_CONTEXTS, _encoded(prefix)] if prefix else []
    changed = list(segments)
    if changed[0] in _SETTINGS:
        subject = 1
        if len(changed) == 1 and prefix:
            changed.append("")
    else:
        subject = changed.index("subjects") + 1 if "subjects" in changed else len(changed)
    if subject < len(changed) and not _names_context(decode_segment(changed[subject])):
        changed[subject] = _encoded(prefix) + changed[subject]
    return changed


def _query_in_context(prefix: str, segments: Sequence[str], query_string: bytes) -> bytes:
    """Return the query string, with the context in the subject or in the subject's prefix."""
    if segments[:2] == ["schemas", "ids"]:
        name = "subject"
    elif segments in _LISTS:
        name = "subjectPrefix"
    else:
        return query_string
    parameters = parse_qsl(query_string.decode(errors="replace"), keep_blank_values=True)
    if all(key != name for key, _ in parameters):
        parameters.append((name, ""))
    changed = [
        (key, prefix + value if key == name and not _names_context(value) else value)
        for key, value in parameters
    ]
    return urlencode(changed).encode()


def _names_context(subject: str) -> bool:
    return subject.startswith((CONTEXT_PREFIX, CONTEXT_WILDCARD))


def _encoded(prefix: str) -> str:
    return quote(prefix, safe=":.")
