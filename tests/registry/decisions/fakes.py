"""A small language of schemas, for tests of decisions.

A schema is a list of words. Its canonical form has single spaces, its normalized form is sorted. A
schema reads data of another one if it has all of its words. A word with ``!`` is not valid, and one
with ``?`` is only valid in stored schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from odradek.registry.compatibility.levels import CompatibilityLevel, EarlierVersion
from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.requests import SchemaRequest
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.errors import RegistryError
from odradek.registry.records import Record, decode, encode
from odradek.registry.schemas.parsed import (
    InvalidSchema,
    ParsedSchema,
    ResolvedReference,
    SchemaKind,
    UnsupportedFormat,
    resolved_text,
    text_digest,
)
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject


@dataclass(frozen=True, slots=True)
class FakeSchema:
    """A parsed list of words."""

    kind: SchemaKind
    words: tuple[str, ...]
    references: tuple[ResolvedReference, ...]

    @property
    def canonical(self) -> str:
        return " ".join(self.words)

    def normalized(self) -> str:
        return " ".join(sorted(self.words))

    def formatted(self, name: str) -> str:
        if name != "resolved" or self.kind is not SchemaKind.AVRO:
            raise UnsupportedFormat(name)
        return " ".join((*(each.text for each in self.references), *self.words))


class FakeParsers:
    """Parses lists of words, and records the parsed texts."""

    def __init__(self) -> None:
        self.parsed: list[str] = []
        self.digested: list[str] = []

    def digest(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        resolved: bool = False,
    ) -> bytes | None:
        self.digested.append(text)
        if "!" in text:
            return None
        parsed = FakeSchema(kind, tuple(text.split()), references)
        return text_digest(resolved_text(parsed) if resolved else parsed.canonical)

    def parse(
        self,
        kind: SchemaKind,
        text: str,
        references: tuple[ResolvedReference, ...] = (),
        *,
        stored: bool = False,
    ) -> ParsedSchema:
        self.parsed.append(text)
        if "!" in text or ("?" in text and not stored):
            raise InvalidSchema(f"bad word in '{text}'")
        return FakeSchema(kind, tuple(text.split()), references)


def fake_incompatibilities(
    level: CompatibilityLevel,
    schema: ParsedSchema,
    earlier: Iterable[EarlierVersion],
    *,
    validate_fields: bool = False,
) -> list[str]:
    """Return the words of earlier versions that the schema lacks."""
    if level is CompatibilityLevel.NONE:
        return []
    words = set(schema.canonical.split())
    for version in earlier:
        missing = sorted(set(version.schema.canonical.split()) - words)
        if missing:
            return [f"version {version.version}: {' '.join(missing)} missing"]
        if not level.is_transitive:
            break
    return []


def fake_tools() -> SchemaTools:
    return SchemaTools(FakeParsers(), fake_incompatibilities)


class Log:
    """A topic whose records are applied to a state at once, through their bytes."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self._next_offset = 0

    def write(self, *records: Record) -> None:
        """Append records, and apply them. No record may be skipped."""
        for record in records:
            offset = self._next_offset
            self._next_offset += 1
            self.records[offset] = encode(record)
            _apply(self.state, offset, self.records[offset])

    def execute(self, decision: Decision) -> object:
        """Write the records of a decision, and return its response."""
        self.write(*decision.records)
        return decision.response

    def compact(self) -> None:
        """Compact the topic, and fold it again, as a registry that starts afterwards.

        Compaction keeps the last record of each key. Tombstones are removed, too, as after
        ``delete.retention.ms``.
        """
        last = {key: offset for offset, (key, _) in self.records.items()}
        self.records = {
            offset: (key, value)
            for offset, (key, value) in self.records.items()
            if last[key] == offset and value is not None
        }
        self.state = RegistryState()
        for offset, record in self.records.items():
            _apply(self.state, offset, record)

    def compacted(self) -> RegistryState:
        """Return the state of the compacted log. This log is not changed."""
        copy = Log()
        copy.records = dict(self.records)
        copy.compact()
        return copy.state


def _apply(state: RegistryState, offset: int, record: tuple[bytes, bytes | None]) -> None:
    assert state.apply(decode(*record), offset, timestamp(offset)) is None


def timestamp(offset: int) -> int:
    """Return the timestamp of a record in milliseconds."""
    return 1_700_000_000_000 + offset


def subject(text: str) -> QualifiedSubject:
    return QualifiedSubject.parse(text)


def request(text: str, **fields: Any) -> SchemaRequest:
    """Return the request of a text, of kind AVRO as a default."""
    return SchemaRequest(text=text, **fields)


@contextmanager
def refused(code: int, message: str | None = None) -> Iterator[None]:
    """Expect an error of the registry with a code, and with a message that it contains."""
    with pytest.raises(RegistryError) as caught:
        yield
    assert caught.value.code == code, caught.value.message
    assert message is None or message in caught.value.message
