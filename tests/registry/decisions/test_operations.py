"""Any sequence of requests: compaction does not change the state, and ids stay unique."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.decisions.config import delete_config, update_config
from odradek.registry.decisions.contexts import delete_context
from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.delete import delete_subject, delete_version
from odradek.registry.decisions.mode import delete_mode, update_mode
from odradek.registry.decisions.register import register
from odradek.registry.errors import RegistryError
from odradek.registry.guids import guid_of
from odradek.registry.records import SchemaRecord
from odradek.registry.schemas.parsed import Reference
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject
from tests.registry.decisions.fakes import Log, fake_tools, request, subject
from tests.registry.visible_state import visible

SUBJECTS = ("a", "b", ":.ctx:a")

Operation: TypeAlias = Callable[[RegistryState], Decision]

names = st.sampled_from(SUBJECTS)
scopes = st.sampled_from([*SUBJECTS, "", ":.ctx:"])
texts = st.sampled_from(["x", "x y", "x y z", "w"])
numbers = st.integers(1, 3)
references = st.lists(
    st.builds(Reference, st.just("n"), st.sampled_from(["a", "b"]), numbers | st.just(-1)),
    max_size=1,
).map(tuple)


@st.composite
def registrations(draw: st.DrawFn) -> Operation:
    name = draw(names)
    schema = request(draw(texts), references=draw(references))
    force = draw(st.booleans())
    return lambda state: register(state, fake_tools(), subject(name), schema, force=force)


@st.composite
def imports(draw: st.DrawFn) -> Operation:
    name = draw(names)
    schema = request(draw(texts), id=draw(st.integers(0, 9)), version=draw(numbers))
    return lambda state: register(state, fake_tools(), subject(name), schema)


@st.composite
def deletions(draw: st.DrawFn) -> Operation:
    name, number, permanent = draw(names), draw(st.none() | numbers), draw(st.booleans())
    if number is None:
        return lambda state: delete_subject(state, subject(name), permanent=permanent)
    return lambda state: delete_version(state, subject(name), number, permanent=permanent)


@st.composite
def settings_changes(draw: st.DrawFn) -> Operation:
    scope = draw(scopes)
    mode = draw(st.sampled_from(["IMPORT", "READWRITE", "READONLY", None]))
    level = draw(st.sampled_from(["NONE", "BACKWARD"]))
    force = draw(st.booleans())
    return draw(
        st.sampled_from(
            [
                lambda state: update_mode(state, subject(scope), {"mode": mode}, force=force),
                lambda state: delete_mode(state, subject(scope), recursive=force),
                lambda state: update_config(state, subject(scope), {"compatibility": level}),
                lambda state: delete_config(state, subject(scope)),
                lambda state: delete_context(state, ".ctx"),
            ]
        )
    )


operations = st.lists(registrations() | imports() | deletions() | settings_changes(), max_size=16)


def execute(log: Log, operation: Operation) -> Decision | None:
    """Execute a request. Return its decision, or None if it was refused."""
    try:
        decision = operation(log.state)
    except RegistryError:
        return None
    log.execute(decision)
    return decision


@given(operations)
def test_compaction_does_not_change_the_state(requests: list[Operation]) -> None:
    log = Log()
    for operation in requests:
        execute(log, operation)
        assert visible(log.compacted(), *SUBJECTS) == visible(log.state, *SUBJECTS)


@given(operations, st.lists(st.booleans(), min_size=16, max_size=16))
def test_no_id_is_assigned_twice_in_spite_of_compactions(
    requests: list[Operation], compactions: list[bool]
) -> None:
    log = Log()
    contents: dict[tuple[str, int], str] = {}
    for operation, is_compacted in zip(requests, compactions, strict=False):
        next_ids = {context: log.state.max_id(context) + 1 for context in (".", ".ctx")}
        decision = execute(log, operation)
        for record in () if decision is None else decision.records:
            if isinstance(record, SchemaRecord):
                context = QualifiedSubject.parse(record.subject).context
                guid = guid_of(record.text, record.references, record.metadata, record.rule_set)
                if record.id == next_ids[context]:
                    assert (context, record.id) not in contents
                contents[context, record.id] = guid
        if is_compacted:
            log.compact()


@given(operations)
def test_versions_with_one_id_have_one_schema(requests: list[Operation]) -> None:
    log = Log()
    for operation in requests:
        execute(log, operation)
        for schema_id in range(12):
            for context in (".", ".ctx"):
                in_context = QualifiedSubject.of_context(context)
                versions = log.state.versions_of_id(schema_id, in_context) or []
                assert len({(each.kind, each.text, each.references) for each in versions}) <= 1


@given(operations)
def test_referenced_versions_exist(requests: list[Operation]) -> None:
    log = Log()
    for operation in requests:
        execute(log, operation)
        for name in SUBJECTS:
            for version in log.state.versions(subject(name)):
                for reference in version.references:
                    target = version.subject.relative(reference.subject)
                    assert log.state.version(target, reference.version, deleted=True) is not None
