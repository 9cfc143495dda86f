"""References between schemas in JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.registry.json_value import JsonFields, JsonValue, WrongType
from odradek.registry.schemas.parsed import Reference


def decode_references(fields: JsonFields, name: str = "references") -> tuple[Reference, ...]:
    """Return the references of a request or record.

    Raises:
        WrongType: A reference has no name, subject or version, or one of a wrong type.
    """
    return tuple(_decode(value) for value in fields.elements(name))


def encode_references(references: Iterable[Reference]) -> list[JsonValue]:
    """Return the JSON form of references."""
    return [
        {"name": reference.name, "subject": reference.subject, "version": reference.version}
        for reference in references
    ]


def _decode(value: JsonValue) -> Reference:
    fields = JsonFields(value, "reference")
    name, subject = fields.text("name"), fields.text("subject")
    version = fields.integer("version")
    if name is None or subject is None or version is None:
        raise WrongType(
            f"Invalid reference: {{name='{name}', subject='{subject}', version={version}}}"
        )
    return Reference(name, subject, version)
