"""The results of all look-ups of a state, to compare states."""

from __future__ import annotations

from odradek.registry.state import Deleted, RegistryState
from odradek.registry.subjects import QualifiedSubject

IDS = range(12)
"""The ids that tests use."""


def visible(state: RegistryState, *subjects: str) -> dict[str, object]:
    """Return the results of the look-ups of a state.

    Args:
        state: The state.
        *subjects: The subjects of the test.
    """
    parsed = [QualifiedSubject.parse(text) for text in subjects]
    contexts = sorted({each.context for each in parsed})
    scopes = [*parsed, *map(QualifiedSubject.of_context, contexts)]
    versions = state.schemas(":*:", Deleted.INCLUDE)
    return {
        "subjects": {each: state.subjects(":*:", each) for each in Deleted},
        "versions": versions,
        "latest": [state.latest(each) for each in parsed],
        "next versions": [state.next_version(each) for each in parsed],
        "by id": [state.by_id(schema_id, each) for schema_id in IDS for each in scopes],
        "versions of id": [
            state.versions_of_id(schema_id, each, Deleted.INCLUDE)
            for schema_id in IDS
            for each in scopes
        ],
        "by guid": [(state.by_guid(each.guid), state.ids_of_guid(each.guid)) for each in versions],
        "referrers": [
            state.referrers(each.subject, each.version, deleted=True) for each in versions
        ],
        "configs": [(state.config(each), state.config_in_scope(each)) for each in scopes],
        "modes": [(state.mode(each), state.mode_in_scope(each)) for each in scopes],
        "contexts": state.contexts(),
        "max ids": [state.max_id(context) for context in contexts],
    }
