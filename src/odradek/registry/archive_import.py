"""Writes an archive into a registry, with the same ids and versions.

The import first compares the archive with the registry, and refuses all of it if one id or version
belongs to another schema there. It then registers the missing versions. A version is registered
after its references and after earlier versions of its subject.

Only a subject in the mode IMPORT accepts ids. The import sets this mode for one subject at a time.
A file beside the index has the subject and its previous mode until the mode is restored. After a
run that was killed, the next run restores the mode from this file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import groupby
from pathlib import Path

from odradek.registry.archive import Archive, ArchivedSubject, ArchivedVersion
from odradek.registry.archive_export import alias_of, in_parallel, own_versions
from odradek.registry.client import (
    RegistryClient,
    RegistryRefusal,
    RegistryUnavailable,
    StoredSchema,
    UnexpectedResponse,
)
from odradek.registry.schemas.parsed import SchemaKind
from odradek.registry.subjects import QualifiedSubject

IMPORT_MODE = "IMPORT"
MODE_FILE = "import-mode.json"
"""The file with the previous mode of the subject that is being imported."""

Notify = Callable[[str], None]


class ImportConflict(Exception):
    """The registry has other schemas under ids or versions of the archive."""

    def __init__(self, conflicts: list[str]) -> None:
        super().__init__("; ".join(conflicts))
        self.conflicts = conflicts


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The difference between an archive and a registry.

    Attributes:
        missing: The versions to register, in this order.
        deletions: The versions to delete softly after all registrations, in this order.
        present: The number of versions that the registry has.
        settings: The subjects whose config or mode is to be set.
        notices: Differences that the import leaves, one line for each.
        conflicts: Reasons to refuse the import, one line for each.
    """

    missing: tuple[ArchivedVersion, ...]
    deletions: tuple[ArchivedVersion, ...]
    present: int
    settings: tuple[ArchivedSubject, ...]
    notices: tuple[str, ...]
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SubjectPlan:
    missing: tuple[ArchivedVersion, ...]
    deletions: tuple[ArchivedVersion, ...]
    settings: ArchivedSubject | None
    notices: tuple[str, ...]
    conflicts: tuple[str, ...]


def plan_import(client: RegistryClient, archive: Archive) -> ImportPlan:
    """Compare an archive with a registry. Nothing is written."""
    plans = in_parallel(lambda each: _plan_subject(client, each), archive.subjects)
    missing = tuple(version for plan in plans for version in plan.missing)
    deletions = tuple(version for plan in plans for version in plan.deletions)
    count = sum(len(each.versions) for each in archive.subjects)
    notices = [notice for plan in plans for notice in plan.notices]
    return ImportPlan(
        missing=tuple(in_order(missing)),
        # A version is deleted before the versions that it references.
        deletions=tuple(reversed(list(in_order(deletions)))),
        present=count - len(missing),
        settings=tuple(plan.settings for plan in plans if plan.settings is not None),
        notices=(*notices, *_global_notices(client, archive)),
        conflicts=tuple(conflict for plan in plans for conflict in plan.conflicts),
    )


def restore_mode(client: RegistryClient, directory: Path) -> None:
    """Restore the mode of the subject that a killed import of this archive left in IMPORT.

    Raises:
        ImportConflict: The killed import wrote into another registry.
    """
    path = directory / MODE_FILE
    try:
        state = json.loads(path.read_bytes())
        address, subject, mode = state["registry"], state["subject"], state["mode"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        path.unlink()  # torn, so the mode was not yet changed
        return
    if address != client.address:
        raise ImportConflict(
            [
                f"an import into {address} was killed, and left '{subject}' in the mode IMPORT. Run"
                f" it again first, or delete {path}"
            ]
        )
    client.set_mode(subject, mode)
    path.unlink()


def run_import(client: RegistryClient, plan: ImportPlan, directory: Path, notify: Notify) -> None:
    """Write the difference into the registry.

    Args:
        client: The registry.
        plan: The difference.
        directory: The directory of the archive, for `MODE_FILE`.
        notify: Receives a line if a mode could not be restored.

    Raises:
        ImportConflict: The plan has conflicts. Nothing was written.
        RegistryRefusal: The registry refused a schema. The modes were restored.
        RegistryUnavailable: The registry does not respond.
    """
    if plan.conflicts:
        raise ImportConflict(list(plan.conflicts))
    modes = _ImportMode(client, directory / MODE_FILE, notify)
    for subject, versions in groupby(plan.missing, lambda each: each.subject):
        with modes.importing(subject):
            for version in versions:
                _register(client, version)
    for subject, versions in groupby(plan.deletions, lambda each: each.subject):
        with modes.importing(subject):
            for version in versions:
                client.delete_version(subject, version.version)
    for each in plan.settings:
        if each.config is not None:
            client.set_config(each.name, each.config)
        if each.mode is not None:
            client.set_mode(each.name, each.mode)


def in_order(versions: tuple[ArchivedVersion, ...]) -> Iterator[ArchivedVersion]:
    """Yield versions after their references and after earlier versions of the same subject.

    References outside of `versions` are ignored. So are cycles, which no registry contains.
    """
    by_key = {(each.subject, each.version): each for each in versions}
    previous: dict[tuple[str, int], ArchivedVersion] = {}
    for _, group in groupby(versions, lambda each: each.subject):
        before: ArchivedVersion | None = None
        for each in group:
            if before is not None:
                previous[each.subject, each.version] = before
            before = each
    seen: set[tuple[str, int]] = set()
    for each in versions:
        # A stack of versions whose dependencies are pending replaces the recursion.
        stack = [(each, False)]
        while stack:
            version, is_ready = stack.pop()
            key = (version.subject, version.version)
            if is_ready:
                yield version
            elif key not in seen:
                seen.add(key)
                stack.append((version, True))
                stack += [(found, False) for found in _dependencies(version, by_key, previous)]


def _dependencies(
    version: ArchivedVersion,
    by_key: dict[tuple[str, int], ArchivedVersion],
    previous: dict[tuple[str, int], ArchivedVersion],
) -> list[ArchivedVersion]:
    own = QualifiedSubject.parse(version.subject)
    keys = [(str(own.relative(each.subject)), each.version) for each in version.schema.references]
    found = [by_key[key] for key in keys if key in by_key]
    before = previous.get((version.subject, version.version))
    return found if before is None else [*found, before]


def _plan_subject(client: RegistryClient, subject: ArchivedSubject) -> _SubjectPlan:
    alias = alias_of(client.config(subject.name))
    if alias is not None:
        return _plan_alias(client, subject, alias)
    existing = set(client.existing_versions(subject.name, deleted=True))
    live = set(client.existing_versions(subject.name))
    missing = tuple(each for each in subject.versions if each.version not in existing)
    conflicts = [
        _conflict_of_version(client, each)
        if each.version in existing
        else _conflict_of_id(client, each)
        for each in subject.versions
    ]
    deletions = tuple(
        each
        for each in subject.versions
        if each.is_deleted and (each.version in live or each.version not in existing)
    )
    settings, notices = _plan_settings(client, subject)
    notices += [
        f"'{subject.name}' version {each.version} is deleted there"
        for each in subject.versions
        if not each.is_deleted and each.version in existing - live
    ]
    return _SubjectPlan(
        missing, deletions, settings, tuple(notices), tuple(filter(None, conflicts))
    )


def _plan_alias(client: RegistryClient, subject: ArchivedSubject, alias: str) -> _SubjectPlan:
    """Return the plan of a subject whose requests the registry redirects to another subject."""
    there = {each.version: each for each in own_versions(client, subject.name)}
    is_complete = all(
        each.version in there and _has_same_content(there[each.version], each)
        for each in subject.versions
    )
    conflict = (
        f"'{subject.name}' is an alias of '{alias}' there, and its own versions differ from the"
        " export. Remove its config there first"
    )
    settings, notices = _plan_settings(client, subject)
    conflicts = () if is_complete else (conflict,)
    return _SubjectPlan((), (), settings, tuple(notices), conflicts)


def _has_same_content(there: ArchivedVersion, version: ArchivedVersion) -> bool:
    return (there.id, there.is_deleted, _comparable(there.schema)) == (
        version.id,
        version.is_deleted,
        _comparable(version.schema),
    )


def _conflict_of_version(client: RegistryClient, version: ArchivedVersion) -> str:
    """Return why an existing version is not the archive's, or an empty text."""
    there = client.version(version.subject, version.version, deleted=True)
    name = f"'{version.subject}' version {version.version}"
    if there.id != version.id:
        return f"{name} has the id {there.id} there and {version.id} in the export"
    if _same(client, there, version, version.subject):
        return ""
    return f"{name} is another schema there"


def _conflict_of_id(client: RegistryClient, version: ArchivedVersion) -> str:
    """Return why the id of a missing version is taken, or an empty text."""
    try:
        there = client.schema_by_id(version.id, subject=version.subject)
    except RegistryRefusal as refusal:
        if refusal.status == HTTPStatus.NOT_FOUND:
            return ""
        raise
    context = QualifiedSubject.parse(version.subject).context
    # Some registries search other contexts, too, where the id may belong to another schema.
    if there.subject is not None and QualifiedSubject.parse(there.subject).context != context:
        return ""
    if _same(client, there, version, there.subject):
        return ""
    return (
        f"id {version.id} of '{version.subject}' version {version.version} belongs to another"
        " schema there"
    )


def _same(
    client: RegistryClient, there: StoredSchema, version: ArchivedVersion, subject: str | None
) -> bool:
    """Return whether the registry's schema is the archive's.

    Registries may write the same Protobuf schema in different ways, so the registry is asked if the
    texts differ.
    """
    ours = version.schema
    if _comparable(there) == _comparable(ours):
        return True
    if there.kind != ours.kind:
        return False
    subjects = [subject] if subject else client.subjects_of_id(version.id, subject=version.subject)
    try:
        return any(
            client.lookup(each, ours, deleted=True).id == version.id for each in subjects[:1]
        )
    except RegistryRefusal as refusal:
        if refusal.status in (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY):
            return False
        raise


def _comparable(schema: StoredSchema) -> tuple[object, ...]:
    text: object = schema.text
    if schema.kind != SchemaKind.PROTOBUF:
        try:
            text = json.loads(schema.text)
        except (ValueError, RecursionError):
            text = schema.text
    return (
        schema.kind,
        text,
        sorted((each.name, each.subject, each.version) for each in schema.references),
        schema.metadata or {},
        schema.rule_set or {},
    )


def _plan_settings(
    client: RegistryClient, subject: ArchivedSubject
) -> tuple[ArchivedSubject | None, list[str]]:
    """Return the settings that the registry lacks, and a line for each that differs there."""
    config = client.config(subject.name) if subject.config is not None else None
    mode = client.mode(subject.name) if subject.mode is not None else None
    notices = []
    if config is not None and config != subject.config:
        notices.append(f"'{subject.name}' keeps its config, which differs from the export")
    # The mode IMPORT belongs to an import into the source, or to one that was killed here.
    has_mode = subject.mode not in (None, IMPORT_MODE)
    if has_mode and mode not in (None, IMPORT_MODE, subject.mode):
        notices.append(f"'{subject.name}' keeps its mode {mode}, which differs from the export")
    lacking = replace(
        subject,
        config=subject.config if config is None else None,
        mode=subject.mode if has_mode and mode in (None, IMPORT_MODE) else None,
    )
    is_complete = lacking.config is None and lacking.mode is None
    return None if is_complete else lacking, notices


def _global_notices(client: RegistryClient, archive: Archive) -> list[str]:
    notices = []
    if archive.config is not None and client.config() != archive.config:
        notices.append("the config of the registry stays, and differs from the export")
    mode = client.mode() if archive.mode is not None else None
    if mode != archive.mode:
        notices.append(f"the mode of the registry stays {mode}, and differs from the export")
    return notices


def _register(client: RegistryClient, version: ArchivedVersion) -> None:
    schema = replace(version.schema, id=version.id, version=version.version)
    id_ = client.register(version.subject, schema)
    if id_ != version.id:
        raise UnexpectedResponse(
            f"The registry gave '{version.subject}' version {version.version} the id {id_} instead"
            f" of {version.id}."
        )


class _ImportMode:
    """Sets the mode IMPORT for one subject at a time."""

    def __init__(self, client: RegistryClient, path: Path, notify: Notify) -> None:
        self._client = client
        self._path = path
        self._notify = notify

    @contextmanager
    def importing(self, subject: str) -> Iterator[None]:
        """Keep a subject in the mode IMPORT during the block."""
        previous = self._client.mode(subject)
        self._write(subject, previous)
        try:
            self._client.set_mode(subject, IMPORT_MODE)
            yield
        finally:
            self._restore(subject, previous)

    def _write(self, subject: str, mode: str | None) -> None:
        state = {"registry": self._client.address, "subject": subject, "mode": mode}
        with self._path.open("w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())

    def _restore(self, subject: str, mode: str | None) -> None:
        try:
            self._client.set_mode(subject, mode)
        except (RegistryRefusal, RegistryUnavailable) as error:
            self._notify(
                f"The mode of '{subject}' was not restored ({error}). Run the import again: it"
                " restores the mode first."
            )
        else:
            self._path.unlink()
