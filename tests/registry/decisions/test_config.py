"""Tests of changes of configs."""

from __future__ import annotations

import pytest

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.decisions.config import delete_config, get_config, update_config
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.json_value import JsonValue
from odradek.registry.modes import Mode
from odradek.registry.records import ConfigRecord, ModeRecord
from tests.registry.decisions.fakes import Log, refused, subject

A, TOP = subject("a"), subject("")


def test_config_is_set_and_returned() -> None:
    log = Log()

    decision = update_config(log.state, A, {"compatibility": "full", "future": 1})

    assert decision.response == {"compatibility": "FULL"}
    assert decision.records == (ConfigRecord("a", Config(level=CompatibilityLevel.FULL)),)
    log.execute(decision)
    assert get_config(log.state, A) == {"compatibilityLevel": "FULL"}


def test_config_of_the_default_context_has_no_subject() -> None:
    log = Log()

    decision = update_config(log.state, TOP, {"compatibility": "NONE"})

    assert decision.records == (ConfigRecord(None, Config(level=CompatibilityLevel.NONE)),)
    log.execute(decision)
    assert get_config(log.state, TOP) == {"compatibilityLevel": "NONE"}
    assert get_config(log.state, A, default_to_global=True) == {"compatibilityLevel": "NONE"}


def test_other_settings_are_kept_and_null_deletes_one() -> None:
    log = Log()
    body: JsonValue = {"normalize": True, "alias": "b", "compatibilityGroup": "major"}
    log.execute(update_config(log.state, A, body))

    response = log.execute(update_config(log.state, A, {"compatibility": "NONE", "alias": None}))

    assert response == {"normalize": True, "compatibility": "NONE", "compatibilityGroup": "major"}


def test_metadata_and_rules_of_a_config_are_returned() -> None:
    log = Log()
    rule = {"name": "r", "type": "CEL", "mode": "READ", "kind": "CONDITION", "disabled": False}
    body: JsonValue = {
        "defaultMetadata": {"properties": {"k": "v"}, "tags": {"a": ["y", "x", "x"]}},
        "overrideRuleSet": {"domainRules": [rule]},
    }

    assert log.execute(update_config(log.state, A, body)) == {
        "defaultMetadata": {"properties": {"k": "v"}, "tags": {"a": ["x", "y"]}},
        "overrideRuleSet": {"domainRules": [rule]},
    }


def test_missing_config_is_reported() -> None:
    log = Log()

    with refused(
        RegistryErrorCode.COMPATIBILITY_NOT_CONFIGURED,
        "Subject 'a' does not have subject-level compatibility configured",
    ):
        get_config(log.state, A)
    assert get_config(log.state, A, default_to_global=True) == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"compatibility": "SOME"}, RegistryErrorCode.INVALID_COMPATIBILITY_LEVEL),
        ({"normalize": "maybe"}, RegistryErrorCode.BAD_REQUEST),
        ({"defaultMetadata": 1}, RegistryErrorCode.BAD_REQUEST),
        ([], RegistryErrorCode.BAD_REQUEST),
        (None, RegistryErrorCode.BAD_REQUEST),
        (
            {"defaultRuleSet": {"domainRules": [{"name": "r"}]}},
            RegistryErrorCode.INVALID_RULE_SET,
        ),
        (
            {"overrideRuleSet": {"migrationRules": [{"name": "r", "type": "T", "mode": "READ"}]}},
            RegistryErrorCode.INVALID_RULE_SET,
        ),
    ],
)
def test_invalid_config_is_refused(body: JsonValue, code: int) -> None:
    with refused(code):
        update_config(Log().state, A, body)


def test_config_of_an_invalid_subject_is_refused() -> None:
    with refused(RegistryErrorCode.INVALID_SUBJECT):
        update_config(Log().state, subject("__EMPTY"), {})
    assert update_config(Log().state, subject(":.__GLOBAL:"), {"normalize": True}).records


def test_config_of_a_read_only_subject_is_kept() -> None:
    log = Log()
    log.write(ConfigRecord(None, Config(normalize=True)), ModeRecord(None, Mode.READONLY))

    with refused(RegistryErrorCode.OPERATION_NOT_PERMITTED, "Subject null in context  is in"):
        update_config(log.state, TOP, {})
    with refused(RegistryErrorCode.OPERATION_NOT_PERMITTED):
        delete_config(log.state, TOP)


def test_deleted_config_is_returned() -> None:
    log = Log()
    log.execute(update_config(log.state, A, {"compatibility": "FULL"}))

    decision = delete_config(log.state, A)

    assert decision.response == {"compatibilityLevel": "FULL"}
    log.execute(decision)
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        delete_config(log.state, A)


def test_deletion_of_the_default_config_writes_nothing() -> None:
    decision = delete_config(Log().state, TOP)

    assert decision.records == ()
    assert decision.response == {"compatibilityLevel": "BACKWARD"}
