"""References between schemas in JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.registry.json_value import JsonFields, JsonValue, WrongType
from odradek.registry.schemas.parsed import Reference


class InvalidReference(WrongType):
    """A reference has no name, no subject or no version."""


def decode_references(fields: JsonFields, name: str = "references") -> tuple[Reference, ...]:
    """Return the references of a request or record.

    Raises:
        InvalidReference: A reference has no name, no subject or no version.
        WrongType: A value has a wrong type.
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
        parts = ("null" if part is None else part for part in (name, subject, version))
        raise InvalidReference(
            "Invalid reference: {{name='{}', subject='{}', version={}}}".format(*parts)
        )
    return Reference(name, subject, version)
