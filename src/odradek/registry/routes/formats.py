"""Reads with the ``format`` of a request, which parse schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from odradek.registry.decisions.parsing import task_of_version
from odradek.registry.routes.parameters import QueryParameters
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.service import Registry
from odradek.registry.state import RegistryState

T = TypeVar("T")


async def formatted_text(
    registry: Registry, version: SchemaVersion, query: QueryParameters
) -> str | None:
    """Return the text of a version in the format of a request.

    Returns:
        The text, or None for a request without a format: the stored text.

    Raises:
        RegistryError: 42201, the version cannot be parsed. 503, too many requests are parsed.
    """
    name = query.text("format")
    if not name.strip():
        return None
    task = task_of_version(registry.state, version)
    parsers = registry.tools.parsers
    return await registry.parse_off_loop(lambda: task.text_in(parsers, name))


async def formatted_read(
    registry: Registry, query: QueryParameters, read: Callable[[RegistryState], T]
) -> T:
    """Return the result of a read, which parses schemas if the request has a format.

    Raises:
        RegistryError: The error of the read. 503, too many requests are parsed.
    """
    if query.text("format").strip():
        return await registry.read_off_loop(read)
    return read(registry.state)
