"""Comparison of a schema with earlier versions by the compatibility level of its subject. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from odradek.registry.compatibility.levels import CompatibilityLevel, EarlierVersion
from odradek.registry.configs import Config
from odradek.registry.decisions.parsing import Candidate, ParseTask, task_of_version
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.metadata import Metadata
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.schemas.parsed import ParsedSchema
from odradek.registry.state import DEFAULT_LEVEL, RegistryState


def incompatibilities(
    state: RegistryState,
    tools: SchemaTools,
    config: Config,
    candidate: Candidate,
    versions: Sequence[SchemaVersion],
) -> list[str]:
    """Return the messages why a schema is incompatible with earlier versions. Empty: it is not.

    The arguments are those of `compared_versions` and `messages_of`.

    Raises:
        RegistryError: 42201, an earlier version cannot be parsed.
    """
    earlier = compared_versions(state, config, candidate.metadata, versions)
    return messages_of(tools, config, candidate.parsed, earlier)


def compared_versions(
    state: RegistryState,
    config: Config,
    metadata: Metadata | None,
    versions: Sequence[SchemaVersion],
) -> Iterator[tuple[int, ParseTask]]:
    """Return the numbers of the versions that a level compares, newest first, and their schemas.

    Args:
        state: The state.
        config: The config that applies to the subject. With a ``compatibilityGroup``, only versions
            whose metadata has the same value for this property are compared.
        metadata: The metadata of the schema.
        versions: The versions, in ascending order.
    """
    level = _level(config)
    if level is CompatibilityLevel.NONE:
        return
    in_group = _in_group(config.group, metadata, reversed(versions))
    for version in in_group if level.is_transitive else islice(in_group, 1):
        yield version.version, task_of_version(state, version)


def messages_of(
    tools: SchemaTools,
    config: Config,
    schema: ParsedSchema,
    earlier: Iterable[tuple[int, ParseTask]],
) -> list[str]:
    """Return the messages why a schema is incompatible with earlier versions. Empty: it is not.

    Args:
        tools: The parsers and the rules of the levels.
        config: The config that applies to the subject.
        schema: The schema.
        earlier: The result of `compared_versions`.

    Raises:
        RegistryError: 42201, an earlier version cannot be parsed.
    """
    parsed = (EarlierVersion(number, task.run(tools.parsers)) for number, task in earlier)
    return tools.incompatibilities(
        _level(config), schema, parsed, validate_fields=bool(config.validate_fields)
    )


def _level(config: Config) -> CompatibilityLevel:
    return config.level or DEFAULT_LEVEL


def _in_group(
    group: str | None, metadata: Metadata | None, versions: Iterable[SchemaVersion]
) -> Iterator[SchemaVersion]:
    for version in versions:
        if group is None or _value(version.metadata, group) == _value(metadata, group):
            yield version


def _value(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else metadata.get(name)
