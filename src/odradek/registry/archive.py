"""A directory with the schemas of a registry: one file for each version, and an index.

``index.json`` has the ids, references, configs and modes. The same registry state always gives the
same bytes, so that an archive can be kept in a version control system::

    index.json
    orders-value/1.avsc
    orders-value/2.avsc
    %3A.sales%3Aorders/1.proto

A file has exactly the text of its schema. The index is written last, by a rename.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from odradek.registry.client import (
    JsonObject,
    StoredSchema,
    UnexpectedResponse,
    reference_to_json,
)
from odradek.registry.schemas.parsed import SchemaKind

INDEX = "index.json"
ARCHIVE_FORMAT = 1
"""Version of the index. A later version is refused."""

DIRECTORY_NAME_MAX = 180
"""Longest name of a subject's directory. Longer names end in a part of their SHA-256."""

_SUFFIXES = {SchemaKind.AVRO: ".avsc", SchemaKind.JSON: ".json", SchemaKind.PROTOBUF: ".proto"}
_DIGEST_LENGTH = 16


class InvalidArchive(Exception):
    """A directory is not an archive, or a file of it is missing or invalid."""


@dataclass(frozen=True, slots=True)
class ArchivedVersion:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: StoredSchema
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class ArchivedSubject:
    """A subject with its own config and mode, or None, and its versions in ascending order."""

    name: str
    config: JsonObject | None
    mode: str | None
    versions: tuple[ArchivedVersion, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """The state of a registry. Subjects are in the order of their names."""

    config: JsonObject | None
    mode: str | None
    subjects: tuple[ArchivedSubject, ...]

    @property
    def versions(self) -> Iterator[ArchivedVersion]:
        """The versions of all subjects."""
        return (version for subject in self.subjects for version in subject.versions)


def write_archive(directory: Path, archive: Archive) -> None:
    """Write an archive into an empty directory or over an earlier archive.

    Files of the earlier archive that are no longer needed are removed.

    Raises:
        InvalidArchive: The directory has files, but no index.
        OSError: A file cannot be written.
    """
    stale = _files_of(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for version in archive.versions:
        name = _file_name(version)
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(version.schema.text.encode())
        stale.discard(name)
    text = json.dumps(_index(archive), indent=2, sort_keys=True, ensure_ascii=False)
    temporary = directory / f"{INDEX}.tmp"
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(directory / INDEX)
    for name in stale:
        _remove(directory / name)


def read_archive(directory: Path) -> Archive:
    """Return the archive of a directory.

    Raises:
        InvalidArchive: The directory has no valid index, or a file of it is missing.
    """
    index = _read_index(directory)
    try:
        subjects = _mapping(index, "subjects")
        return Archive(
            config=_optional_mapping(index.get("config")),
            mode=_optional_text(index.get("mode")),
            subjects=tuple(
                _read_subject(directory, name, _checked(subjects[name]))
                for name in sorted(subjects)
            ),
        )
    except (KeyError, UnexpectedResponse, UnicodeDecodeError) as error:
        raise InvalidArchive(f"{directory / INDEX} is invalid: {error}") from None


def _files_of(directory: Path) -> set[str]:
    """Return the files of an earlier archive."""
    if not directory.exists() or not any(directory.iterdir()):
        return set()
    if not (directory / INDEX).exists():
        raise InvalidArchive(f"{directory} has files, but no {INDEX}. Name another directory.")
    return {_file_name(version) for version in read_archive(directory).versions}


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def _file_name(version: ArchivedVersion) -> str:
    """Return the path of a version's file in the archive. It stays below the directory."""
    encoded = quote(version.subject, safe=" @+=,~()!'").replace("/", "%2F")
    if not encoded.strip(".") or encoded.startswith(INDEX):
        encoded = "%" + encoded.replace(".", "%2E")
    if len(encoded) > DIRECTORY_NAME_MAX:
        digest = sha256(version.subject.encode()).hexdigest()[:_DIGEST_LENGTH]
        encoded = f"{encoded[: DIRECTORY_NAME_MAX - _DIGEST_LENGTH - 1]}-{digest}"
    return f"{encoded}/{version.version}{_suffix(version)}"


def _suffix(version: ArchivedVersion) -> str:
    kind = version.schema.kind
    return _SUFFIXES[SchemaKind(kind)] if kind in SchemaKind.__members__ else ".txt"


def _index(archive: Archive) -> dict[str, object]:
    return {
        "format": ARCHIVE_FORMAT,
        "config": archive.config,
        "mode": archive.mode,
        "subjects": {
            subject.name: {
                "config": subject.config,
                "mode": subject.mode,
                "versions": [_version_entry(each) for each in subject.versions],
            }
            for subject in archive.subjects
        },
    }


def _version_entry(version: ArchivedVersion) -> dict[str, object]:
    schema = version.schema
    return {
        "version": version.version,
        "id": version.id,
        "guid": schema.guid,
        "schemaType": schema.kind,
        "references": [reference_to_json(each) for each in schema.references],
        "metadata": schema.metadata,
        "ruleSet": schema.rule_set,
        "deleted": version.is_deleted,
    }


def _read_index(directory: Path) -> JsonObject:
    path = directory / INDEX
    try:
        index = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InvalidArchive(f"{path} does not exist. Name a directory of an export.") from None
    except ValueError as error:
        raise InvalidArchive(f"{path} is not JSON: {error}") from None
    if not isinstance(index, dict) or index.get("format") != ARCHIVE_FORMAT:
        raise InvalidArchive(f"{path} is not the index of an export of format {ARCHIVE_FORMAT}.")
    return index


def _read_subject(directory: Path, name: str, entry: JsonObject) -> ArchivedSubject:
    versions = entry["versions"]
    if not isinstance(versions, list):
        raise InvalidArchive(f"{directory / INDEX}: the versions of '{name}' are not an array.")
    found = [_read_version(directory, name, _checked(each)) for each in versions]
    return ArchivedSubject(
        name=name,
        config=_optional_mapping(entry.get("config")),
        mode=_optional_text(entry.get("mode")),
        versions=tuple(sorted(found, key=lambda each: each.version)),
    )


def _read_version(directory: Path, subject: str, entry: JsonObject) -> ArchivedVersion:
    number, id_ = entry["version"], entry["id"]
    if not isinstance(number, int) or not isinstance(id_, int):
        raise InvalidArchive(f"{directory / INDEX}: a version or id of '{subject}' is no number.")
    fields = {**entry, "subject": subject, "schema": ""}
    is_deleted = entry.get("deleted") is True
    empty = ArchivedVersion(subject, number, id_, StoredSchema.from_json(fields), is_deleted)
    path = directory / _file_name(empty)
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise InvalidArchive(f"{path} does not exist. Export again.") from None
    schema = StoredSchema.from_json({**fields, "schema": text})
    return ArchivedVersion(subject, number, id_, schema, is_deleted)


def _checked(value: object) -> JsonObject:
    if not isinstance(value, Mapping):
        raise UnexpectedResponse("an entry is not a JSON object")
    return value


def _mapping(index: JsonObject, name: str) -> Mapping[str, object]:
    return _checked(index[name])


def _optional_mapping(value: object) -> JsonObject | None:
    return None if value is None else _checked(value)


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
