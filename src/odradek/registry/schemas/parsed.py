"""What the registry knows about a schema of any kind. Pure.

Each kind has a module here with `parse`, and one in `odradek.registry.compatibility` with `check`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

TEXT_BYTES_MAX = 1_048_576
"""Maximum size of a schema's text, and of all its resolved references together."""

DEPTH_MAX = 200
"""Maximum depth of nested types in a schema."""


RESOLVED = "resolved"
"""The format whose text contains the definitions of all references."""


class SchemaKind(StrEnum):
    """The kind of a schema, by its name in requests and records (``schemaType``)."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema to a version of a subject, by the name that its text uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A reference with the text that it names. A list of them is in the order of dependency."""

    name: str
    text: str


def text_digest(text: str) -> bytes:
    """Return a hash of a text, to compare texts without keeping them."""
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()


class InvalidSchema(Exception):
    """A text is not a valid schema of its kind. The message says what is wrong and where."""


class UnsupportedFormat(Exception):
    """A schema has no text in the requested format."""


class ParsedSchema(Protocol):
    """A valid schema. Immutable."""

    @property
    def kind(self) -> SchemaKind: ...

    @property
    def canonical(self) -> str:
        """The text that the registry stores and returns (Confluent's canonical string)."""

    def normalized(self) -> str:
        """Return the text in which equivalent schemas are equal (``normalize=true``)."""

    def formatted(self, name: str) -> str:
        """Return the text in a format, such as ``resolved`` or ``serialized``.

        Raises:
            UnsupportedFormat: The kind does not have this format.
        """


def resolved_text(parsed: ParsedSchema) -> str:
    """Return the text with the definitions of all references, or else the canonical text."""
    try:
        return parsed.formatted(RESOLVED)
    except UnsupportedFormat:
        return parsed.canonical
