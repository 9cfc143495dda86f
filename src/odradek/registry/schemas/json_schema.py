"""JSON Schema: drafts 4, 6, 7, 2019-09 and 2020-12. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.registry.schemas.json_compile import compile_schema
from odradek.registry.schemas.json_model import Node
from odradek.registry.schemas.json_text import Json, dump, load
from odradek.registry.schemas.parsed import (
    TEXT_BYTES_MAX,
    InvalidSchema,
    ResolvedReference,
    SchemaKind,
)


@dataclass(frozen=True, slots=True, eq=False)
class ParsedJsonSchema:
    """A valid JSON Schema. Immutable, and safe for several threads."""

    canonical: str
    """The text without spaces. Members keep their order, and unknown keywords are kept."""
    references: tuple[ResolvedReference, ...]
    root: Node
    """The schema as a graph, for the comparison with other schemas."""
    value: Json

    @property
    def kind(self) -> SchemaKind:
        """The kind of the schema."""
        return SchemaKind.JSON

    def normalized(self) -> str:
        """Return the text with the members of all objects sorted by name."""
        return dump(self.value, sort_members=True)

    def formatted(self, name: str) -> str:
        """Return the canonical text. JSON Schema has no other format, and no name is an error."""
        return self.canonical


def parse(text: str, references: tuple[ResolvedReference, ...] = ()) -> ParsedJsonSchema:
    """Return the schema of a text.

    Args:
        text: A JSON object or boolean.
        references: The referenced texts by name, transitively. Unused references are permitted.

    Raises:
        InvalidSchema: The text is not JSON, breaks a rule of its draft, has a reference that is not
            among `references`, or exceeds a limit.
    """
    if sum(len(each.text) for each in references) + len(text) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"The schema and its references exceed {TEXT_BYTES_MAX} bytes")
    value = load(text)
    if not isinstance(value, (dict, bool)):
        raise InvalidSchema("A JSON schema must be an object or a boolean")
    canonical = dump(value)
    if not _is_unicode(canonical):
        raise InvalidSchema("The schema contains half of a surrogate pair")
    root = compile_schema(value, {each.name: load(each.text) for each in references})
    return ParsedJsonSchema(canonical, references, root, value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
