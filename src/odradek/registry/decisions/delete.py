"""Deletion of a version or of a subject. Pure.

A soft deletion hides versions. They keep their numbers, and their schemas can still be read by id.
A permanent deletion removes versions that are soft-deleted already.
"""

from __future__ import annotations

from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.permissions import require_writable
from odradek.registry.decisions.retention import removal, settings_removal
from odradek.registry.errors import (
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from odradek.registry.records import DeleteSubjectRecord, Record
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.state import Deleted, RegistryState
from odradek.registry.subjects import QualifiedSubject


def delete_version(
    state: RegistryState, subject: QualifiedSubject, version: int, *, permanent: bool = False
) -> Decision:
    """Delete a version of a subject.

    Args:
        state: The state.
        subject: The subject.
        version: The number, or -1 for the latest version.
        permanent: Whether to remove a soft-deleted version.

    Returns:
        The records, and the number of the version as the response.

    Raises:
        RegistryError: 40401 or 40402, it does not exist. 40406, it is soft-deleted already. 40407,
            it is not soft-deleted yet. 42205, the subject is read-only. 42206, it is referenced.
    """
    found = _existing(state, subject, version)
    if found.deleted and not permanent:
        raise version_soft_deleted(str(subject), version)
    require_writable(state, subject)
    if state.referrers(subject, found.version, deleted=permanent):
        raise reference_exists(str(subject), found.version)
    if not permanent:
        return Decision((found.soft_deleted().to_record(),), found.version)
    if not found.deleted:
        raise version_not_soft_deleted(str(subject), found.version)
    records = removal(state, [found])
    if len(state.versions(subject, Deleted.INCLUDE)) == 1:
        records += settings_removal(state, subject)
    return Decision(records, found.version)


def delete_subject(
    state: RegistryState, subject: QualifiedSubject, *, permanent: bool = False
) -> Decision:
    """Delete all versions of a subject.

    Args:
        state: The state.
        subject: The subject.
        permanent: Whether to remove the soft-deleted versions, with the config and the mode.

    Returns:
        The records, and the numbers of the versions in ascending order as the response.

    Raises:
        RegistryError: 40401, the subject does not exist. 40404, it is soft-deleted already. 40405,
            one of its versions is not soft-deleted yet. 42205, it is read-only. 42206, another
            subject references one of its versions.
    """
    everything = state.versions(subject, Deleted.INCLUDE)
    active = state.versions(subject)
    if not everything:
        raise subject_not_found(str(subject))
    if not permanent and not active:
        raise subject_soft_deleted(str(subject))
    require_writable(state, subject)
    versions = everything if permanent else active
    for version in versions:
        _require_deletable(state, version, permanent)
    numbers = [version.version for version in versions]
    if not permanent:
        return Decision(_soft_deletion(subject, everything), numbers)
    # References between versions of the subject lead from later to earlier ones.
    records = removal(state, reversed(versions)) + settings_removal(state, subject)
    return Decision(records, numbers)


def _existing(state: RegistryState, subject: QualifiedSubject, version: int) -> SchemaVersion:
    found = state.version(subject, version, deleted=True)
    if found is not None:
        return found
    if not state.has_subject(subject, deleted=True):
        raise subject_not_found(str(subject))
    raise version_not_found(version)


def _require_deletable(state: RegistryState, version: SchemaVersion, permanent: bool) -> None:
    referrers = state.referrers(version.subject, version.version, deleted=permanent)
    if any(each.subject != version.subject for each in referrers):
        raise reference_exists(str(version.subject), version.version)
    if permanent and not version.deleted:
        raise subject_not_soft_deleted(str(version.subject))


def _soft_deletion(
    subject: QualifiedSubject, everything: list[SchemaVersion]
) -> tuple[Record, ...]:
    """Return the record that deletes all versions up to the greatest one.

    Versions that are deleted already count: the record replaces an earlier record of this subject
    in a compacted log, and must delete the same versions.
    """
    return (DeleteSubjectRecord(str(subject), everything[-1].version),)
