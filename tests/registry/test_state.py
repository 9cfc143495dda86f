"""Tests of the state: the fold over the records of the schema topic, and its look-ups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.guids import guid_of
from odradek.registry.metadata import Metadata
from odradek.registry.modes import Mode
from odradek.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    Foreign,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
    SchemaTombstone,
)
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.schemas.parsed import Reference
from odradek.registry.state import Deleted, RegistryState
from odradek.registry.subjects import QualifiedSubject
from tests.registry import record_strategies
from tests.registry.visible_state import visible

SUBJECTS = ("a", "b", ":.ctx:a", ":.ctx:b", ":.other:a")


def folded(*records: Record | Foreign) -> RegistryState:
    state = RegistryState()
    for offset, record in enumerate(records):
        state.apply(record, offset, 1_000 + offset)
    return state


def subject(text: str) -> QualifiedSubject:
    return QualifiedSubject.parse(text)


def found(versions: list[SchemaVersion] | None) -> list[tuple[str, int]]:
    assert versions is not None
    return [(str(each.subject), each.version) for each in versions]


def test_new_state_is_empty() -> None:
    state = RegistryState()

    assert state.offset == -1
    assert state.subjects(":*:", Deleted.INCLUDE) == []
    assert state.contexts() == ["."]
    assert state.max_id(".") == 0
    assert state.by_id(1) is None


@given(st.lists(record_strategies.records | st.builds(Foreign, st.text()), max_size=30))
def test_any_prefix_of_records_gives_a_consistent_state(
    records: list[Record | Foreign],
) -> None:
    state = RegistryState()
    for offset, record in enumerate(records):
        state.apply(record, offset)
        assert state.offset == offset
        for version in state.schemas(":*:", Deleted.INCLUDE):
            assert state.version(version.subject, version.version, deleted=True) == version
            assert version in (state.versions_of_id(version.id, _context(version), Deleted.INCLUDE))
            assert version in state.with_content(version.subject.context, version.guid)
            assert version.id <= state.max_id(version.subject.context)
            assert version.version < state.next_version(version.subject)
            for reference in version.references:
                target = version.subject.relative(reference.subject)
                assert version in state.referrers(target, reference.version, deleted=True)
        visible(state, *SUBJECTS)


def _context(version: SchemaVersion) -> QualifiedSubject:
    return QualifiedSubject.of_context(version.subject.context)


@given(st.lists(record_strategies.records, max_size=20))
def test_foreign_records_change_nothing_but_the_offset(records: list[Record]) -> None:
    mixed: list[Record | Foreign] = []
    for record in records:
        mixed += [Foreign("unknown"), record]
    state = RegistryState()
    for offset, each in enumerate(mixed):
        state.apply(each, offset)
    expected = RegistryState()
    for offset, each in enumerate(records):
        expected.apply(each, offset)

    assert visible(state, *SUBJECTS) == visible(expected, *SUBJECTS)
    assert state.offset == len(mixed) - 1


@given(st.lists(record_strategies.schema_records, max_size=15), st.data())
def test_tombstones_of_all_versions_leave_no_schema(
    records: list[SchemaRecord], data: st.DataObject
) -> None:
    state = folded(*records)
    keys = [(str(each.subject), each.version) for each in state.schemas(":*:", Deleted.INCLUDE)]
    for text, version in data.draw(st.permutations(keys)):
        state.apply(SchemaTombstone(text, version), state.offset + 1)

    assert state.schemas(":*:", Deleted.INCLUDE) == []
    assert [state.by_id(schema_id) for schema_id in range(7)] == [None] * 7
    assert all(state.with_content(".", guid_of(r.text, (), None, None)) == [] for r in records)
    assert all(state.referrers(subject(r.subject), r.version, deleted=True) == [] for r in records)


def test_skipped_record_is_returned_with_its_reason() -> None:
    assert RegistryState().apply(Foreign("no key"), 0) == "no key"


def test_second_schema_with_an_id_is_skipped() -> None:
    state = folded(SchemaRecord("a", 1, 1, "x"))

    reason = state.apply(SchemaRecord("b", 1, 1, "y"), 1)

    assert reason == "id 1 of version 1 of subject 'b' belongs to another schema"
    assert state.subjects(":*:") == ["a"]
    assert state.offset == 1


def test_contexts_have_their_own_ids() -> None:
    state = folded(SchemaRecord("a", 1, 1, "x"), SchemaRecord(":.ctx:a", 1, 1, "y"))

    assert state.subjects(":*:") == [":.ctx:a", "a"]
    assert (state.max_id("."), state.max_id(".ctx")) == (1, 1)


# Versions.


def test_versions_are_ascending_and_the_latest_is_not_deleted() -> None:
    state = folded(
        SchemaRecord("a", 2, 2, "y"),
        SchemaRecord("a", 1, 1, "x"),
        SchemaRecord("a", 3, 3, "z", deleted=True),
    )

    assert found(state.versions(subject("a"))) == [("a", 1), ("a", 2)]
    assert found(state.versions(subject("a"), Deleted.INCLUDE)) == [("a", 1), ("a", 2), ("a", 3)]
    assert found(state.versions(subject("a"), Deleted.ONLY)) == [("a", 3)]
    latest = state.version(subject("a"), -1, deleted=True)
    assert latest is not None
    assert latest.version == 2
    assert state.next_version(subject("a")) == 4
    assert state.version(subject("a"), 3) is None
    assert state.version(subject("a"), 3, deleted=True) is not None


def test_delete_subject_hides_versions_up_to_its_number() -> None:
    state = folded(
        SchemaRecord("a", 1, 1, "x"),
        SchemaRecord("a", 2, 2, "y"),
        SchemaRecord("a", 3, 3, "z"),
        DeleteSubjectRecord("a", 2),
    )

    assert found(state.versions(subject("a"))) == [("a", 3)]
    hidden = state.version(subject("a"), 2, deleted=True)
    assert hidden is not None
    assert (hidden.deleted, hidden.timestamp_ms) == (True, 1_001)


def test_clear_subject_forgets_deleted_versions_of_its_context() -> None:
    state = folded(
        SchemaRecord("a", 1, 1, "x", deleted=True),
        SchemaRecord(":.ctx:a", 1, 1, "x", deleted=True),
        SchemaRecord(":.ctx:b", 1, 2, "y"),
        ClearSubjectRecord(":.ctx:"),
    )

    assert found(state.schemas(":*:", Deleted.INCLUDE)) == [(":.ctx:b", 1), ("a", 1)]


def test_a_replaced_version_leaves_no_trace() -> None:
    reference = Reference("n", "b", 1)
    state = folded(
        SchemaRecord("b", 1, 1, "x"),
        SchemaRecord("a", 1, 2, "y", references=(reference,)),
        SchemaRecord("a", 1, 3, "z"),
    )

    assert state.by_id(2) is None
    assert state.referrers(subject("b"), 1) == []
    assert state.max_id(".") == 3


def test_timestamp_is_that_of_the_record() -> None:
    version = folded(SchemaRecord("a", 1, 1, "x")).latest(subject("a"))

    assert version is not None
    assert version.timestamp_ms == 1_000


def test_stored_hash_is_the_guid() -> None:
    state = folded(SchemaRecord("a", 1, 1, "x", md5=bytes(range(16))))

    version = state.by_guid("00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert version is not None
    assert version.to_record() == SchemaRecord("a", 1, 1, "x", md5=bytes(range(16)))


# Subjects and contexts.


def test_subject_is_deleted_if_all_versions_are() -> None:
    state = folded(
        SchemaRecord("a", 1, 1, "x", deleted=True),
        SchemaRecord("a", 2, 2, "y"),
        SchemaRecord("b", 1, 3, "z", deleted=True),
    )

    assert state.subjects(":*:") == ["a"]
    assert state.subjects(":*:", Deleted.ONLY) == ["b"]
    assert state.subjects(":*:", Deleted.INCLUDE) == ["a", "b"]
    assert state.has_subject(subject("b"), deleted=True)
    assert not state.has_subject(subject("b"))


def test_context_has_the_subjects_of_its_context() -> None:
    state = folded(SchemaRecord(":.ctx:a", 1, 1, "x"))

    assert state.has_subject(subject(":.ctx:"))
    assert state.has_subject(subject(":.__GLOBAL:"))
    assert state.has_subject(None)
    assert not state.has_subject(subject(""))
    assert not state.has_subject(subject(":.other:"))


def test_contexts_are_sorted_after_the_default_context() -> None:
    state = folded(
        ContextRecord(".z"),
        ContextRecord(".b"),
        ContextRecord("."),
        ContextRecord(".c"),
        ContextRecord(".c", present=False),
    )

    assert state.contexts() == [".", ".b", ".z"]


def test_schemas_of_a_prefix_are_sorted_and_limited_to_the_latest() -> None:
    state = folded(
        SchemaRecord("ab", 2, 2, "y"),
        SchemaRecord("ab", 1, 1, "x"),
        SchemaRecord("aa", 1, 3, "z"),
        SchemaRecord("b", 1, 4, "w"),
    )

    assert found(state.schemas("a")) == [("aa", 1), ("ab", 1), ("ab", 2)]
    assert found(state.schemas("a", latest_only=True)) == [("aa", 1), ("ab", 2)]


def test_aliases_of_a_prefix_add_the_subjects_that_they_name() -> None:
    state = folded(
        SchemaRecord("b", 1, 1, "x"),
        ConfigRecord("a", Config(alias="b")),
        ConfigRecord("c", Config()),
    )

    assert found(state.schemas("a", with_aliases=True)) == [("b", 1)]
    assert state.aliases("a") == {subject("b"): ["a"]}
    assert state.resolve_alias(subject("a")) == subject("b")
    assert state.resolve_alias(subject("c")) == subject("c")


def test_alias_belongs_to_the_context_of_its_subject() -> None:
    state = folded(ConfigRecord(":.ctx:a", Config(alias="b")))

    assert state.resolve_alias(subject(":.ctx:a")) == subject(":.ctx:b")


# Ids and guids.


def in_contexts() -> RegistryState:
    return folded(
        ContextRecord(".ctx"),
        SchemaRecord("a", 1, 1, "x"),
        SchemaRecord("b", 1, 1, "x"),
        SchemaRecord(":.ctx:c", 1, 1, "y"),
        SchemaRecord(":.ctx:c", 2, 2, "x"),
    )


@pytest.mark.parametrize(
    ("schema_id", "text", "expected"),
    [
        (1, None, "a"),
        (1, "b", "b"),
        (1, "unknown", "a"),
        (1, "c", ":.ctx:c"),
        (1, ":.ctx:", ":.ctx:c"),
        (1, ":.ctx:c", ":.ctx:c"),
        (1, ":.ctx:unknown", None),
        (2, None, None),
        (2, "c", ":.ctx:c"),
        (3, "a", None),
    ],
)
def test_id_is_searched_in_the_contexts_of_its_subject(
    schema_id: int, text: str | None, expected: str | None
) -> None:
    version = in_contexts().by_id(schema_id, None if text is None else subject(text))

    assert (None if version is None else str(version.subject)) == expected


def test_versions_of_an_id_are_those_of_one_context() -> None:
    state = in_contexts()

    assert found(state.versions_of_id(1)) == [("a", 1), ("b", 1)]
    assert found(state.versions_of_id(1, subject(":.ctx:"))) == [(":.ctx:c", 1)]
    assert state.versions_of_id(9) is None


def test_id_of_a_deleted_version_can_be_read() -> None:
    state = folded(SchemaRecord("a", 1, 1, "x", deleted=True))

    assert state.by_id(1) is not None
    assert state.versions_of_id(1) == []


def test_id_prefers_a_version_that_is_not_deleted() -> None:
    state = folded(SchemaRecord("a", 1, 1, "x", deleted=True), SchemaRecord("b", 1, 1, "x"))

    version = state.by_id(1)
    assert version is not None
    assert str(version.subject) == "b"


def test_guid_has_an_id_in_each_context() -> None:
    state = in_contexts()
    guid = guid_of("x", (), None, None)

    assert state.ids_of_guid(guid) == [(".", 1), (".ctx", 2)]
    version = state.by_guid(guid)
    assert version is not None
    assert str(version.subject) == "a"
    assert state.by_guid("no uuid") is None
    assert state.ids_of_guid("no uuid") == []


def test_greatest_id_survives_the_removal_of_its_schema() -> None:
    state = folded(SchemaRecord("a", 1, 5, "x"), SchemaTombstone("a", 1))

    assert state.max_id(".") == 5
    assert state.noop() == NoopRecord(((".", 5),))
    assert folded(state.noop()).max_id(".") == 5
    assert folded(SchemaRecord("a", 1, 9, "x"), NoopRecord(((".", 5),))).max_id(".") == 9


# References.


def test_referrers_are_found_by_the_context_of_their_subject() -> None:
    state = folded(
        SchemaRecord(":.ctx:b", 1, 1, "x"),
        SchemaRecord(":.ctx:a", 1, 2, "y", references=(Reference("n", "b", 1),)),
        SchemaRecord("a", 1, 1, "y", references=(Reference("n", ":.ctx:b", 1),)),
        SchemaRecord("c", 1, 2, "z", references=(Reference("n", "b", 1),)),
    )

    assert found(state.referrers(subject(":.ctx:b"), 1)) == [("a", 1), (":.ctx:a", 1)]


def test_deleted_referrers_are_returned_on_request() -> None:
    state = folded(
        SchemaRecord("b", 1, 1, "x"),
        SchemaRecord("a", 1, 2, "y", references=(Reference("n", "b", 1),)),
        DeleteSubjectRecord("a", 1),
    )

    assert state.referrers(subject("b"), 1) == []
    assert found(state.referrers(subject("b"), 1, deleted=True)) == [("a", 1)]


# Configs and modes.


def test_config_of_a_subject_is_its_own_or_none() -> None:
    state = folded(ConfigRecord("a", Config(normalize=True)))

    assert state.config(subject("a")) == Config(normalize=True, level=CompatibilityLevel.BACKWARD)
    assert state.config(subject("b")) is None
    assert state.config(subject("")) == Config(level=CompatibilityLevel.BACKWARD)
    assert state.config(subject(":.__GLOBAL:")) == Config(level=CompatibilityLevel.BACKWARD)
    assert state.config(subject(":.ctx:")) is None


def level_in_scope(state: RegistryState, text: str) -> CompatibilityLevel | None:
    return state.config_in_scope(subject(text)).level


def test_config_is_inherited_from_context_and_global_context() -> None:
    records = [
        ConfigRecord(":.__GLOBAL:", Config(level=CompatibilityLevel.NONE)),
        ConfigRecord(None, Config(level=CompatibilityLevel.FULL)),
        ConfigRecord(":.ctx:", Config(level=CompatibilityLevel.FORWARD)),
        ConfigRecord(":.ctx:a", Config(level=CompatibilityLevel.BACKWARD)),
    ]

    state = folded(*records)

    assert level_in_scope(state, ":.ctx:a") is CompatibilityLevel.BACKWARD
    assert level_in_scope(state, ":.ctx:b") is CompatibilityLevel.FORWARD
    assert level_in_scope(state, ":.other:a") is CompatibilityLevel.NONE
    assert level_in_scope(state, "a") is CompatibilityLevel.FULL
    assert level_in_scope(folded(), "a") is CompatibilityLevel.BACKWARD


def test_own_config_inherits_settings_of_the_default_context_but_not_its_metadata() -> None:
    metadata = Metadata(properties=(("k", "v"),))
    state = folded(
        ConfigRecord(None, Config(normalize=True, group="g", override_metadata=metadata)),
        ConfigRecord("a", Config(level=CompatibilityLevel.FULL)),
    )

    expected = Config(normalize=True, group="g", level=CompatibilityLevel.FULL)
    assert state.config_in_scope(subject("a")) == expected


def test_deleted_config_is_inherited_again() -> None:
    state = folded(
        ConfigRecord("a", Config(level=CompatibilityLevel.NONE)), ConfigRecord("a", None)
    )

    assert state.own_config(subject("a")) is None
    assert level_in_scope(state, "a") is CompatibilityLevel.BACKWARD


def test_mode_is_inherited_from_context_and_global_context() -> None:
    state = folded(
        ModeRecord(":.__GLOBAL:", Mode.IMPORT),
        ModeRecord(":.ctx:", Mode.READONLY),
        ModeRecord(":.ctx:a", Mode.READWRITE),
    )

    assert state.mode_in_scope(subject(":.ctx:a")) is Mode.READWRITE
    assert state.mode_in_scope(subject(":.ctx:b")) is Mode.READONLY
    assert state.mode_in_scope(subject("a")) is Mode.IMPORT
    assert state.mode(subject("a")) is None
    assert state.mode(subject("")) is Mode.READWRITE
    assert folded().mode_in_scope(subject("a")) is Mode.READWRITE


@pytest.mark.parametrize("scope", [None, ":.__GLOBAL:"])
def test_readonly_override_comes_before_the_mode_of_a_subject(scope: str | None) -> None:
    state = folded(ModeRecord("a", Mode.READWRITE), ModeRecord(scope, Mode.READONLY_OVERRIDE))

    assert state.mode_in_scope(subject("a")) is Mode.READONLY_OVERRIDE


def test_subjects_with_a_mode_are_those_of_one_context() -> None:
    state = folded(
        ModeRecord(":.ctx:b", Mode.IMPORT),
        ModeRecord(":.ctx:", Mode.IMPORT),
        ModeRecord(":.ctx:a", Mode.IMPORT),
        ModeRecord("a", Mode.IMPORT),
    )

    assert state.subjects_with_mode(".ctx") == [subject(":.ctx:a"), subject(":.ctx:b")]


@given(
    st.lists(record_strategies.records, max_size=30),
    st.lists(record_strategies.records, max_size=30),
)
def test_records_do_not_change_a_snapshot(before: list[Record], after: list[Record]) -> None:
    state = folded(*before)
    snapshot = state.snapshot()
    for offset, record in enumerate(after, len(before)):
        state.apply(record, offset, 1_000 + offset)

    assert snapshot.offset == len(before) - 1
    assert visible(snapshot, *SUBJECTS) == visible(folded(*before), *SUBJECTS)
    assert visible(state, *SUBJECTS) == visible(folded(*before, *after), *SUBJECTS)
