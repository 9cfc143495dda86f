"""Whether the schema of a request is a registered version (``ParsedSchema.canLookup``). Pure.

A version with the same content is found by its guid. These rules find versions that differ in their
text only:

- The text of the version has another canonical form, because an older registry wrote it.
- The request contains the definitions that the version references.
- One of them has ``confluent:version`` in its metadata.
"""

from __future__ import annotations

from odradek.registry.decisions.parsing import Candidate, stored_schema
from odradek.registry.decisions.resolution import with_numbers
from odradek.registry.decisions.tools import SchemaParsers
from odradek.registry.metadata import Metadata
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.schemas.parsed import ParsedSchema, UnsupportedFormat
from odradek.registry.state import RegistryState

RESOLVED = "resolved"
"""The format whose text contains the definitions of all references."""


def is_equivalent(
    state: RegistryState, parsers: SchemaParsers, candidate: Candidate, version: SchemaVersion
) -> bool:
    """Whether a look-up of the candidate finds the version.

    Raises:
        RegistryError: 42201, the version cannot be parsed.
    """
    if candidate.kind != version.kind or candidate.rule_set != version.rule_set:
        return False
    if not _metadata_match(candidate.metadata, version):
        return False
    references = with_numbers(state, version.subject, version.references)
    if candidate.references == references:
        return candidate.text == version.text or candidate.parsed.canonical == (
            stored_schema(state, parsers, version).canonical
        )
    if candidate.references:
        return False
    return _resolved(candidate.parsed) == _resolved(stored_schema(state, parsers, version))


def _metadata_match(metadata: Metadata | None, version: SchemaVersion) -> bool:
    requested = None if metadata is None else metadata.version
    stored = None if version.metadata is None else version.metadata.version
    if requested is None and stored is not None:
        assert version.metadata is not None
        return (metadata or Metadata()) == version.metadata.without_version()
    if requested is not None and stored is None:
        assert metadata is not None
        if requested != version.version:
            return False
        return metadata.without_version() == (version.metadata or Metadata())
    return metadata == version.metadata


def _resolved(parsed: ParsedSchema) -> str:
    try:
        return parsed.formatted(RESOLVED)
    except UnsupportedFormat:
        return parsed.canonical
