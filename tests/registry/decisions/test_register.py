"""Tests of registrations: ids, versions, compatibility, modes, inherited metadata."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.decisions.delete import delete_subject, delete_version
from odradek.registry.decisions.register import register
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.guids import guid_of
from odradek.registry.json_value import INTEGER_MAX
from odradek.registry.metadata import Metadata
from odradek.registry.modes import Mode
from odradek.registry.records import (
    ConfigRecord,
    ContextRecord,
    ModeRecord,
    SchemaRecord,
    SchemaTombstone,
)
from odradek.registry.rules import Rule, RuleSet
from odradek.registry.schemas.parsed import TEXT_BYTES_MAX, Reference
from tests.registry.decisions.fakes import (
    FakeParsers,
    Log,
    fake_tools,
    refused,
    request,
    subject,
)

INVALID = RegistryErrorCode.INVALID_SCHEMA
NOT_PERMITTED = RegistryErrorCode.OPERATION_NOT_PERMITTED


def metadata(**properties: str) -> Metadata:
    return Metadata(properties=tuple(sorted(properties.items())))


class Registered(Log):
    """A log to which tests register schemas."""

    def register(self, name: str, text: str, **fields: Any) -> dict[str, Any]:
        """Register a schema and return the response."""
        options = {
            option: fields.pop(option)
            for option in ("normalize", "force", "format_name")
            if option in fields
        }
        decision = register(
            self.state, fake_tools(), subject(name), request(text, **fields), **options
        )
        response = self.execute(decision)
        assert isinstance(response, dict)
        return response

    def ids(self, *names: str) -> list[tuple[int, int]]:
        """Return id and version of the latest versions of subjects."""
        latest = [self.state.latest(subject(name)) for name in names]
        return [(each.id, each.version) for each in latest if each is not None]


def test_first_schema_has_id_and_version_1() -> None:
    log = Registered()

    response = log.register("a", "x  y")

    assert response == {
        "id": 1,
        "version": 1,
        "guid": guid_of("x y", (), None, None),
        "schemaType": "AVRO",
        "schema": "x y",
    }
    assert len(log.records) == 1


def test_same_schema_is_registered_once() -> None:
    log = Registered()
    log.register("a", "x")

    response = log.register("a", " x ")

    assert (response["id"], response["version"]) == (1, 1)
    assert response["ts"] == 1_700_000_000_000
    assert response["deleted"] is False
    assert len(log.records) == 1


def test_same_schema_has_the_same_id_in_all_subjects_of_a_context() -> None:
    log = Registered()
    log.register("a", "x")
    log.register("b", "w")
    log.register("b", "w x")

    log.register("b", "x", force=True)

    assert log.ids("a", "b") == [(1, 1), (1, 3)]


def test_kind_is_part_of_the_identity_of_a_schema() -> None:
    log = Registered()
    log.register("a", "x")

    log.register("b", "x", kind="JSON")

    assert log.ids("a", "b") == [(1, 1), (2, 1)]


def test_context_has_its_own_ids_and_a_record() -> None:
    log = Registered()
    log.register("a", "w")
    log.register("a", "w x")

    decision = register(log.state, fake_tools(), subject(":.ctx:a"), request("x"))

    assert [type(each) for each in decision.records] == [ContextRecord, SchemaRecord]
    log.execute(decision)
    assert log.ids(":.ctx:a") == [(1, 1)]
    log.register(":.ctx:b", "z")
    assert log.ids(":.ctx:b") == [(2, 1)]
    assert len(log.records) == 5


def test_normalized_schema_is_found_by_an_equivalent_one() -> None:
    log = Registered()
    log.register("a", "y x", normalize=True)

    assert log.register("a", "x y", normalize=True)["id"] == 1
    assert log.register("a", "x y")["schema"] == "x y"


def test_config_demands_normalization() -> None:
    log = Registered()
    log.write(ConfigRecord("a", Config(normalize=True)))

    assert log.register("a", "y x")["schema"] == "x y"


def test_incompatible_schema_is_refused() -> None:
    log = Registered()
    log.register("a", "x y")

    message = (
        'Schema being registered is incompatible with an earlier schema for subject "a",'
        " details: [version 1: y missing]"
    )
    with refused(409, message):
        log.register("a", "x")
    assert log.register("a", "x", force=True)["version"] == 2


def test_level_of_the_config_applies() -> None:
    log = Registered()
    log.register("a", "x y")
    log.register("a", "x y z")
    log.write(ConfigRecord("a", Config(level=CompatibilityLevel.NONE)))
    log.register("a", "z")
    log.write(ConfigRecord("a", Config(level=CompatibilityLevel.BACKWARD_TRANSITIVE)))

    with refused(409, "version 2: x y missing"):
        log.register("a", "z w")


def test_versions_of_another_group_are_not_compared() -> None:
    log = Registered()
    log.write(ConfigRecord("a", Config(group="major")))
    log.register("a", "x", metadata=metadata(major="1"))

    assert log.register("a", "y", metadata=metadata(major="2"))["version"] == 2
    with refused(409):
        log.register("a", "z", metadata=metadata(major="1"))


@pytest.mark.parametrize("text", ["", "  \n"])
def test_empty_schema_without_a_previous_version_is_refused(text: str) -> None:
    with refused(INVALID, "Empty schema"):
        Registered().register("a", text)


def test_empty_schema_has_the_text_of_the_previous_version() -> None:
    log = Registered()
    log.register("a", "x", kind="JSON")

    response = log.register("a", "", metadata=metadata(owner="me"))

    assert (response["version"], response["schema"], response["schemaType"]) == (2, "x", "JSON")


def test_invalid_schema_is_refused() -> None:
    with refused(INVALID, "Invalid schema of type AVRO, details: bad word in 'x!'"):
        Registered().register("a", "x!")


def test_unknown_kind_is_refused() -> None:
    with refused(INVALID, "Invalid schema type XML"):
        Registered().register("a", "x", kind="XML")


def test_new_schema_is_validated_but_a_stored_one_is_found() -> None:
    log = Registered()
    log.write(SchemaRecord("a", 1, 1, "x?"))

    assert log.register("a", "x?")["id"] == 1
    with refused(INVALID):
        log.register("b", "x?")
    log.write(ConfigRecord("b", Config(validate_new_schemas=False)))
    assert log.register("b", "x?")["id"] == 1


def test_too_large_schema_is_refused() -> None:
    with refused(RegistryErrorCode.SCHEMA_TOO_LARGE):
        Registered().register("a", "x" * (TEXT_BYTES_MAX + 1))


@pytest.mark.parametrize("name", ["__GLOBAL", "a\x00", ":.__GLOBAL:a"])
def test_invalid_subject_is_refused(name: str) -> None:
    with refused(RegistryErrorCode.INVALID_SUBJECT):
        Registered().register(name, "x")


# Versions.


def test_deleted_versions_keep_their_numbers() -> None:
    log = Registered()
    log.register("a", "x")
    log.register("a", "x y")
    log.execute(delete_subject(log.state, subject("a")))

    log.register("a", "z")

    assert log.ids("a") == [(3, 3)]


def test_deleted_schema_is_registered_again_with_its_id_and_replaces_the_old_version() -> None:
    log = Registered()
    log.register("a", "x")
    log.execute(delete_subject(log.state, subject("a")))

    decision = register(log.state, fake_tools(), subject("a"), request("x"))

    assert decision.records[0] == SchemaTombstone("a", 1)
    log.execute(decision)
    assert log.ids("a") == [(1, 2)]
    assert log.state.version(subject("a"), 1, deleted=True) is None


def test_referenced_version_is_not_replaced() -> None:
    log = Registered()
    log.register("a", "x")
    log.register("b", "y", references=(Reference("a", "a", 1),))
    log.execute(delete_subject(log.state, subject("b")))
    log.execute(delete_subject(log.state, subject("a")))

    log.register("a", "x")

    assert log.state.version(subject("a"), 1, deleted=True) is not None


def test_permanently_deleted_subject_starts_with_version_1_and_a_new_id() -> None:
    log = Registered()
    log.register("a", "x")
    log.execute(delete_subject(log.state, subject("a")))
    log.execute(delete_subject(log.state, subject("a"), permanent=True))

    log.register("a", "x")

    assert log.ids("a") == [(2, 1)]
    assert log.compacted().max_id(".") == 2


def test_greatest_id_is_not_assigned_twice_after_a_compaction() -> None:
    log = Registered()
    log.register("a", "w")
    log.register("a", "w x")
    log.execute(delete_version(log.state, subject("a"), 2))
    log.execute(delete_version(log.state, subject("a"), 2, permanent=True))

    assert log.compacted().max_id(".") == 2


def test_requested_version_must_be_the_next_one() -> None:
    log = Registered()
    log.register("a", "x")

    with refused(INVALID, "Version is not one more than previous version"):
        log.register("a", "x y", version=3)
    assert log.register("a", "x y", version=2)["version"] == 2


def test_requested_version_is_stored_in_the_metadata() -> None:
    log = Registered()

    response = log.register("a", "x", version=-1)

    assert response["metadata"] == {"properties": {"confluent:version": "1"}}
    assert log.register("a", "x", version=-1)["version"] == 1
    assert len(log.records) == 1


def test_version_in_the_metadata_is_updated() -> None:
    log = Registered()
    log.register("a", "x", version=1)

    response = log.register("a", "x y")

    assert response["metadata"] == {"properties": {"confluent:version": "2"}}


# References.


def test_references_resolve_in_the_context_of_the_subject() -> None:
    log = Registered()
    log.register(":.ctx:a", "x")

    response = log.register(":.ctx:b", "y", references=(Reference("a", "a", -1),))

    assert response["references"] == [{"name": "a", "subject": "a", "version": 1}]
    with refused(INVALID, 'No schema reference found for subject "a" and version 1'):
        log.register("b", "y", references=(Reference("a", "a", 1),))


def test_deleted_version_cannot_be_referenced_by_a_new_schema() -> None:
    log = Registered()
    log.register("a", "x")
    log.execute(delete_subject(log.state, subject("a")))

    with refused(INVALID, "No schema reference found"):
        log.register("b", "y", references=(Reference("a", "a", 1),))


def test_schema_with_the_text_of_its_references_is_found() -> None:
    log = Registered()
    log.register("a", "x")
    log.register("b", "y", references=(Reference("a", "a", 1),))

    response = log.register("b", "x y")

    assert (response["id"], response["version"], response["schema"]) == (2, 1, "y")


def test_schema_in_another_canonical_form_is_found() -> None:
    log = Registered()
    log.write(SchemaRecord("a", 1, 7, "x   y"))

    assert log.register("a", "x y")["id"] == 7


# Metadata and rules.


def test_metadata_and_rules_of_the_previous_version_are_kept() -> None:
    log = Registered()
    rule_set = RuleSet(domain=(Rule("r", type="CEL"),))
    log.register("a", "x", metadata=metadata(owner="me"), rule_set=rule_set)

    response = log.register("a", "x y")

    assert response["metadata"] == {"properties": {"owner": "me"}}
    assert response["ruleSet"] == rule_set.to_json()
    assert log.register("a", "x y")["version"] == 2
    assert len(log.records) == 2


def test_other_metadata_make_another_version() -> None:
    log = Registered()
    log.register("a", "x")

    response = log.register("a", "x", metadata=metadata(owner="me"))

    assert (response["id"], response["version"]) == (2, 2)


def test_defaults_and_overrides_of_the_config_are_merged() -> None:
    log = Registered()
    log.write(
        ConfigRecord(
            "a",
            Config(
                default_metadata=metadata(owner="default", team="default"),
                override_metadata=metadata(reviewed="yes"),
                default_rule_set=RuleSet(domain=(Rule("r", type="CEL"),)),
            ),
        )
    )

    response = log.register("a", "x", metadata=metadata(owner="me", reviewed="no"))

    assert response["metadata"] == {
        "properties": {"owner": "me", "reviewed": "yes", "team": "default"}
    }
    assert response["ruleSet"]["domainRules"][0]["name"] == "r"
    assert log.register("a", "x", metadata=metadata(owner="me"))["version"] == 1


# Modes.


@pytest.mark.parametrize("mode", [Mode.READONLY, Mode.READONLY_OVERRIDE])
def test_read_only_subject_returns_existing_schemas_only(mode: Mode) -> None:
    log = Registered()
    log.register("a", "x")
    log.write(ModeRecord("a", mode))

    assert log.register("a", "x")["id"] == 1
    with refused(NOT_PERMITTED, "Subject a in context  is in read-only mode"):
        log.register("a", "x y")


def test_id_is_refused_outside_of_import_mode() -> None:
    with refused(NOT_PERMITTED, "Subject :.ctx:a in context :.ctx: is not in import mode"):
        Registered().register(":.ctx:a", "x", id=5)


def test_import_mode_demands_an_id() -> None:
    log = Registered()
    log.write(ModeRecord("a", Mode.IMPORT))

    with refused(NOT_PERMITTED, "Subject a in context  is not in read-write mode"):
        log.register("a", "x")


def test_import_keeps_ids_and_versions_without_compatibility() -> None:
    log = Registered()
    log.write(ModeRecord(None, Mode.IMPORT))
    log.register("a", "x y", id=10, version=3)

    response = log.register("a", "z", id=4, version=1)

    assert (response["id"], response["version"]) == (4, 1)
    log.write(ModeRecord(None, None))
    log.register("b", "new")
    assert log.ids("a", "b") == [(10, 3), (11, 1)]


def test_import_does_not_inherit_metadata() -> None:
    log = Registered()
    log.register("a", "x", metadata=metadata(owner="me"))
    log.write(ModeRecord("a", Mode.IMPORT))

    assert "metadata" not in log.register("a", "y", id=10, version=2)


def test_repeated_import_writes_nothing() -> None:
    log = Registered()
    log.write(ModeRecord("a", Mode.IMPORT))
    log.register("a", "x", id=10, version=3)
    written = len(log.records)

    assert log.register("a", "x", id=10, version=3)["version"] == 3
    assert log.register("a", "x", id=10)["version"] == 3
    assert len(log.records) == written


def test_no_schema_is_registered_after_the_greatest_id() -> None:
    log = Registered()
    log.write(SchemaRecord("a", 1, INTEGER_MAX, "x"))

    with refused(NOT_PERMITTED, "no id left"):
        log.register("b", "y")
    assert log.register("b", "x")["id"] == INTEGER_MAX
    assert log.register(":.other:b", "y")["id"] == 1


def test_no_schema_is_registered_after_the_greatest_version() -> None:
    log = Registered()
    log.write(SchemaRecord("a", INTEGER_MAX, 1, "x"))

    with refused(RegistryErrorCode.INVALID_VERSION, "2147483648"):
        log.register("a", "x y")
    assert log.ids("a") == [(1, INTEGER_MAX)]


def test_import_refuses_the_id_of_another_schema() -> None:
    log = Registered()
    log.register("a", "x")
    log.write(ModeRecord("b", Mode.IMPORT))

    with refused(NOT_PERMITTED, "Overwrite new schema with id 1 in context  is not permitted."):
        log.register("b", "y", id=1, version=1)


def test_import_replaces_a_version() -> None:
    log = Registered()
    log.write(ModeRecord("a", Mode.IMPORT))
    log.register("a", "x", id=10, version=1)

    log.register("a", "y", id=3, version=1)

    assert log.ids("a") == [(3, 1)]
    assert log.compacted().max_id(".") == 10


def test_format_of_the_response_is_that_of_the_request() -> None:
    log = Registered()
    log.register("a", "x")
    references = (Reference("a", "a", 1),)

    response = log.register("b", "y", references=references, format_name="resolved")
    unknown = log.register("b", "y", references=references, format_name="unknown")

    assert response["schema"] == "x y"
    assert unknown["schema"] == "y"


def test_a_registration_parses_no_earlier_version_without_a_comparison() -> None:
    log = Registered()
    for number in range(5):
        log.write(SchemaRecord("a", number + 1, number + 1, f"x{number}"))
    log.write(ConfigRecord(None, Config(level=CompatibilityLevel.NONE)))
    parsers = FakeParsers()
    tools = SchemaTools(parsers, fake_tools().incompatibilities)

    log.execute(register(log.state, tools, subject("a"), request("y")))

    assert set(parsers.parsed) == {"y"}
    assert set(parsers.digested) == {f"x{number}" for number in range(5)}
