"""Removal of versions, without the loss of the ids that must not be assigned again. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.registry.records import ConfigRecord, ModeRecord, Record, SchemaTombstone
from odradek.registry.schema_version import SchemaVersion
from odradek.registry.state import RegistryState
from odradek.registry.subjects import QualifiedSubject


def removal(state: RegistryState, versions: Iterable[SchemaVersion]) -> tuple[Record, ...]:
    """Return the records that permanently delete versions.

    Log compaction removes the records of these versions. If one of them has the greatest id of its
    context, a further record keeps this id.
    """
    removed = tuple(versions)
    buried = tuple(record for each in removed for record in tombstones(state, each))
    return buried + kept_ids(state, removed)


def tombstones(state: RegistryState, version: SchemaVersion) -> tuple[Record, ...]:
    """Return the tombstones of a version: one for each key that its records have in the log."""
    subject, number = str(version.subject), version.version
    foreign = (SchemaTombstone(subject, number, key) for key in state.foreign_keys(version))
    return (SchemaTombstone(subject, number), *foreign)


def kept_ids(state: RegistryState, versions: Iterable[SchemaVersion]) -> tuple[Record, ...]:
    """Return the record that keeps the greatest ids, if one of the versions has one."""
    if any(each.id == state.max_id(each.subject.context) for each in versions):
        return (state.noop(),)
    return ()


def settings_removal(state: RegistryState, subject: QualifiedSubject) -> tuple[Record, ...]:
    """Return the records that delete the mode and the config of a subject, as far as they exist."""
    records: list[Record] = []
    if state.own_mode(subject) is not None:
        records.append(ModeRecord(str(subject), None))
    if state.own_config(subject) is not None:
        records.append(ConfigRecord(str(subject), None))
    return tuple(records)
