"""Tests of look-ups by text and by metadata, of formats and of compatibility checks."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.decisions.lookup import (
    check_compatibility,
    find_version,
    get_version,
    latest_with_metadata,
    look_up,
)
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.metadata import Metadata
from odradek.registry.records import ConfigRecord, ContextRecord, SchemaRecord
from odradek.registry.schemas.parsed import Reference
from tests.registry.decisions.fakes import FakeParsers, Log, fake_tools, refused, request, subject

A = subject("a")


def properties(**values: str) -> Metadata:
    return Metadata(properties=tuple(sorted(values.items())))


@pytest.fixture
def log() -> Log:
    log = Log()
    log.write(
        ContextRecord(".ctx"),
        SchemaRecord("a", 1, 1, "x", metadata=properties(owner="me", major="1")),
        SchemaRecord("a", 2, 2, "x y", metadata=properties(owner="me", major="2")),
        SchemaRecord("a", 3, 3, "x y z", deleted=True),
        SchemaRecord(":.ctx:c", 1, 1, "w"),
        SchemaRecord("b", 1, 4, "b", references=(Reference("a", "a", 1),)),
    )
    return log


def found(response: dict[str, Any]) -> tuple[str, int]:
    return response["subject"], response["version"]


def look_up_text(log: Log, name: str, text: str, **options: Any) -> tuple[str, int]:
    metadata = options.pop("metadata", None)
    schema = request(text, metadata=metadata)
    return found(look_up(log.state, FakeParsers(), subject(name), schema, **options))


# Versions.


def test_version_has_the_fields_of_confluent(log: Log) -> None:
    assert get_version(log.state, FakeParsers(), subject("b"), 1) == {
        "subject": "b",
        "version": 1,
        "id": 4,
        "guid": find_version(log.state, subject("b"), 1).guid,
        "schemaType": "AVRO",
        "references": [{"name": "a", "subject": "a", "version": 1}],
        "schema": "b",
        "ts": 1_700_000_000_005,
        "deleted": False,
    }


def test_version_is_searched_in_all_contexts(log: Log) -> None:
    assert str(find_version(log.state, subject("c"), -1).subject) == ":.ctx:c"
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        find_version(log.state, subject(":.other:c"), 1)


def test_unknown_version_and_subject_are_distinguished(log: Log) -> None:
    with refused(RegistryErrorCode.VERSION_NOT_FOUND, "Version 3 not found."):
        find_version(log.state, A, 3)
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND, "Subject 'd' not found."):
        find_version(log.state, subject("d"), 1)
    assert find_version(log.state, A, 3, deleted=True).id == 3


def test_text_has_the_format_of_the_request(log: Log) -> None:
    parsers = FakeParsers()

    resolved = get_version(log.state, parsers, subject("b"), 1, format_name="resolved")
    unknown = get_version(log.state, parsers, subject("b"), 1, format_name="other")

    assert (resolved["schema"], unknown["schema"]) == ("x b", "b")


def test_references_are_qualified_on_request() -> None:
    log = Log()
    log.write(
        SchemaRecord(":.ctx:a", 1, 1, "x"),
        SchemaRecord(":.ctx:b", 1, 2, "y", references=(Reference("a", "a", 1),)),
    )

    response = get_version(
        log.state, FakeParsers(), subject(":.ctx:b"), 1, qualified_references=True
    )

    assert response["references"] == [{"name": "a", "subject": ":.ctx:a", "version": 1}]


# Look-ups by text.


def test_schema_is_found_by_its_text_and_metadata(log: Log) -> None:
    metadata = properties(owner="me", major="1")

    assert look_up_text(log, "a", " x ", metadata=metadata) == ("a", 1)


def test_schema_without_metadata_is_found_with_the_metadata_of_the_latest_version(log: Log) -> None:
    assert look_up_text(log, "a", "x y") == ("a", 2)
    with refused(RegistryErrorCode.SCHEMA_NOT_FOUND, "Schema not found"):
        look_up_text(log, "a", "x")


def test_normalized_schema_is_found(log: Log) -> None:
    assert look_up_text(log, "a", "y x", normalize=True) == ("a", 2)
    log.write(ConfigRecord("a", Config(normalize=True)))
    assert look_up_text(log, "a", "y x") == ("a", 2)


def test_deleted_schema_is_found_on_request(log: Log) -> None:
    with refused(RegistryErrorCode.SCHEMA_NOT_FOUND):
        look_up_text(log, "a", "x y z")
    assert look_up_text(log, "a", "x y z", deleted=True) == ("a", 3)


def test_schema_is_searched_in_all_contexts(log: Log) -> None:
    assert look_up_text(log, "c", "w") == (":.ctx:c", 1)
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        look_up_text(log, ":.other:c", "w")


def test_schema_of_an_unknown_subject_is_reported(log: Log) -> None:
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        look_up_text(log, "d", "x")


def test_invalid_schema_is_reported(log: Log) -> None:
    with refused(RegistryErrorCode.INVALID_SCHEMA):
        look_up_text(log, "a", "x!")


def test_empty_schema_is_not_found(log: Log) -> None:
    with refused(RegistryErrorCode.SCHEMA_NOT_FOUND):
        look_up_text(log, "a", "")


def test_unparsable_version_does_not_hide_others() -> None:
    log = Log()
    log.write(SchemaRecord("a", 1, 1, "x  y"), SchemaRecord("a", 2, 2, "broken!"))

    assert look_up_text(log, "a", "x y") == ("a", 1)


@pytest.mark.parametrize(
    ("requested", "stored", "expected"),
    [
        (None, "1", True),
        (None, "7", True),
        ("1", None, True),
        ("2", None, False),
        ("1", "1", True),
        ("1", "2", False),
    ],
)
def test_version_in_the_metadata_is_compared_as_confluent_does(
    requested: str | None, stored: str | None, expected: bool
) -> None:
    def with_version(number: str | None) -> Metadata | None:
        return None if number is None else Metadata(properties=(("confluent:version", number),))

    log = Log()
    # The second version keeps the look-up from taking the metadata of the first one.
    log.write(
        SchemaRecord("a", 1, 1, "x", metadata=with_version(stored)),
        SchemaRecord("a", 2, 2, "x y", metadata=Metadata(properties=(("k", "v"),))),
    )

    schema = request("x", metadata=with_version(requested))
    if expected:
        assert found(look_up(log.state, FakeParsers(), A, schema)) == ("a", 1)
    else:
        with refused(RegistryErrorCode.SCHEMA_NOT_FOUND):
            look_up(log.state, FakeParsers(), A, schema)


# Look-ups by metadata.


def test_newest_version_with_the_properties_is_found(log: Log) -> None:
    parsers = FakeParsers()

    assert found(latest_with_metadata(log.state, parsers, A, {"owner": "me"})) == ("a", 2)
    assert found(latest_with_metadata(log.state, parsers, A, {"major": "1"})) == ("a", 1)
    assert found(latest_with_metadata(log.state, parsers, A, {})) == ("a", 2)
    with refused(RegistryErrorCode.SCHEMA_NOT_FOUND):
        latest_with_metadata(log.state, parsers, A, {"owner": "you"})
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        latest_with_metadata(log.state, parsers, subject("d"), {})


# Compatibility.


def check(log: Log, text: str, version: int | None = None, **options: Any) -> dict[str, Any]:
    return check_compatibility(log.state, fake_tools(), A, request(text), version, **options)


def test_schema_is_compared_with_the_versions_of_the_level(log: Log) -> None:
    assert check(log, "y x") == {"is_compatible": True}
    assert check(log, "x") == {"is_compatible": False}
    log.write(ConfigRecord("a", Config(level=CompatibilityLevel.NONE)))
    assert check(log, "x") == {"is_compatible": True}


def test_schema_is_compared_with_one_version(log: Log) -> None:
    assert check(log, "x", 1) == {"is_compatible": True}
    assert check(log, "x", -1) == {"is_compatible": False}
    with refused(RegistryErrorCode.VERSION_NOT_FOUND):
        check(log, "x", 3)


def test_subject_without_versions_is_compatible_with_any_schema() -> None:
    assert check(Log(), "x") == {"is_compatible": True}
    assert check(Log(), "x", -1, verbose=True) == {"is_compatible": True, "messages": []}


def test_messages_are_returned_on_request(log: Log) -> None:
    assert check(log, "x", verbose=True) == {
        "is_compatible": False,
        "messages": ["version 2: y missing"],
    }
    assert check(log, "x!", verbose=True) == {
        "is_compatible": False,
        "messages": ["Invalid schema of type AVRO, details: bad word in 'x!'"],
    }
    with refused(RegistryErrorCode.INVALID_SCHEMA):
        check(log, "x!")


def test_a_missing_reference_is_an_error_of_the_version_that_is_compared() -> None:
    log = Log()
    log.write(
        SchemaRecord("a", 1, 1, "x", references=(Reference("n", "missing", 1),)),
        SchemaRecord("a", 2, 2, "x"),
    )
    assert check(log, "x") == {"is_compatible": True}
    log.write(ConfigRecord("a", Config(level=CompatibilityLevel.BACKWARD_TRANSITIVE)))
    with refused(RegistryErrorCode.INVALID_SCHEMA, "missing"):
        check(log, "x")
