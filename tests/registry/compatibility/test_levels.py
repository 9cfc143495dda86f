"""The seven compatibility levels and their messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.registry.compatibility.levels import (
    DIFFERENT_KIND,
    OLD_SCHEMA_CHARACTERS_MAX,
    CompatibilityLevel,
    EarlierVersion,
    check,
    incompatibilities,
)
from odradek.registry.schemas import avro, json_schema
from odradek.registry.schemas.parsed import ParsedSchema

INT = avro.parse('"int"')
LONG = avro.parse('"long"')
STRING = avro.parse('"string"')
INT_OR_LONG = avro.parse('["int","long"]')


def earlier(*schemas: ParsedSchema) -> list[EarlierVersion]:
    """Versions from the oldest to the newest, in the order of `incompatibilities`."""
    versions = [EarlierVersion(number, each) for number, each in enumerate(schemas, start=1)]
    return versions[::-1]


@pytest.mark.parametrize(
    ("level", "is_backward", "is_forward", "is_transitive"),
    [
        (CompatibilityLevel.NONE, False, False, False),
        (CompatibilityLevel.BACKWARD, True, False, False),
        (CompatibilityLevel.BACKWARD_TRANSITIVE, True, False, True),
        (CompatibilityLevel.FORWARD, False, True, False),
        (CompatibilityLevel.FORWARD_TRANSITIVE, False, True, True),
        (CompatibilityLevel.FULL, True, True, False),
        (CompatibilityLevel.FULL_TRANSITIVE, True, True, True),
    ],
)
def test_levels_have_directions(
    level: CompatibilityLevel, is_backward: bool, is_forward: bool, is_transitive: bool
) -> None:
    assert (level.is_backward, level.is_forward, level.is_transitive) == (
        is_backward,
        is_forward,
        is_transitive,
    )
    newer = incompatibilities(level, LONG, earlier(INT))
    older = incompatibilities(level, INT, earlier(LONG))
    assert (newer == []) == (not is_forward)
    assert (older == []) == (not is_backward)


@pytest.mark.parametrize("level", list(CompatibilityLevel))
def test_only_transitive_levels_compare_all_versions(level: CompatibilityLevel) -> None:
    messages = incompatibilities(level, INT, earlier(STRING, INT))
    assert (messages != []) == level.is_transitive


@pytest.mark.parametrize("level", list(CompatibilityLevel))
def test_the_first_version_has_nothing_to_break(level: CompatibilityLevel) -> None:
    assert incompatibilities(level, INT, []) == []


def test_versions_are_parsed_only_if_they_are_compared() -> None:
    asked: list[int] = []

    def versions() -> Iterator[EarlierVersion]:
        for version in earlier(INT, INT, INT):
            asked.append(version.version)
            yield version

    incompatibilities(CompatibilityLevel.NONE, INT, versions())
    assert asked == []
    incompatibilities(CompatibilityLevel.BACKWARD, INT, versions())
    assert asked == [3]
    asked.clear()
    incompatibilities(CompatibilityLevel.BACKWARD_TRANSITIVE, INT, versions())
    assert asked == [3, 2, 1]


def test_the_newest_version_with_reasons_is_reported() -> None:
    messages = incompatibilities(
        CompatibilityLevel.BACKWARD_TRANSITIVE, INT, earlier(STRING, LONG, INT)
    )
    assert "{oldSchemaVersion: 2}" in messages


def test_messages_of_backward_name_the_new_schema_first() -> None:
    assert incompatibilities(CompatibilityLevel.BACKWARD, INT, earlier(LONG)) == [
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/') of a field in the new schema"
        " does not match with the old schema',"
        " additionalInfo:'reader type: INT not compatible with writer type: LONG'}",
        "{oldSchemaVersion: 1}",
        "{oldSchema: '\"long\"'}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]


def test_messages_of_forward_name_the_old_schema_first() -> None:
    messages = incompatibilities(
        CompatibilityLevel.FORWARD, LONG, earlier(INT), validate_fields=True
    )
    assert "of a field in the old schema does not match with the new schema" in messages[0]
    assert messages[1:] == [
        "{oldSchemaVersion: 1}",
        "{oldSchema: '\"int\"'}",
        "{validateFields: 'true', compatibility: 'FORWARD'}",
    ]


def test_messages_of_full_show_the_old_schema_once() -> None:
    messages = incompatibilities(CompatibilityLevel.FULL, INT, earlier(STRING))
    assert [message[:12] for message in messages] == [
        "{errorType:'",
        "{errorType:'",
        "{oldSchemaVe",
        "{oldSchema: ",
        "{validateFie",
    ]
    assert "old schema does not match with the new" in messages[0]
    assert "new schema does not match with the old" in messages[1]


def test_full_without_a_backward_reason_shows_no_old_schema() -> None:
    """Confluent's registry adds the old schema to the reasons of the backward direction only."""
    messages = incompatibilities(CompatibilityLevel.FULL, INT_OR_LONG, earlier(INT))
    assert [message[:12] for message in messages] == ["{errorType:'", "{validateFie"]


def test_a_long_old_schema_is_truncated() -> None:
    text = '{"type":"int","note":"' + "x" * OLD_SCHEMA_CHARACTERS_MAX + '"}'
    messages = incompatibilities(CompatibilityLevel.BACKWARD, STRING, earlier(avro.parse(text)))
    shown = f"{{oldSchema: <truncated> '{text[:OLD_SCHEMA_CHARACTERS_MAX]}...'}}"
    assert messages[2] == shown


def test_schemas_of_different_kinds_are_incompatible() -> None:
    other = json_schema.parse('{"type":"object"}', ())
    assert check(INT, other) == [DIFFERENT_KIND]
    assert incompatibilities(CompatibilityLevel.FORWARD, INT, earlier(other)) == [
        DIFFERENT_KIND,
        "{validateFields: 'false', compatibility: 'FORWARD'}",
    ]
    assert incompatibilities(CompatibilityLevel.NONE, INT, earlier(other)) == []
