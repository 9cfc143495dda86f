"""The text of a schema in the ``format`` of a request, and parsing ahead of decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from odradek.registry.decisions.parsing import ParseTask, task_of_version, text_in_format
from odradek.registry.decisions.tools import KnownFailures, SchemaParsers, SchemaTools
from odradek.registry.errors import RegistryError
from odradek.registry.routes.parameters import QueryParameters
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.service import Registry


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
    await parse_for_format(registry, version, query)
    return text_in_format(registry.state, registry.tools.parsers, version, name)


async def parse_for_format(
    registry: Registry, version: SchemaVersion, query: QueryParameters
) -> None:
    """Parse a version in a thread, if the request has a format.

    Raises:
        RegistryError: 42201, the version cannot be parsed. 503, too many requests are parsed.
    """
    if query.text("format").strip():
        task = task_of_version(registry.state, version)
        await registry.parse_off_loop(lambda: task.run(registry.tools.parsers))


async def parse_ahead(registry: Registry, tasks: Sequence[ParseTask]) -> SchemaTools:
    """Parse schemas in a thread, so that a decision on the event loop does not parse them again.

    Returns:
        The tools for the decision. Their parsers raise the errors of the texts that are not valid,
        at the step at which Confluent's registry raises them.

    Raises:
        RegistryError: 503, too many requests are parsed.
    """
    parsers = KnownFailures(registry.tools.parsers)
    if tasks:
        await registry.parse_off_loop(lambda: _parse(parsers, tasks))
    return replace(registry.tools, parsers=parsers)


def _parse(parsers: SchemaParsers, tasks: Sequence[ParseTask]) -> None:
    for task in tasks:
        with contextlib.suppress(RegistryError):
            task.run(parsers)
