"""Schemas of requests and of the state in parsed form. Pure, but parsing takes milliseconds.

Decisions run on the event loop. A route collects `ParseTask` objects from the state first, and runs
them in a thread. The cache of the parsers then has the results when the decision asks for them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

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

PREVIOUS_TASKS_MAX = 100
"""Maximum number of earlier versions that `tasks_of_request` parses ahead of a decision."""


@dataclass(frozen=True, slots=True)
class ParseTask:
    """The arguments of a parser. Immutable, so that a thread may run it.

    `stored` is true for a text that was registered before.
    """

    kind: str
    text: str
    references: tuple[ResolvedReference, ...]
    stored: bool

    def run(self, parsers: SchemaParsers) -> ParsedSchema:
        """Return the parsed schema.

        Raises:
            RegistryError: 42201, the text or its kind is not valid. 42209, it is too large.
        """
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
    if request.is_empty:
        raise invalid_schema("Empty schema")
    task, references = _task_of_request(state, subject, request, stored)
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


def stored_schema(
    state: RegistryState, parsers: SchemaParsers, version: SchemaVersion
) -> ParsedSchema:
    """Return the parsed schema of a version.

    Raises:
        RegistryError: 42201, its kind is unknown, its text is not valid, or a reference is missing.
    """
    return task_of_version(state, version).run(parsers)


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
    parsed = stored_schema(state, parsers, version)
    try:
        return parsed.formatted(format_name)
    except UnsupportedFormat:
        return parsed.canonical


def task_of_version(state: RegistryState, version: SchemaVersion) -> ParseTask:
    """Return the task that parses a version.

    Raises:
        RegistryError: 42201, a reference is missing.
    """
    _, texts = _resolve(state, version.subject, version.kind, version.references, stored=True)
    return ParseTask(version.kind, version.text, texts, stored=True)


def tasks_of_request(
    state: RegistryState, subject: QualifiedSubject, request: SchemaRequest
) -> list[ParseTask]:
    """Return the tasks for a registration, a look-up or a compatibility check.

    They are the text of the request and the newest versions of the subject, at most
    `PREVIOUS_TASKS_MAX`. A schema whose references cannot be resolved is left out: the decision
    reports it.
    """
    tasks: list[ParseTask] = []
    for stored in (True, False):
        with suppress(RegistryError):
            tasks.append(_task_of_request(state, subject, request, stored)[0])
    for version in islice(reversed(state.versions(subject)), PREVIOUS_TASKS_MAX):
        with suppress(RegistryError):
            tasks.append(task_of_version(state, version))
    return [task for task in tasks if task.text.strip()]


def _task_of_request(
    state: RegistryState, subject: QualifiedSubject, request: SchemaRequest, stored: bool
) -> tuple[ParseTask, tuple[Reference, ...]]:
    references, texts = _resolve(state, subject, request.kind, request.references, stored)
    return ParseTask(request.kind, request.text, texts, stored), references


def _resolve(
    state: RegistryState,
    subject: QualifiedSubject,
    kind: str,
    references: tuple[Reference, ...],
    stored: bool,
) -> tuple[tuple[Reference, ...], tuple[ResolvedReference, ...]]:
    if not references:
        return (), ()
    try:
        resolved = resolve(state, subject, references, deleted=stored)
    except InvalidSchema as error:
        raise _invalid(kind, error) from error
    return resolved.references, resolved.texts


def _invalid(kind: str, error: InvalidSchema) -> RegistryError:
    return invalid_schema(f"Invalid schema of type {kind}, details: {error}")
