"""The compatibility levels: which earlier versions a new schema must read, or be read by. Pure.

The messages are those of Confluent's registry: the reasons, then the version and the text of the
earlier schema, then the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from odradek.registry.request_budget import Spend, unlimited
from odradek.registry.schemas.parsed import ParsedSchema, SchemaKind

OLD_SCHEMA_CHARACTERS_MAX = 10 * 1024
"""A longer text of an earlier schema is truncated in messages."""

DIFFERENT_KIND = "Incompatible because of different schema type"
"""The reason for schemas of different kinds."""

_NEW = "new"
_OLD = "old"


class CompatibilityLevel(StrEnum):
    """The seven levels, by their names in requests and records."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions are compared, not only the latest one."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """Whether the new schema must read data of earlier schemas."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """Whether earlier schemas must read data of the new schema."""
        return self.value.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """A registered version of the subject."""

    version: int
    schema: ParsedSchema


def check(reader: ParsedSchema, writer: ParsedSchema, spend: Spend = unlimited) -> list[str]:
    """Return the reasons why `reader` cannot read data of `writer`. Empty: it can.

    A reason may contain ``%s`` twice: for the role of the reader and then for that of the writer.
    `spend` is called for the parts of the comparison.
    """
    if reader.kind is not writer.kind:
        return [DIFFERENT_KIND]
    return _check_of(reader.kind)(reader, writer, spend)


def incompatibilities(
    level: CompatibilityLevel,
    schema: ParsedSchema,
    earlier: Iterable[EarlierVersion],
    *,
    validate_fields: bool = False,
    spend: Spend = unlimited,
) -> list[str]:
    """Return the messages why a schema breaks a level. Empty: it does not.

    Args:
        level: The level of the subject.
        schema: The new schema.
        earlier: The earlier versions, newest first. The iterable may parse each version when it is
            asked for. Only the first one is, unless the level is transitive. The first version
            with reasons ends the comparison.
        validate_fields: The subject's setting ``validateFields``, which the messages repeat.
        spend: Called for the parts of each comparison.
    """
    if level is CompatibilityLevel.NONE:
        return []
    for version in earlier:
        messages = _compare(level, schema, version, spend)
        if messages:
            settings = f"validateFields: '{str(validate_fields).lower()}'"
            return [*messages, f"{{{settings}, compatibility: '{level.value}'}}"]
        if not level.is_transitive:
            break
    return []


def _compare(
    level: CompatibilityLevel, schema: ParsedSchema, old: EarlierVersion, spend: Spend
) -> list[str]:
    if schema.kind is not old.schema.kind:
        return [DIFFERENT_KIND]
    messages: list[str] = []
    details = _details(old)
    if level.is_forward:
        reasons = check(old.schema, schema, spend)
        messages += _named(reasons, _OLD, _NEW)
        messages += details if reasons and not level.is_backward else []
    if level.is_backward:
        reasons = check(schema, old.schema, spend)
        messages += _named(reasons, _NEW, _OLD)
        messages += details if reasons else []
    return messages


def _named(reasons: list[str], reader: str, writer: str) -> list[str]:
    return [each.replace("%s", reader, 1).replace("%s", writer, 1) for each in reasons]


def _details(old: EarlierVersion) -> list[str]:
    text = old.schema.canonical
    if len(text) > OLD_SCHEMA_CHARACTERS_MAX:
        shown = f"{{oldSchema: <truncated> '{text[:OLD_SCHEMA_CHARACTERS_MAX]}...'}}"
    else:
        shown = f"{{oldSchema: '{text}'}}"
    return [f"{{oldSchemaVersion: {old.version}}}", shown]


def _check_of(kind: SchemaKind) -> Callable[..., list[str]]:
    match kind:
        case SchemaKind.AVRO:
            from odradek.registry.compatibility import avro

            return avro.check
        case SchemaKind.JSON:
            from odradek.registry.compatibility import json_schema

            return json_schema.check
        case SchemaKind.PROTOBUF:
            from odradek.registry.compatibility import protobuf

            return protobuf.check
