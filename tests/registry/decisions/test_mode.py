"""Tests of changes of modes."""

from __future__ import annotations

import pytest

from odradek.registry.decisions.mode import delete_mode, get_mode, update_mode
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.json_value import JsonValue
from odradek.registry.modes import Mode
from odradek.registry.records import (
    ClearSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    SchemaTombstone,
)
from odradek.registry.schemas.parsed import Reference
from odradek.registry.state import Deleted
from tests.registry.decisions.fakes import Log, refused, subject

A, TOP = subject("a"), subject("")


def test_mode_is_set_and_returned() -> None:
    log = Log()

    decision = update_mode(log.state, A, {"mode": "readonly"})

    assert decision.response == {"mode": "readonly"}
    assert decision.records == (ModeRecord("a", Mode.READONLY),)
    log.execute(decision)
    assert get_mode(log.state, A) == {"mode": "READONLY"}


def test_mode_of_the_default_context_has_no_subject() -> None:
    log = Log()

    log.execute(update_mode(log.state, TOP, {"mode": "READONLY"}))

    assert log.state.mode(TOP) is Mode.READONLY
    assert get_mode(log.state, A, default_to_global=True) == {"mode": "READONLY"}
    assert log.records[0][0] == b'{"keytype":"MODE","magic":0}'


def test_null_deletes_a_mode() -> None:
    log = Log()
    log.execute(update_mode(log.state, A, {"mode": "READONLY"}))

    assert log.execute(update_mode(log.state, A, {"mode": None})) == {"mode": None}
    assert log.state.mode(A) is None


def test_missing_mode_is_reported() -> None:
    with refused(RegistryErrorCode.MODE_NOT_CONFIGURED):
        get_mode(Log().state, A)
    assert get_mode(Log().state, TOP) == {"mode": "READWRITE"}


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("a", {"mode": "WRITE"}, RegistryErrorCode.INVALID_MODE),
        ("a", {}, RegistryErrorCode.INVALID_MODE),
        ("a", {"mode": "FORWARD"}, RegistryErrorCode.INVALID_MODE),
        ("a", {"mode": []}, RegistryErrorCode.BAD_REQUEST),
        ("a", "IMPORT", RegistryErrorCode.BAD_REQUEST),
        ("__GLOBAL", {"mode": "IMPORT"}, RegistryErrorCode.INVALID_SUBJECT),
    ],
)
def test_invalid_mode_is_refused(name: str, body: JsonValue, code: int) -> None:
    with refused(code):
        update_mode(Log().state, subject(name), body)


def test_forward_mode_is_for_the_global_context() -> None:
    decision = update_mode(Log().state, subject(":.__GLOBAL:"), {"mode": "FORWARD"})

    assert decision.records == (ModeRecord(":.__GLOBAL:", Mode.FORWARD),)


@pytest.mark.parametrize("name", ["a", "", ":.__GLOBAL:"])
def test_import_mode_is_refused_where_schemas_exist(name: str) -> None:
    log = Log()
    log.write(SchemaRecord("a", 1, 1, "x"))

    with refused(
        RegistryErrorCode.OPERATION_NOT_PERMITTED,
        "Cannot import since found existing subjects",
    ):
        update_mode(log.state, subject(name), {"mode": "IMPORT"})


def test_import_mode_is_forced() -> None:
    log = Log()
    log.write(SchemaRecord("a", 1, 1, "x"))

    decision = update_mode(log.state, A, {"mode": "IMPORT"}, force=True)

    assert decision.records == (ModeRecord("a", Mode.IMPORT),)


def test_import_mode_removes_deleted_schemas_of_its_context() -> None:
    log = Log()
    log.write(
        SchemaRecord(":.ctx:a", 1, 1, "x", deleted=True),
        SchemaRecord(":.ctx:b", 1, 2, "y", deleted=True),
        SchemaRecord("a", 1, 1, "x", deleted=True),
    )

    decision = update_mode(log.state, subject(":.ctx:"), {"mode": "IMPORT"})

    assert decision.records == (
        SchemaTombstone(":.ctx:a", 1),
        SchemaTombstone(":.ctx:b", 1),
        NoopRecord(((".", 1), (".ctx", 2))),
        ClearSubjectRecord(":.ctx:"),
        ModeRecord(":.ctx:", Mode.IMPORT),
    )
    log.execute(decision)
    assert log.state.subjects(":*:", Deleted.INCLUDE) == ["a"]
    assert log.state.max_id(".ctx") == 2


def test_import_mode_keeps_deleted_schemas_that_are_referenced() -> None:
    log = Log()
    log.write(
        SchemaRecord("a", 1, 1, "x", deleted=True),
        SchemaRecord("b", 1, 2, "y", references=(Reference("a", "a", 1),), deleted=True),
    )

    with refused(RegistryErrorCode.REFERENCE_EXISTS, "subject=a,version=1}"):
        update_mode(log.state, A, {"mode": "IMPORT"})


def test_second_change_to_import_mode_keeps_imported_schemas() -> None:
    log = Log()
    log.execute(update_mode(log.state, A, {"mode": "IMPORT"}))
    log.write(SchemaRecord("a", 1, 1, "x"))

    log.execute(update_mode(log.state, A, {"mode": "IMPORT"}))

    assert log.state.has_subject(A)


def test_deleted_mode_is_returned() -> None:
    log = Log()
    log.execute(update_mode(log.state, A, {"mode": "READONLY"}))

    assert log.execute(delete_mode(log.state, A)) == {"mode": "READONLY"}
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        delete_mode(log.state, A)


def test_deletion_of_the_default_mode_writes_nothing() -> None:
    decision = delete_mode(Log().state, TOP)

    assert (decision.records, decision.response) == ((), {"mode": "READWRITE"})


def test_modes_of_a_context_are_deleted_with_those_of_its_subjects() -> None:
    log = Log()
    log.write(
        ModeRecord(":.ctx:a", Mode.READONLY),
        ModeRecord(":.ctx:b", Mode.READONLY),
        ModeRecord("a", Mode.READONLY),
    )

    decision = delete_mode(log.state, subject(":.ctx:"), recursive=True)

    assert decision.records == (ModeRecord(":.ctx:a", None), ModeRecord(":.ctx:b", None))
    assert decision.response == {}
