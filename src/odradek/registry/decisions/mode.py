"""Modes of subjects and contexts: ``/mode`` and ``/mode/{subject}``. Pure.

The subject of the default context stands for the path without a subject.
"""

from __future__ import annotations

from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.permissions import require_valid
from odradek.registry.decisions.retention import removal
from odradek.registry.errors import (
    bad_request,
    invalid_mode,
    mode_not_configured,
    operation_not_permitted,
    reference_exists,
    subject_not_found,
)
from odradek.registry.json_value import JsonFields, JsonObject, JsonValue, WrongType
from odradek.registry.modes import Mode
from odradek.registry.records import ClearSubjectRecord, ModeRecord, Record
from odradek.registry.state import Deleted, RegistryState
from odradek.registry.subjects import QualifiedSubject


def get_mode(
    state: RegistryState, subject: QualifiedSubject, *, default_to_global: bool = False
) -> JsonObject:
    """Return the mode of a subject or context.

    Args:
        state: The state.
        subject: The subject or context.
        default_to_global: Whether to return the mode that applies, if it has none of its own.

    Raises:
        RegistryError: 40409, it has no mode.
    """
    mode = state.mode_in_scope(subject) if default_to_global else state.mode(subject)
    if mode is None:
        raise mode_not_configured(str(subject))
    return {"mode": mode.value}


def update_mode(
    state: RegistryState, subject: QualifiedSubject, body: JsonValue, *, force: bool = False
) -> Decision:
    """Set the mode of a subject or context.

    The change to IMPORT requires that no schemas exist. It removes schemas that are soft-deleted.

    Args:
        state: The state.
        subject: The subject or context.
        body: ``{"mode": name}``. Null deletes the mode.
        force: Whether to change to IMPORT in spite of existing schemas, and to keep all of them.

    Returns:
        The records, and the body as the response.

    Raises:
        RegistryError: 400, the body has a wrong type. 42204, the mode does not exist. 42205,
            schemas exist. 42206, a soft-deleted schema is referenced. 42208, the name of the
            subject is not valid.
    """
    require_valid(subject, for_settings=True)
    name, mode = _parse(body)
    if mode is Mode.FORWARD and not subject.is_global_context:
        raise invalid_mode("Forward mode only supported on global level")
    records: tuple[Record, ...] = ()
    is_change = state.mode_in_scope(subject) is not Mode.IMPORT
    if mode is Mode.IMPORT and is_change and not force:
        records = _clearing(state, None if subject.is_default_context else subject)
    return Decision((*records, ModeRecord(subject.record_name, mode)), {"mode": name})


def delete_mode(
    state: RegistryState, subject: QualifiedSubject, *, recursive: bool = False
) -> Decision:
    """Delete the mode of a subject or context.

    Args:
        state: The state.
        subject: The subject or context.
        recursive: Whether to delete also the modes of all subjects of a context.

    Returns:
        The records, and the deleted mode as the response.

    Raises:
        RegistryError: 40401, it has no mode, unless `recursive`.
    """
    mode = state.mode(subject)
    if mode is None and not recursive:
        raise subject_not_found(str(subject))
    deleted = [subject] if state.own_mode(subject) is not None else []
    if recursive and subject.is_context:
        deleted += state.subjects_with_mode(subject.context)
    records = tuple(ModeRecord(each.record_name, None) for each in deleted)
    return Decision(records, {} if mode is None else {"mode": mode.value})


def _parse(body: JsonValue) -> tuple[str | None, Mode | None]:
    try:
        fields = JsonFields(body, "body")
        name = fields.text("mode")
    except WrongType as error:
        raise bad_request(str(error)) from error
    if "mode" not in fields:
        raise invalid_mode()
    mode = None if name is None else Mode.parse(name)
    if mode is None and name is not None:
        raise invalid_mode()
    return name, mode


def _clearing(state: RegistryState, subject: QualifiedSubject | None) -> tuple[Record, ...]:
    """Return the records that remove the soft-deleted versions of a subject or context."""
    if state.has_subject(subject):
        raise operation_not_permitted("Cannot import since found existing subjects")
    versions = [
        version
        for matching in state.matching_subjects(subject)
        for version in state.versions(matching, Deleted.INCLUDE)
    ]
    for version in versions:
        if state.referrers(version.subject, version.version, deleted=True):
            raise reference_exists(str(version.subject), version.version)
    cleared = ClearSubjectRecord(None if subject is None else str(subject))
    return (*removal(state, versions), cleared)
