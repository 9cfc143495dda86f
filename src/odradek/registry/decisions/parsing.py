"""Schemas of requests and of the state in parsed form. Pure, but parsing may take seconds.

A `ParseTask` has all that a parser needs from the state, so that a thread may run it.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.decisions.resolution import resolve
from odradek.registry.decisions.tools import SchemaParsers
from odradek.registry.errors import RegistryError, invalid_schema, schema_too_large
from odradek.registry.guids import guid_of
from odradek.registry.metadata import Metadata
from odradek.registry.rules import RuleSet
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    ParsedSchema,
    Reference,
    ResolvedReference,
    SchemaKind,
    UnsupportedFormat,
)
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject


@dataclass(frozen=True, slots=True)
class ParseTask:
    """The arguments of a parser. Immutable, so that a thread may run it.

    `stored` is true for a text that was registered before. `error` is the reason why there is
    nothing to parse: a reference that does not exist, or an empty text of a request.
    """

    kind: str
    text: str
    references: tuple[ResolvedReference, ...]
    stored: bool
    error: RegistryError | None = None

    def run(self, parsers: SchemaParsers) -> ParsedSchema:
        """Return the parsed schema.

        Raises:
            RegistryError: 42201, the text or its kind is not valid, or a reference is missing.
                42209, the text is too large.
        """
        if self.error is not None:
            raise self.error
        if len(self.text.encode()) > TEXT_BYTES_MAX:
            raise schema_too_large()
        try:
            kind = SchemaKind(self.kind)
        except ValueError:
            raise invalid_schema(f"Invalid schema type {self.kind}") from None
        try:
            return parsers.parse(kind, self.text, self.references, stored=self.stored)
        except InvalidSchema as error:
            raise _invalid(self.kind, error) from error

    def digest(self, parsers: SchemaParsers, *, resolved: bool = False) -> bytes | None:
        """Return the digest of the canonical or the resolved text, or None if it is not valid."""
        is_known = self.kind in SchemaKind.__members__
        if self.error is not None or not is_known or len(self.text.encode()) > TEXT_BYTES_MAX:
            return None
        return parsers.digest(SchemaKind(self.kind), self.text, self.references, resolved=resolved)

    def text_in(self, parsers: SchemaParsers, format_name: str) -> str:
        """Return the text in a format. An unknown one is the canonical text, as in Confluent's.

        Raises:
            RegistryError: As for `run`.
        """
        parsed = self.run(parsers)
        try:
            return parsed.formatted(format_name)
        except UnsupportedFormat:
            return parsed.canonical


@dataclass(frozen=True, slots=True)
class Candidate:
    """The schema of a request in canonical form. References have numbers for latest versions."""

    subject: QualifiedSubject
    kind: str
    text: str
    references: tuple[Reference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None
    parsed: ParsedSchema

    @property
    def guid(self) -> str:
        """The guid of its content."""
        return guid_of(self.text, self.references, self.metadata, self.rule_set)

    def as_version(self, version: int, schema_id: int) -> SchemaVersion:
        """Return it as a version of its subject that has no record yet."""
        return SchemaVersion(
            subject=self.subject,
            version=version,
            id=schema_id,
            kind=self.kind,
            text=self.text,
            references=self.references,
            metadata=self.metadata,
            rule_set=self.rule_set,
            guid=self.guid,
        )


def canonical(
    state: RegistryState,
    parsers: SchemaParsers,
    subject: QualifiedSubject,
    request: SchemaRequest,
    *,
    normalize: bool,
    stored: bool,
) -> Candidate:
    """Return the schema of a request in canonical form.

    Args:
        state: The state.
        parsers: The parsers.
        subject: The subject of the request.
        request: The request.
        normalize: Whether the text is normalized. A subject in IMPORT mode is never normalized.
        stored: Whether the text is parsed with the rules for registered schemas, which accept
            invalid defaults and references to deleted versions.

    Raises:
        RegistryError: 42201 or 42209, the schema is not valid or too large.
    """
    references, task = _resolved_request(state, subject, request, stored)
    parsed = task.run(parsers)
    is_normalized = normalize and not state.mode_in_scope(subject).is_import
    return Candidate(
        subject=subject,
        kind=request.kind,
        text=parsed.normalized() if is_normalized else parsed.canonical,
        references=references,
        metadata=request.metadata,
        rule_set=request.rule_set,
        parsed=parsed,
    )


def text_in_format(
    state: RegistryState, parsers: SchemaParsers, version: SchemaVersion, format_name: str
) -> str:
    """Return the text of a version in the format of a request.

    Args:
        state: The state.
        parsers: The parsers.
        version: The version.
        format_name: Such as ``resolved`` or ``serialized``. Empty is the stored text. An unknown
            format is the canonical text, as in Confluent's registry.

    Raises:
        RegistryError: 42201, the version cannot be parsed.
    """
    if not format_name.strip():
        return version.text
    return task_of_version(state, version).text_in(parsers, format_name)


def task_of_version(state: RegistryState, version: SchemaVersion) -> ParseTask:
    """Return the task that parses a version."""
    _, task = _task(
        state, version.subject, version.kind, version.text, version.references, stored=True
    )
    return task


def task_of_request(
    state: RegistryState, subject: QualifiedSubject, request: SchemaRequest, *, stored: bool
) -> ParseTask:
    """Return the task that parses a request. The arguments are those of `canonical`."""
    return _resolved_request(state, subject, request, stored)[1]


def _resolved_request(
    state: RegistryState, subject: QualifiedSubject, request: SchemaRequest, stored: bool
) -> tuple[tuple[Reference, ...], ParseTask]:
    """Return the references with numbers for latest versions, and the task."""
    if request.is_empty:
        error = invalid_schema("Empty schema")
        return (), ParseTask(request.kind, request.text, (), stored, error)
    return _task(state, subject, request.kind, request.text, request.references, stored=stored)


def _task(
    state: RegistryState,
    subject: QualifiedSubject,
    kind: str,
    text: str,
    references: tuple[Reference, ...],
    *,
    stored: bool,
) -> tuple[tuple[Reference, ...], ParseTask]:
    if not references:
        return (), ParseTask(kind, text, (), stored)
    try:
        resolved = resolve(state, subject, references, deleted=stored)
    except InvalidSchema as error:
        return references, ParseTask(kind, text, (), stored, _invalid(kind, error))
    return resolved.references, ParseTask(kind, text, resolved.texts, stored)


def _invalid(kind: str, error: InvalidSchema) -> RegistryError:
    return invalid_schema(f"Invalid schema of type {kind}, details: {error}")
