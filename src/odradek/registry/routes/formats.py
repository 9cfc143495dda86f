"""The text of a schema in the ``format`` of a request, and parsing ahead of decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from odradek.registry.decisions.parsing import ParseTask, task_of_version
from odradek.registry.decisions.tools import SchemaParsers
from odradek.registry.errors import RegistryError
from odradek.registry.routes.parameters import QueryParameters
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.schemas.parsed import UnsupportedFormat
from odradek.registry.service import Registry


async def formatted_text(
    registry: Registry, version: SchemaVersion, query: QueryParameters
) -> str | None:
    """Return the text of a version in the format of a request.

    Returns:
        The text, or None for a request without a format: the stored text. An unknown format is the
        canonical text, as in Confluent's registry.

    Raises:
        RegistryError: 42201, the version cannot be parsed. 503, too many requests are parsed.
    """
    name = query.text("format").strip()
    if not name:
        return None
    task = task_of_version(registry.state, version)
    parsers = registry.tools.parsers
    return await registry.parse_off_loop(lambda: _format(parsers, task, name))


async def parse_ahead(registry: Registry, tasks: Sequence[ParseTask]) -> None:
    """Parse schemas in a thread, so that a decision finds them in the cache of the parsers.

    Errors are left to the decision, which parses the same texts again.

    Raises:
        RegistryError: 503, too many requests are parsed.
    """
    if tasks:
        parsers = registry.tools.parsers
        await registry.parse_off_loop(lambda: _parse(parsers, tasks))


def _format(parsers: SchemaParsers, task: ParseTask, name: str) -> str:
    parsed = task.run(parsers)
    try:
        return parsed.formatted(name)
    except UnsupportedFormat:
        return parsed.canonical


def _parse(parsers: SchemaParsers, tasks: Sequence[ParseTask]) -> None:
    for task in tasks:
        with contextlib.suppress(RegistryError):
            task.run(parsers)
