"""Resolution of references to the texts that they name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from odradek.registry.errors import schema_too_large
from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    Reference,
    ResolvedReference,
)
from odradek.registry.state import LATEST_VERSION, RegistryState
from odradek.registry.subjects import QualifiedSubject

REFERENCE_DEPTH_MAX = 64
"""Maximum length of a chain of references."""

REFERENCES_TOTAL_MAX = 1_000
"""Maximum number of references of a schema, together with the references of these."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The references of a schema, with numbers for latest versions, and all texts."""

    references: tuple[Reference, ...]
    texts: tuple[ResolvedReference, ...]


def resolve(
    state: RegistryState,
    subject: QualifiedSubject,
    references: Iterable[Reference],
    *,
    deleted: bool = False,
) -> Resolved:
    """Resolve the references of a schema, and in turn those of the referenced schemas.

    Args:
        state: The state.
        subject: The subject of the schema. References without a context belong to its context.
        references: The references of the schema.
        deleted: Whether references to soft-deleted versions are accepted, as for stored schemas.

    Returns:
        The references, and the texts of all of them in the order of dependency. A name that occurs
        twice has the text of its first occurrence.

    Raises:
        InvalidSchema: A referenced version does not exist, a version references itself, or the
            references exceed `REFERENCE_DEPTH_MAX` or `REFERENCES_TOTAL_MAX`.
        RegistryError: 42209, the texts exceed `TEXT_BYTES_MAX` bytes.
    """
    resolution = _Resolution(state, deleted)
    numbered = resolution.visit(subject, references, path=())
    return Resolved(numbered, tuple(resolution.texts))


def with_numbers(
    state: RegistryState, subject: QualifiedSubject, references: Iterable[Reference]
) -> tuple[Reference, ...]:
    """Return references with the number of the latest version instead of -1, where it exists."""
    return tuple(_with_number(state, subject, each) for each in references)


def _with_number(
    state: RegistryState, subject: QualifiedSubject, reference: Reference
) -> Reference:
    if reference.version != LATEST_VERSION:
        return reference
    latest = state.latest(subject.relative(reference.subject))
    return reference if latest is None else replace(reference, version=latest.version)


class _Resolution:
    """The depth-first search of one call of `resolve`."""

    def __init__(self, state: RegistryState, deleted: bool) -> None:
        self._state = state
        self._deleted = deleted
        self._names: set[str] = set()
        self._bytes = 0
        self.texts: list[ResolvedReference] = []

    def visit(
        self,
        subject: QualifiedSubject,
        references: Iterable[Reference],
        path: tuple[tuple[QualifiedSubject, int], ...],
    ) -> tuple[Reference, ...]:
        """Append the texts of references after the texts that they need."""
        return tuple(self._visit(subject, reference, path) for reference in references)

    def _visit(
        self,
        subject: QualifiedSubject,
        reference: Reference,
        path: tuple[tuple[QualifiedSubject, int], ...],
    ) -> Reference:
        target = subject.relative(reference.subject)
        version = self._state.version(target, reference.version, deleted=self._deleted)
        if version is None:
            raise InvalidSchema(
                f'No schema reference found for subject "{target}" and version {reference.version}'
            )
        if version.key in path:
            raise InvalidSchema(f'Cyclic reference to subject "{target}" version {version.version}')
        if reference.name not in self._names:
            self._enter(reference.name, len(path))
            self.visit(version.subject, version.references, (*path, version.key))
            self._append(reference.name, version.text)
        return replace(reference, version=version.version)

    def _enter(self, name: str, depth: int) -> None:
        if depth >= REFERENCE_DEPTH_MAX:
            raise InvalidSchema(f"More than {REFERENCE_DEPTH_MAX} references follow each other")
        if len(self._names) >= REFERENCES_TOTAL_MAX:
            raise InvalidSchema(f"More than {REFERENCES_TOTAL_MAX} references")
        self._names.add(name)

    def _append(self, name: str, text: str) -> None:
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._bytes > TEXT_BYTES_MAX:
            raise schema_too_large(
                f"The texts of all references are larger than {TEXT_BYTES_MAX} bytes"
            )
        self.texts.append(ResolvedReference(name, text))
