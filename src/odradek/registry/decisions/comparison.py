"""Comparison of a schema with earlier versions by the compatibility level of its subject. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from odradek.registry.compatibility.levels import EarlierVersion
from odradek.registry.configs import Config
from odradek.registry.decisions.parsing import Candidate, stored_schema
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.metadata import Metadata
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.state import DEFAULT_LEVEL, RegistryState


def incompatibilities(
    state: RegistryState,
    tools: SchemaTools,
    config: Config,
    candidate: Candidate,
    versions: Sequence[SchemaVersion],
) -> list[str]:
    """Return the messages why a schema is incompatible with earlier versions. Empty: it is not.

    Args:
        state: The state.
        tools: The parsers and the rules of the levels.
        config: The config that applies to the subject. With a ``compatibilityGroup``, only versions
            whose metadata has the same value for this property are compared.
        candidate: The schema.
        versions: The versions, in ascending order.

    Raises:
        RegistryError: 42201, an earlier version cannot be parsed.
    """
    return tools.incompatibilities(
        config.level or DEFAULT_LEVEL,
        candidate.parsed,
        _parsed(state, tools, _in_group(config.group, candidate.metadata, reversed(versions))),
        validate_fields=bool(config.validate_fields),
    )


def _parsed(
    state: RegistryState, tools: SchemaTools, versions: Iterable[SchemaVersion]
) -> Iterator[EarlierVersion]:
    for version in versions:
        yield EarlierVersion(version.version, stored_schema(state, tools.parsers, version))


def _in_group(
    group: str | None, metadata: Metadata | None, versions: Iterable[SchemaVersion]
) -> Iterator[SchemaVersion]:
    for version in versions:
        if group is None or _value(version.metadata, group) == _value(metadata, group):
            yield version


def _value(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else metadata.get(name)
