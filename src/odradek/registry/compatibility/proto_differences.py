"""Differences between two Protobuf schemas, with Confluent's names and messages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Path = tuple[str, ...]
"""Names of messages and oneofs, and numbers of fields or enum values, from the outside in."""


class ProtoDifferenceKind(StrEnum):
    """The kinds of difference, as Confluent's registry names them."""

    PACKAGE_CHANGED = "PACKAGE_CHANGED"
    MESSAGE_ADDED = "MESSAGE_ADDED"
    MESSAGE_REMOVED = "MESSAGE_REMOVED"
    MESSAGE_MOVED = "MESSAGE_MOVED"
    ENUM_ADDED = "ENUM_ADDED"
    ENUM_REMOVED = "ENUM_REMOVED"
    ENUM_CONST_ADDED = "ENUM_CONST_ADDED"
    ENUM_CONST_CHANGED = "ENUM_CONST_CHANGED"
    ENUM_CONST_REMOVED = "ENUM_CONST_REMOVED"
    FIELD_ADDED = "FIELD_ADDED"
    FIELD_REMOVED = "FIELD_REMOVED"
    FIELD_NAME_CHANGED = "FIELD_NAME_CHANGED"
    FIELD_KIND_CHANGED = "FIELD_KIND_CHANGED"
    FIELD_SCALAR_KIND_CHANGED = "FIELD_SCALAR_KIND_CHANGED"
    FIELD_NAMED_TYPE_CHANGED = "FIELD_NAMED_TYPE_CHANGED"
    FIELD_NUMERIC_LABEL_CHANGED = "FIELD_NUMERIC_LABEL_CHANGED"
    FIELD_STRING_OR_BYTES_LABEL_CHANGED = "FIELD_STRING_OR_BYTES_LABEL_CHANGED"
    REQUIRED_FIELD_ADDED = "REQUIRED_FIELD_ADDED"
    REQUIRED_FIELD_REMOVED = "REQUIRED_FIELD_REMOVED"
    ONEOF_ADDED = "ONEOF_ADDED"
    ONEOF_REMOVED = "ONEOF_REMOVED"
    ONEOF_FIELD_ADDED = "ONEOF_FIELD_ADDED"
    ONEOF_FIELD_REMOVED = "ONEOF_FIELD_REMOVED"
    ONEOF_FIELD_MOVED_TO_TOP_LEVEL = "ONEOF_FIELD_MOVED_TO_TOP_LEVEL"
    MULTIPLE_FIELDS_MOVED_TO_ONEOF = "MULTIPLE_FIELDS_MOVED_TO_ONEOF"
    FIELD_MOVED_TO_EXISTING_ONEOF = "FIELD_MOVED_TO_EXISTING_ONEOF"

    @property
    def is_compatible(self) -> bool:
        """Whether the reader can read the writer's data in spite of the difference."""
        return self not in _DESCRIPTIONS


_DESCRIPTIONS = {
    ProtoDifferenceKind.PACKAGE_CHANGED: (
        "The package at '{}' in the %s schema does not match the package in the %s schema"
    ),
    ProtoDifferenceKind.MESSAGE_REMOVED: (
        "The %s schema is missing a MESSAGE type at path '{}' in the %s schema"
    ),
    ProtoDifferenceKind.FIELD_KIND_CHANGED: (
        "The type of a field at path '{}' in the %s schema does not match the %s schema"
    ),
    ProtoDifferenceKind.FIELD_SCALAR_KIND_CHANGED: (
        "The kind of a SCALAR field at path '{}' in the %s schema does not match its kind in "
        "the %s schema"
    ),
    ProtoDifferenceKind.FIELD_NAMED_TYPE_CHANGED: (
        "The type of a MESSAGE field at path '{}' in the %s schema does not match its type in "
        "the %s schema"
    ),
    ProtoDifferenceKind.FIELD_NUMERIC_LABEL_CHANGED: (
        "The label for a NUMERIC field at path '{}' in the %s schema does not match its label "
        "in the %s schema"
    ),
    ProtoDifferenceKind.REQUIRED_FIELD_ADDED: (
        "A required field  at path '{}' in the %s schema is missing in the %s schema"
    ),
    ProtoDifferenceKind.REQUIRED_FIELD_REMOVED: (
        "The %s schema is missing a required field at path: '{}' in the %s schema"
    ),
    ProtoDifferenceKind.ONEOF_FIELD_REMOVED: (
        "The %s schema is missing a oneof field at path '{}' in the %s schema"
    ),
    ProtoDifferenceKind.MULTIPLE_FIELDS_MOVED_TO_ONEOF: (
        "Multiple fields in the oneof at path '{}' in the %s schema are outside a oneof in the "
        "%s schema"
    ),
    ProtoDifferenceKind.FIELD_MOVED_TO_EXISTING_ONEOF: (
        "A field in the oneof at path '{}' in the %s schema is outside an existing oneof in the "
        "%s schema"
    ),
}
"""The message of each incompatible difference, for its path and for the roles of the schemas."""


@dataclass(frozen=True, slots=True)
class ProtoDifference:
    """One difference. As text it is the message of Confluent's registry."""

    kind: ProtoDifferenceKind
    path: Path

    @property
    def location(self) -> str:
        """The path as text, such as ``#/Order/Line/3``."""
        return "#/" + "/".join(self.path)

    def __str__(self) -> str:
        description = _DESCRIPTIONS.get(self.kind, "").replace("{}", self.location)
        return f'{{errorType:"{self.kind.value}", description:"{description}"}}'
