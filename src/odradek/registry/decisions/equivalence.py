"""Whether the schema of a request is a registered version (``ParsedSchema.canLookup``). Pure.

A version with the same content is found by its guid. These rules find versions that differ in their
text only:

- The text of the version has another canonical form, because an older registry wrote it.
- The request contains the definitions that the version references.
- One of them has ``confluent:version`` in its metadata.
"""

from __future__ import annotations

from functools import cached_property

from odradek.registry.decisions.parsing import Candidate, task_of_version
from odradek.registry.decisions.resolution import with_numbers
from odradek.registry.decisions.tools import SchemaParsers
from odradek.registry.metadata import Metadata
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.schemas.parsed import resolved_text, text_digest
from odradek.registry.state import RegistryState


class Equivalence:
    """Compares the schema of a request with versions of its subject.

    Args:
        state: The state.
        parsers: The parsers, and the digests of versions.
        candidate: The schema of the request.
    """

    def __init__(self, state: RegistryState, parsers: SchemaParsers, candidate: Candidate) -> None:
        self._state = state
        self._parsers = parsers
        self._candidate = candidate

    def matches(self, version: SchemaVersion) -> bool:
        """Whether a look-up of the schema finds a version. It does not if that is not valid."""
        candidate = self._candidate
        if candidate.kind != version.kind or candidate.rule_set != version.rule_set:
            return False
        if not _metadata_match(candidate.metadata, version):
            return False
        references = with_numbers(self._state, version.subject, version.references)
        if candidate.references == references:
            return candidate.text == version.text or self._canonical == self._digest(version)
        if candidate.references:
            return False
        return self._resolved == self._digest(version, resolved=True)

    def _digest(self, version: SchemaVersion, *, resolved: bool = False) -> bytes | None:
        return task_of_version(self._state, version).digest(self._parsers, resolved=resolved)

    @cached_property
    def _canonical(self) -> bytes:
        return text_digest(self._candidate.parsed.canonical)

    @cached_property
    def _resolved(self) -> bytes:
        return text_digest(resolved_text(self._candidate.parsed))


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
