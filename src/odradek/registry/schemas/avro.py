"""Avro schemas: parsed by the rules of Java's library, stored as by Confluent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.registry.schemas.avro_reader import AvroReader
from odradek.registry.schemas.avro_text import CanonicalText, NormalText
from odradek.registry.schemas.avro_types import NAMED_TYPES, AvroType, defined
from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    ResolvedReference,
    SchemaKind,
    UnsupportedFormat,
)

_DEFAULT_FORMATS = ("", "default")
_RESOLVED_FORMAT = "resolved"


@dataclass(frozen=True, slots=True, eq=False)
class ParsedAvro:
    """A valid Avro schema.

    Attributes:
        root: The type of the text.
        canonical: The text of Java's `Schema.toString`, which names the types of references.
        referenced: The full names of the types of the references' texts.
    """

    root: AvroType
    canonical: str
    referenced: frozenset[str]

    @property
    def kind(self) -> SchemaKind:
        """`SchemaKind.AVRO`."""
        return SchemaKind.AVRO

    @property
    def full_name(self) -> str | None:
        """The name with its namespace. None: the schema is not a named type."""
        root = defined(self.root)
        return root.name.full if isinstance(root, NAMED_TYPES) else None

    def normalized(self) -> str:
        """Return the text in which equivalent schemas are equal."""
        return NormalText(self.referenced).write(self.root)

    def formatted(self, name: str) -> str:
        """Return the canonical text (``default``) or the text without references (``resolved``).

        Raises:
            UnsupportedFormat: Avro has no other format.
        """
        chosen = name.strip().lower()
        if chosen in _DEFAULT_FORMATS:
            return self.canonical
        if chosen == _RESOLVED_FORMAT:
            return CanonicalText().write(self.root)
        raise UnsupportedFormat(f"Avro schemas have no format '{name}'.")


def parse(text: str, references: tuple[ResolvedReference, ...] = ()) -> ParsedAvro:
    """Return a new schema.

    Args:
        text: The text of the schema.
        references: The texts of all references, transitively, in the order of dependency. Each may
            use the types of earlier ones.

    Raises:
        InvalidSchema: A text is not an Avro schema, has a name outside of Avro's specification, has
            an invalid default, or is over a limit.
    """
    return _parse(text, references, AvroReader(strict=True))


def parse_stored(text: str, references: tuple[ResolvedReference, ...] = ()) -> ParsedAvro:
    """Return a schema that was registered before.

    Defaults are not validated, and names may have letters of any alphabet, because earlier versions
    of Confluent's registry accepted them. The arguments are those of `parse`.

    Raises:
        InvalidSchema: A text is not an Avro schema, or is over a limit.
    """
    return _parse(text, references, AvroReader(strict=False))


def _parse(text: str, references: tuple[ResolvedReference, ...], reader: AvroReader) -> ParsedAvro:
    _check_size(text, references)
    try:
        referenced = frozenset(_read_reference(each, reader) for each in references)
        root = reader.read(text)
        canonical = CanonicalText(referenced).write(root)
        canonical.encode()
    except RecursionError:
        raise InvalidSchema("An attribute of the schema is nested too deeply.") from None
    except UnicodeEncodeError:
        raise InvalidSchema("A string of the schema has half of a surrogate pair.") from None
    return ParsedAvro(root, canonical, referenced)


def _read_reference(reference: ResolvedReference, reader: AvroReader) -> str:
    """The full name of a reference's type, or its kind."""
    try:
        root = defined(reader.read(reference.text))
    except InvalidSchema as error:
        raise InvalidSchema(f"Reference '{reference.name}': {error}") from None
    return root.name.full if isinstance(root, NAMED_TYPES) else root.kind.value


def _check_size(text: str, references: tuple[ResolvedReference, ...]) -> None:
    if _bytes(text) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"The schema has more than {TEXT_BYTES_MAX} bytes.")
    if sum(_bytes(each.text) for each in references) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"The references have more than {TEXT_BYTES_MAX} bytes together.")


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
