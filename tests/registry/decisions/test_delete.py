"""Tests of soft and permanent deletions."""

from __future__ import annotations

import pytest

from odradek.registry.configs import Config
from odradek.registry.decisions.delete import delete_subject, delete_version
from odradek.registry.errors import RegistryErrorCode
from odradek.registry.modes import Mode
from odradek.registry.records import (
    ConfigRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    SchemaTombstone,
    decode,
    encode,
)
from odradek.registry.schemas.parsed import Reference
from odradek.registry.state import Deleted
from tests.registry.decisions.fakes import Log, refused, subject

A = subject("a")


@pytest.fixture
def log() -> Log:
    """Two versions of ``a``, and ``b``, which references version 1 of ``a``."""
    log = Log()
    log.write(
        SchemaRecord("a", 1, 1, "x"),
        SchemaRecord("a", 2, 2, "x y"),
        SchemaRecord("b", 1, 3, "z", references=(Reference("a", "a", 1),)),
    )
    return log


def numbers(log: Log, deleted: Deleted = Deleted.EXCLUDE) -> list[int]:
    return [version.version for version in log.state.versions(A, deleted)]


# A version.


def test_soft_deleted_version_is_stored_with_its_schema(log: Log) -> None:
    decision = delete_version(log.state, A, 2)

    assert decision.response == 2
    assert decision.records == (SchemaRecord("a", 2, 2, "x y", deleted=True),)
    log.execute(decision)
    assert numbers(log) == [1]
    assert numbers(log, Deleted.ONLY) == [2]


def test_soft_deletion_keeps_unknown_fields_and_the_stored_hash() -> None:
    log = Log()
    record = SchemaRecord("a", 1, 1, "x", md5=bytes(16), unknown={"new": 1})
    log.write(record)

    stored = delete_version(log.state, A, 1).records[0]

    assert isinstance(stored, SchemaRecord)
    assert (stored.md5, stored.unknown) == (bytes(16), {"new": 1})


def test_latest_version_is_deleted_by_minus_one(log: Log) -> None:
    assert log.execute(delete_version(log.state, A, -1)) == 2
    assert numbers(log) == [1]


def test_version_is_removed_after_its_soft_deletion(log: Log) -> None:
    with refused(RegistryErrorCode.VERSION_NOT_SOFT_DELETED, "Version 2 was not deleted first"):
        delete_version(log.state, A, 2, permanent=True)
    log.execute(delete_version(log.state, A, 2))

    decision = delete_version(log.state, A, 2, permanent=True)

    assert decision.records == (SchemaTombstone("a", 2),)
    log.execute(decision)
    assert numbers(log, Deleted.INCLUDE) == [1]


def test_second_soft_deletion_is_refused(log: Log) -> None:
    log.execute(delete_version(log.state, A, 2))

    with refused(RegistryErrorCode.VERSION_SOFT_DELETED, "Version 2 was soft deleted"):
        delete_version(log.state, A, 2)


def test_unknown_version_and_subject_are_distinguished(log: Log) -> None:
    with refused(RegistryErrorCode.VERSION_NOT_FOUND, "Version 9 not found."):
        delete_version(log.state, A, 9)
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND, "Subject 'c' not found."):
        delete_version(log.state, subject("c"), 1)


def test_referenced_version_is_not_deleted(log: Log) -> None:
    with refused(RegistryErrorCode.REFERENCE_EXISTS, "subject=a,version=1}"):
        delete_version(log.state, A, 1)


def test_version_with_a_deleted_referrer_is_hidden_but_not_removed(log: Log) -> None:
    log.execute(delete_subject(log.state, subject("b")))
    log.execute(delete_version(log.state, A, 1))

    with refused(RegistryErrorCode.REFERENCE_EXISTS):
        delete_version(log.state, A, 1, permanent=True)


def test_read_only_version_is_not_deleted(log: Log) -> None:
    log.write(ModeRecord("a", Mode.READONLY))

    with refused(RegistryErrorCode.OPERATION_NOT_PERMITTED, "is in read-only mode"):
        delete_version(log.state, A, 2)


def test_config_and_mode_are_removed_with_the_last_version() -> None:
    log = Log()
    log.write(
        SchemaRecord("a", 1, 1, "x", deleted=True),
        ModeRecord("a", Mode.READWRITE),
        ConfigRecord("a", Config(normalize=True)),
    )

    decision = delete_version(log.state, A, 1, permanent=True)

    assert decision.records == (
        SchemaTombstone("a", 1),
        NoopRecord(((".", 1),)),
        ModeRecord("a", None),
        ConfigRecord("a", None),
    )


# A subject.


def test_soft_deleted_subject_has_one_record(log: Log) -> None:
    log.execute(delete_subject(log.state, subject("b")))

    decision = delete_subject(log.state, A)

    assert decision.response == [1, 2]
    assert decision.records == (DeleteSubjectRecord("a", 2),)
    log.execute(decision)
    assert numbers(log) == []
    assert log.state.by_id(1) is not None


def test_record_of_a_soft_deletion_includes_versions_that_are_deleted_already(log: Log) -> None:
    log.execute(delete_subject(log.state, subject("b")))
    log.execute(delete_version(log.state, A, 2))

    decision = delete_subject(log.state, A)

    assert decision.response == [1]
    assert decision.records == (DeleteSubjectRecord("a", 2),)


def test_removed_subject_has_tombstones_from_the_last_version_to_the_first(log: Log) -> None:
    log.execute(delete_subject(log.state, subject("b")))
    log.execute(delete_subject(log.state, subject("b"), permanent=True))
    log.execute(delete_subject(log.state, A))

    decision = delete_subject(log.state, A, permanent=True)

    assert decision.response == [1, 2]
    assert decision.records == (SchemaTombstone("a", 2), SchemaTombstone("a", 1))
    log.execute(decision)
    assert not log.state.has_subject(A, deleted=True)


def test_subject_with_an_active_version_is_not_removed(log: Log) -> None:
    log.write(SchemaRecord("c", 1, 9, "c", deleted=True), SchemaRecord("c", 2, 10, "d"))

    with refused(RegistryErrorCode.SUBJECT_NOT_SOFT_DELETED):
        delete_subject(log.state, subject("c"), permanent=True)


def test_second_soft_deletion_of_a_subject_is_refused(log: Log) -> None:
    log.execute(delete_subject(log.state, subject("b")))

    with refused(RegistryErrorCode.SUBJECT_SOFT_DELETED, "Subject 'b' was soft deleted"):
        delete_subject(log.state, subject("b"))


def test_unknown_subject_is_not_deleted(log: Log) -> None:
    with refused(RegistryErrorCode.SUBJECT_NOT_FOUND):
        delete_subject(log.state, subject("c"))


def test_referenced_subject_is_not_deleted(log: Log) -> None:
    with refused(RegistryErrorCode.REFERENCE_EXISTS, "subject=a,version=1}"):
        delete_subject(log.state, A)


def test_references_within_a_subject_do_not_keep_it() -> None:
    log = Log()
    log.write(
        SchemaRecord("a", 1, 1, "x"),
        SchemaRecord("a", 2, 2, "y", references=(Reference("a", "a", 1),)),
    )

    log.execute(delete_subject(log.state, A))
    log.execute(delete_subject(log.state, A, permanent=True))

    assert log.state.schemas(":*:", Deleted.INCLUDE) == []


def test_read_only_subject_is_not_deleted(log: Log) -> None:
    log.write(ModeRecord(None, Mode.READONLY))

    with refused(RegistryErrorCode.OPERATION_NOT_PERMITTED):
        delete_subject(log.state, A)


@pytest.mark.parametrize(
    "key",
    [
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}',
        b'{"keytype":"SCHEMA","subject":":.:s","version":1,"magic":1}',
        b'{ "magic": 1, "keytype": "SCHEMA", "subject": "s", "version": 1 }',
    ],
)
@pytest.mark.parametrize("is_copied", [False, True])
def test_a_permanently_deleted_version_with_a_foreign_key_stays_deleted_after_a_compaction(
    key: bytes, is_copied: bool
) -> None:
    log = Log()
    record = decode(key, encode(SchemaRecord("s", 1, 5, "x"))[1])
    assert isinstance(record, SchemaRecord)
    log.write(record)
    if is_copied:  # a newer registry has written the version with its own key, too
        log.write(SchemaRecord("s", 1, 5, "x"))
    log.execute(delete_version(log.state, subject("s"), 1))
    log.execute(delete_version(log.state, subject("s"), 1, permanent=True))

    assert log.state.subjects(":*:", Deleted.INCLUDE) == []
    assert log.compacted().subjects(":*:", Deleted.INCLUDE) == []
