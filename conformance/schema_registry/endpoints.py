"""The endpoints of the registry, and the endpoint of a recorded request.

docs/registry-endpoints.md lists the endpoints, and a test compares that page with the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from urllib.parse import parse_qsl

from conformance.report import DOCS
from conformance.schema_registry.exchanges import Exchange

PAGE = DOCS / "registry-endpoints.md"
_LINE = re.compile(r"^\| `([A-Z]+) (/\S*)` \|", re.M)
_SLASHES = re.compile("//+")
_PREFIX = re.compile(r"/contexts/[^/]+(?=/)")
UNSUPPORTED = (
    "/associations",
    "/associations/resources/{namespace}/{name}",
    "/associations/resources/{id}",
    "/dek-registry/v1/keks",
    "/dek-registry/v1/keks/{kek}",
    "/dek-registry/v1/keks/{kek}/deks",
    "/dek-registry/v1/keks/{kek}/deks/{subject}",
    "/dek-registry/v1/keks/{kek}/deks/{subject}/versions/{version}",
)
"""Paths that respond with 404 with every method."""
REFUSED = (405, 406, 415)
CODES_OF_RESOURCES = 10_000
"""A 404 with a lower error code belongs to the path, not to a subject, version or schema."""


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """A request without the values in its path and its parameters.

    Attributes:
        endpoint: Method and path, such as ``GET /subjects/{subject}``.
        parameters: The names of its parameters.
        has_prefix: Whether ``/contexts/{context}`` stands in front of the path.
    """

    endpoint: str
    parameters: frozenset[str]
    has_prefix: bool


@cache
def supported() -> tuple[str, ...]:
    """Return method and path of each endpoint, in the order of the page."""
    text = PAGE.read_text(encoding="utf-8")
    return tuple(f"{method} {path}" for method, path in _LINE.findall(text))


def call_of(exchange: Exchange) -> Call:
    """Return the call of a request. An unknown path stands for itself."""
    whole, _, query = exchange.target.partition("?")
    path, prefixes = _PREFIX.subn("", _SLASHES.sub("/", whole), count=1)
    path = "/" + path.strip("/")
    known = [each.partition(" ")[2] for each in supported()]
    for template in (*known, *UNSUPPORTED):
        if _pattern(template).fullmatch(path):
            path = template
            break
    names = frozenset(name for name, _ in parse_qsl(query, keep_blank_values=True))
    return Call(f"{exchange.method} {path}", names, bool(prefixes))


def is_unsupported(call: Call) -> bool:
    """Whether the registry does not implement the endpoint."""
    return call.endpoint.partition(" ")[2] in UNSUPPORTED


def unexpected(exchanges: Iterable[Exchange]) -> list[str]:
    """Return the requests that the registry refused or failed for reasons of its own."""
    found = []
    for each in exchanges:
        call = call_of(each)
        is_path = each.status == 404 and (each.error_code or 0) < CODES_OF_RESOURCES
        is_known = call.endpoint in supported() or is_unsupported(call)
        if (
            each.status >= 500
            or each.status in REFUSED
            or not is_known
            or (is_path and not is_unsupported(call))
        ):
            found.append(f"{each.method} {each.target}: {each.status} {each.error_code}")
    return found


@cache
def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", template)
    return re.compile("[^/]+".join(re.escape(part) for part in parts))
