"""A registered version of a subject, and its JSON forms in responses. Pure."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from odradek.registry.guids import guid_of
from odradek.registry.json_value import JsonObject
from odradek.registry.metadata import Metadata
from odradek.registry.records import SchemaRecord
from odradek.registry.references import encode_references
from odradek.registry.rules import RuleSet
from odradek.registry.schemas.parsed import Reference
from odradek.registry.subjects import QualifiedSubject


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject as the state keeps it.

    `timestamp_ms` is the time of its record, or None for a version that is not written yet.
    `unknown` has fields of the record that this registry does not know.
    """

    subject: QualifiedSubject
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None
    guid: str
    deleted: bool = False
    timestamp_ms: int | None = None
    unknown: JsonObject = field(default_factory=dict, hash=False)

    @property
    def key(self) -> tuple[QualifiedSubject, int]:
        """Subject and version, which identify it."""
        return self.subject, self.version

    def soft_deleted(self) -> SchemaVersion:
        """Return this version with the mark of a soft deletion."""
        return replace(self, deleted=True)

    def has_content_of(self, other: SchemaVersion) -> bool:
        """Whether kind, text, references, metadata and rule set are equal."""
        return self._content == other._content

    @property
    def _content(self) -> tuple[object, ...]:
        return self.kind, self.text, self.references, self.metadata, self.rule_set

    @property
    def _explicit_md5(self) -> bytes | None:
        """The hash of its record, or None if it is the hash of the content."""
        expected = guid_of(self.text, self.references, self.metadata, self.rule_set)
        return None if expected == self.guid else uuid.UUID(self.guid).bytes

    def to_record(self) -> SchemaRecord:
        """Return the record that stores this version."""
        return SchemaRecord(
            subject=str(self.subject),
            version=self.version,
            id=self.id,
            text=self.text,
            kind=self.kind,
            references=self.references,
            metadata=self.metadata,
            rule_set=self.rule_set,
            deleted=self.deleted,
            md5=self._explicit_md5,
            unknown=self.unknown,
        )


def schema_json(
    version: SchemaVersion, *, text: str | None = None, qualified_references: bool = False
) -> JsonObject:
    """Return the form of ``GET /subjects/{subject}/versions/{version}`` and of look-ups by text.

    Args:
        version: The version.
        text: The text in the format of the request, or None for the stored text.
        qualified_references: ``referenceFormat=qualified``: references name their context.
    """
    json: JsonObject = {
        "subject": str(version.subject),
        "version": version.version,
        "id": version.id,
        **_content_json(version, text, qualified_references),
    }
    return _without_absent(json)


def registered_json(version: SchemaVersion, *, text: str | None = None) -> JsonObject:
    """Return the form of the response to a registration, which has no subject."""
    json = schema_json(version, text=text)
    del json["subject"]
    return json


def schema_string_json(
    version: SchemaVersion,
    *,
    text: str | None = None,
    with_subject: bool = False,
    max_id: int | None = None,
    qualified_references: bool = False,
) -> JsonObject:
    """Return the form of ``GET /schemas/ids/{id}`` and ``GET /schemas/guids/{guid}``.

    Args:
        version: A version that has the id or the guid.
        text: The text in the format of the request, or None for the stored text.
        with_subject: The request named a subject, which the response repeats with the version.
        max_id: The greatest id of the context, if the request has ``fetchMaxId``.
        qualified_references: ``referenceFormat=qualified``: references name their context.
    """
    json: JsonObject = {}
    if with_subject:
        json = {"subject": str(version.subject), "version": version.version}
    json |= _content_json(version, text, qualified_references and with_subject)
    return _without_absent({**json, "maxId": max_id})


def _content_json(
    version: SchemaVersion, text: str | None, qualified_references: bool
) -> JsonObject:
    references = version.references
    if qualified_references:
        references = tuple(
            replace(each, subject=str(version.subject.relative(each.subject)))
            for each in references
        )
    return {
        "guid": version.guid,
        "schemaType": version.kind,
        "references": encode_references(references) or None,
        "metadata": None if version.metadata is None else version.metadata.to_json(),
        "ruleSet": None if version.rule_set is None else version.rule_set.to_json(),
        "schema": version.text if text is None else text,
        "ts": version.timestamp_ms,
        "deleted": version.deleted or (None if version.timestamp_ms is None else False),
    }


def _without_absent(json: JsonObject) -> JsonObject:
    return {name: value for name, value in json.items() if value is not None}
