"""The registry's state: a fold over the records of the topic ``_schemas``. Pure.

The same records in the same order give the same state, at start-up and for new writes. Log
compaction keeps the last record of each key. Of a log that only this registry has written, the
state after a compaction equals the state before it. So no look-up depends on a record that a later
record of the same key replaced.

Records of other programs may break this, as in Confluent's registry:

- Two records of one key have the same id and different texts. The second one is skipped until the
  compaction removes the first one.
- A record is skipped because its id belongs to another schema. It is applied when this schema is
  deleted permanently and the compaction has removed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TypeAlias, TypeVar

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.guids import guid_of, parse_guid
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
from odradek.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    QualifiedSubject,
    has_prefix,
)

DEFAULT_LEVEL = CompatibilityLevel.BACKWARD
"""The compatibility level where none is configured."""

DEFAULT_MODE = Mode.READWRITE
"""The mode where none is configured."""

S = TypeVar("S")
K = TypeVar("K")
L = TypeVar("L")
V = TypeVar("V")

LATEST_VERSION = -1
"""The number of requests and references for the latest version, which is never a deleted one."""

VersionKey: TypeAlias = tuple[QualifiedSubject, int]
"""A subject and one of its versions."""


class Deleted(Enum):
    """Whether a look-up returns soft-deleted versions."""

    EXCLUDE = "exclude"
    INCLUDE = "include"
    ONLY = "only"

    def accepts(self, deleted: bool) -> bool:
        """Whether the look-up returns a version that is soft-deleted or not."""
        return self is Deleted.INCLUDE or deleted is (self is Deleted.ONLY)


class RegistryState:
    """Schemas, configs, modes and contexts. The loop of the instance is its only owner.

    Versions, configs and modes that look-ups return are immutable, so that another thread may use
    them.
    """

    def __init__(self, default_level: CompatibilityLevel = DEFAULT_LEVEL) -> None:
        """Start without schemas.

        Args:
            default_level: The compatibility level where none is configured.
        """
        self.offset = -1
        self._default_config = Config(level=default_level)
        self._versions: dict[QualifiedSubject, dict[int, SchemaVersion]] = {}
        self._by_id: dict[tuple[str, int], dict[VersionKey, SchemaVersion]] = {}
        self._by_guid: dict[tuple[str, str], dict[VersionKey, SchemaVersion]] = {}
        self._referrers: dict[VersionKey, dict[VersionKey, None]] = {}
        self._foreign_keys: dict[VersionKey, dict[bytes, None]] = {}
        self._configs: dict[QualifiedSubject, Config] = {}
        self._modes: dict[QualifiedSubject, Mode] = {}
        self._contexts: set[str] = set()
        self._max_ids: dict[str, int] = {}
        self._has_snapshots = False

    def snapshot(self) -> RegistryState:
        """Return a copy of the state, which further records do not change.

        The copy has the indexes, and shares their entries. Until `drop_snapshots` is called, a
        further record copies the entries that it changes.
        """
        copied = RegistryState()
        copied.offset = self.offset
        copied._default_config = self._default_config
        copied._versions = self._versions.copy()
        copied._by_id = self._by_id.copy()
        copied._by_guid = self._by_guid.copy()
        copied._referrers = self._referrers.copy()
        copied._foreign_keys = self._foreign_keys.copy()
        copied._configs = self._configs.copy()
        copied._modes = self._modes.copy()
        copied._contexts = self._contexts.copy()
        copied._max_ids = self._max_ids.copy()
        self._has_snapshots = True
        return copied

    def drop_snapshots(self) -> None:
        """Permit changes of entries that earlier snapshots share. They must not be read again."""
        self._has_snapshots = False

    def apply(
        self, record: Record | Foreign, offset: int, timestamp_ms: int | None = None
    ) -> str | None:
        """Apply the next record of the topic.

        Args:
            record: The decoded record.
            offset: Its offset, which becomes the state's `offset`.
            timestamp_ms: Its timestamp in milliseconds since 1970.

        Returns:
            The reason why the record was skipped, or None if it was applied.
        """
        self.offset = offset
        match record:
            case SchemaRecord():
                return self._put(record, timestamp_ms)
            case SchemaTombstone():
                self._bury(record)
            case DeleteSubjectRecord():
                self._soft_delete(QualifiedSubject.parse(record.subject), record.version or 0)
            case ClearSubjectRecord():
                self._clear(record)
            case ConfigRecord():
                _set(self._configs, _settings_key(record.subject), record.config)
            case ModeRecord():
                _set(self._modes, _settings_key(record.subject), record.mode)
            case ContextRecord():
                self._set_context(record)
            case NoopRecord():
                self._raise_max_ids(record.max_ids)
            case Foreign():
                return record.reason
        return None

    # Versions of a subject.

    def version(
        self, subject: QualifiedSubject, version: int, *, deleted: bool = False
    ) -> SchemaVersion | None:
        """Return a version of a subject, or None.

        Args:
            subject: The subject.
            version: The number, or `LATEST_VERSION`.
            deleted: Whether to return a soft-deleted version.
        """
        if version == LATEST_VERSION:
            return self.latest(subject)
        found = self._versions.get(subject, {}).get(version)
        return found if found is not None and (deleted or not found.deleted) else None

    def version_in_contexts(
        self, subject: QualifiedSubject, version: int, *, deleted: bool = False
    ) -> SchemaVersion | None:
        """Return a version of a subject. A subject without a context is searched in all contexts.

        The default context is searched first.
        """
        for candidate in self.in_contexts(subject):
            found = self.version(candidate, version, deleted=deleted)
            if found is not None:
                return found
        return None

    def latest(self, subject: QualifiedSubject) -> SchemaVersion | None:
        """Return the greatest version that is not deleted, or None."""
        versions = self.versions(subject)
        return versions[-1] if versions else None

    def versions(
        self, subject: QualifiedSubject, deleted: Deleted = Deleted.EXCLUDE
    ) -> list[SchemaVersion]:
        """Return the versions of a subject, in ascending order."""
        versions = self._versions.get(subject, {})
        return [versions[n] for n in sorted(versions) if deleted.accepts(versions[n].deleted)]

    def next_version(self, subject: QualifiedSubject) -> int:
        """Return the number of the next version: soft-deleted versions keep their numbers."""
        return max(self._versions.get(subject, {}), default=0) + 1

    # Subjects and contexts.

    def has_subject(self, subject: QualifiedSubject | None, *, deleted: bool = False) -> bool:
        """Whether a subject has versions.

        Args:
            subject: The subject, a context for any of its subjects, or None for any subject.
            deleted: Whether soft-deleted versions count.
        """
        return any(
            deleted or any(not each.deleted for each in self._versions[candidate].values())
            for candidate in self._matching(subject)
        )

    def matching_subjects(self, subject: QualifiedSubject | None) -> list[QualifiedSubject]:
        """Return the subjects with versions, also deleted ones, sorted.

        Args:
            subject: The subject, a context for all of its subjects, or None for all subjects.
        """
        return sorted(self._matching(subject))

    def subjects(self, prefix: str, deleted: Deleted = Deleted.EXCLUDE) -> list[str]:
        """Return the names of subjects, sorted. A subject is deleted if all its versions are.

        Args:
            prefix: The beginning of the name. ``:*:`` matches all contexts. A prefix without a
                context matches the default context.
            deleted: Whether to return deleted subjects.
        """
        return sorted(
            str(subject)
            for subject, versions in self._versions.items()
            if has_prefix(subject, prefix)
            and deleted.accepts(all(version.deleted for version in versions.values()))
        )

    def schemas(
        self,
        prefix: str,
        deleted: Deleted = Deleted.EXCLUDE,
        *,
        latest_only: bool = False,
        with_aliases: bool = False,
    ) -> list[SchemaVersion]:
        """Return the versions of all subjects with a prefix, sorted by subject and version.

        Args:
            prefix: The beginning of the subjects' names, as in `subjects`.
            deleted: Whether to return soft-deleted versions.
            latest_only: Whether to return the last of these versions of each subject only.
            with_aliases: Whether to return also the subjects that an alias with the prefix names.
        """
        subjects = {subject for subject in self._versions if has_prefix(subject, prefix)}
        if with_aliases:
            subjects |= set(self.aliases(prefix))
        found: list[SchemaVersion] = []
        for subject in sorted(subjects, key=str):
            versions = self.versions(subject, deleted)
            found += versions[-1:] if latest_only else versions
        return found

    def contexts(self) -> list[str]:
        """Return the default context and then the others, sorted."""
        return [DEFAULT_CONTEXT, *sorted(self._contexts)]

    def in_contexts(self, subject: QualifiedSubject) -> Iterator[QualifiedSubject]:
        """Return the subject, and for the default context the same name in all other contexts."""
        yield subject
        if subject.context == DEFAULT_CONTEXT:
            for context in sorted(self._contexts):
                yield QualifiedSubject(context, subject.name)

    # Ids and guids.

    def by_id(
        self, schema_id: int, subject: QualifiedSubject | None = None
    ) -> SchemaVersion | None:
        """Return a version with an id, also a soft-deleted one.

        Args:
            schema_id: The id.
            subject: The subject of the request. A subject without a context is searched in all
                contexts, and then the id in the default context. A context without a name selects
                any of its subjects. None is the default context.
        """
        if subject is None or subject.is_context:
            context = DEFAULT_CONTEXT if subject is None else subject.context
            return _preferred(self._by_id.get((context, schema_id), {}).values())
        for candidate in self.in_contexts(subject):
            versions = self._by_id.get((candidate.context, schema_id), {}).values()
            found = _preferred(each for each in versions if each.subject == candidate)
            if found is not None:
                return found
        if subject.context != DEFAULT_CONTEXT:
            return None
        return _preferred(self._by_id.get((DEFAULT_CONTEXT, schema_id), {}).values())

    def versions_of_id(
        self,
        schema_id: int,
        subject: QualifiedSubject | None = None,
        deleted: Deleted = Deleted.EXCLUDE,
    ) -> list[SchemaVersion] | None:
        """Return the versions with an id in the context where `by_id` finds it.

        Returns:
            The versions, sorted by subject and version, or None if the id does not exist. The list
            is empty if all of them are deleted.
        """
        found = self.by_id(schema_id, subject)
        if found is None:
            return None
        versions = self._by_id[found.subject.context, schema_id]
        return [versions[key] for key in sorted(versions) if deleted.accepts(versions[key].deleted)]

    def by_guid(self, guid: str) -> SchemaVersion | None:
        """Return a version with a guid. The default context is searched first."""
        canonical = parse_guid(guid)
        if canonical is None:
            return None
        for context in self.contexts():
            found = _preferred(self._by_guid.get((context, canonical), {}).values())
            if found is not None:
                return found
        return None

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """Return the contexts and ids of a guid, sorted."""
        canonical = parse_guid(guid)
        if canonical is None:
            return []
        return sorted(
            {
                (context, version.id)
                for context in self.contexts()
                for version in self._by_guid.get((context, canonical), {}).values()
            }
        )

    def with_content(self, context: str, guid: str) -> list[SchemaVersion]:
        """Return the versions of a context whose content has a guid, sorted by subject."""
        versions = self._by_guid.get((context, guid), {})
        return [versions[key] for key in sorted(versions)]

    def foreign_keys(self, version: SchemaVersion) -> tuple[bytes, ...]:
        """Return the keys of a version's records that this registry would write in another way.

        Only tombstones with these keys remove the records from a compacted log.
        """
        return tuple(self._foreign_keys.get(version.key, ()))

    def max_id(self, context: str) -> int:
        """Return the greatest id that a context ever had, or 0."""
        return self._max_ids.get(context, 0)

    def noop(self) -> NoopRecord:
        """Return the record that keeps the greatest ids through a compaction of the log."""
        return NoopRecord(tuple(sorted(self._max_ids.items())))

    # References.

    def referrers(
        self, subject: QualifiedSubject, version: int, *, deleted: bool = False
    ) -> list[SchemaVersion]:
        """Return the versions that reference a version.

        Args:
            subject: The referenced subject.
            version: The referenced version.
            deleted: Whether to return soft-deleted versions, which may be restored.
        """
        keys = sorted(self._referrers.get((subject, version), ()))
        found = (self._versions[referrer][number] for referrer, number in keys)
        return [each for each in found if deleted or not each.deleted]

    # Configs and modes.

    def own_config(self, subject: QualifiedSubject) -> Config | None:
        """Return the config that was set for exactly this subject or context, or None."""
        return self._configs.get(subject)

    def config(self, subject: QualifiedSubject) -> Config | None:
        """Return the config of a subject or context without inheritance, or None.

        The default and the global context always have a config.
        """
        config = self._configs.get(subject)
        if config is None:
            is_top = subject.is_default_context or subject.context == GLOBAL_CONTEXT
            return self._default_config if is_top else None
        return self._with_level(config)

    def config_in_scope(self, subject: QualifiedSubject) -> Config:
        """Return the config that applies to a subject.

        It is the first of: the subject's own, its context's, that of the global context, and the
        default. A subject's own config inherits some settings of the default context, as in
        Confluent's ``Config.mergeConfigs``.
        """
        own = self._configs.get(subject)
        if own is not None:
            base = self._configs.get(QualifiedSubject.of_context(DEFAULT_CONTEXT))
            return self._with_level(own.over(base or self._default_config))
        inherited = (self._configs.get(scope) for scope in _scopes(subject))
        config = next((each for each in inherited if each is not None), self._default_config)
        return self._with_level(config)

    def own_mode(self, subject: QualifiedSubject) -> Mode | None:
        """Return the mode that was set for exactly this subject or context, or None."""
        return self._modes.get(subject)

    def mode(self, subject: QualifiedSubject) -> Mode | None:
        """Return the mode of a subject or context without inheritance, or None.

        The default and the global context always have a mode.
        """
        is_top = subject.is_default_context or subject.context == GLOBAL_CONTEXT
        return self._modes.get(subject, DEFAULT_MODE if is_top else None)

    def mode_in_scope(self, subject: QualifiedSubject) -> Mode:
        """Return the mode that applies to a subject.

        It is the first of: the subject's own, its context's, that of the global context, and
        READWRITE. READONLY_OVERRIDE of its context or of the global context comes before its own.
        """
        inherited = [self._modes[scope] for scope in _scopes(subject) if scope in self._modes]
        if Mode.READONLY_OVERRIDE in inherited:
            return Mode.READONLY_OVERRIDE
        own = self._modes.get(subject)
        return own if own is not None else next(iter(inherited), DEFAULT_MODE)

    def subjects_with_mode(self, context: str) -> list[QualifiedSubject]:
        """Return the subjects of a context that have a mode of their own, sorted."""
        return sorted(each for each in self._modes if each.context == context and each.name)

    def resolve_alias(self, subject: QualifiedSubject) -> QualifiedSubject:
        """Return the subject that a subject's alias names, or the subject itself."""
        config = self._configs.get(subject)
        return subject.relative(config.alias) if config is not None and config.alias else subject

    def aliases(self, prefix: str) -> dict[QualifiedSubject, list[str]]:
        """Return the names with a prefix that are aliases, by the subject that they name."""
        found: dict[QualifiedSubject, list[str]] = {}
        for subject in sorted(self._configs):
            if has_prefix(subject, prefix) and (target := self.resolve_alias(subject)) != subject:
                found.setdefault(target, []).append(str(subject))
        return found

    def _with_level(self, config: Config) -> Config:
        level = self._default_config.level
        return config if level is None else config.with_default_level(level)

    def _matching(self, subject: QualifiedSubject | None) -> Iterable[QualifiedSubject]:
        if subject is None or subject.is_context:
            return (each for each in self._versions if subject is None or subject.matches(each))
        return (subject,) if subject in self._versions else ()

    def _put(self, record: SchemaRecord, timestamp_ms: int | None) -> str | None:
        subject = QualifiedSubject.parse(record.subject)
        same_id = self._by_id.get((subject.context, record.id), {})
        text = next((each.text for each in same_id.values()), record.text)
        if text != record.text:
            return (
                f"id {record.id} of version {record.version} of subject '{subject}' belongs to"
                " another schema"
            )
        self._raise_max_ids([(subject.context, record.id)])
        if record.foreign_key is not None:
            self._entry(self._foreign_keys, (subject, record.version))[record.foreign_key] = None
        self._remove((subject, record.version))
        self._add(_version_of(record, subject, text, timestamp_ms))
        return None

    def _add(self, version: SchemaVersion) -> None:
        context = version.subject.context
        self._entry(self._versions, version.subject)[version.version] = version
        self._entry(self._by_id, (context, version.id))[version.key] = version
        self._entry(self._by_guid, (context, version.guid))[version.key] = version
        for reference in version.references:
            target = version.subject.relative(reference.subject), reference.version
            self._entry(self._referrers, target)[version.key] = None

    def _remove(self, key: VersionKey) -> None:
        subject, number = key
        version = self._versions.get(subject, {}).get(number)
        if version is None:
            return
        self._discard(self._versions, subject, number)
        self._discard(self._by_id, (subject.context, version.id), key)
        self._discard(self._by_guid, (subject.context, version.guid), key)
        for reference in version.references:
            target = subject.relative(reference.subject), reference.version
            self._discard(self._referrers, target, key)

    def _entry(self, index: dict[K, dict[L, V]], key: K) -> dict[L, V]:
        """Return the entry of an index for a change. An entry of a snapshot is copied first."""
        entry = index.get(key)
        if entry is None:
            entry = index[key] = {}
        elif self._has_snapshots:
            entry = index[key] = entry.copy()
        return entry

    def _discard(self, index: dict[K, dict[L, V]], key: K, inner: L) -> None:
        if key not in index:
            return
        entry = self._entry(index, key)
        entry.pop(inner, None)
        if not entry:
            del index[key]

    def _bury(self, tombstone: SchemaTombstone) -> None:
        key = QualifiedSubject.parse(tombstone.subject), tombstone.version
        self._remove(key)
        if tombstone.foreign_key is not None:
            self._discard(self._foreign_keys, key, tombstone.foreign_key)

    def _soft_delete(self, subject: QualifiedSubject, last: int) -> None:
        for version in self.versions(subject):
            if version.version <= last:
                self._remove(version.key)
                self._add(version.soft_deleted())

    def _clear(self, record: ClearSubjectRecord) -> None:
        if not record.present:
            return
        subject = None if record.subject is None else QualifiedSubject.parse(record.subject)
        for matching in self.matching_subjects(subject):
            for version in self.versions(matching, Deleted.ONLY):
                self._remove(version.key)

    def _set_context(self, record: ContextRecord) -> None:
        if not record.present:
            self._contexts.discard(record.context)
        elif record.context != DEFAULT_CONTEXT:
            self._contexts.add(record.context)

    def _raise_max_ids(self, ids: Iterable[tuple[str, int]]) -> None:
        for context, schema_id in ids:
            self._max_ids[context] = max(schema_id, self._max_ids.get(context, 0))


def _version_of(
    record: SchemaRecord, subject: QualifiedSubject, text: str, timestamp_ms: int | None
) -> SchemaVersion:
    guid = (
        guid_of(text, record.references, record.metadata, record.rule_set)
        if record.md5 is None
        else parse_guid(record.md5.hex())
    )
    assert guid is not None
    return SchemaVersion(
        subject=subject,
        version=record.version,
        id=record.id,
        kind=record.kind,
        text=text,
        references=record.references,
        metadata=record.metadata,
        rule_set=record.rule_set,
        guid=guid,
        deleted=record.deleted,
        timestamp_ms=timestamp_ms,
        unknown=record.unknown,
    )


def _preferred(versions: Iterable[SchemaVersion]) -> SchemaVersion | None:
    """Return the first version that is not deleted by subject and number, or a deleted one."""
    return min(versions, key=lambda each: (each.deleted, each.key), default=None)


def _scopes(subject: QualifiedSubject) -> tuple[QualifiedSubject, QualifiedSubject]:
    return (
        QualifiedSubject.of_context(subject.context),
        QualifiedSubject.of_context(GLOBAL_CONTEXT),
    )


def _settings_key(subject: str | None) -> QualifiedSubject:
    return QualifiedSubject.parse(subject or "")


def _set(settings: dict[QualifiedSubject, S], subject: QualifiedSubject, value: S | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value
