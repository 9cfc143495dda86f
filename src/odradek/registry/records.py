"""Records of the topic ``_schemas`` in the JSON of Confluent's schema registry. Pure.

A key is ``{"keytype": K, ..., "magic": N}``. The fields of a key have Jackson's
order, because log compaction compares keys as bytes:

=================  ===========================================  =================================
keytype            other fields of the key                      fields of the value
=================  ===========================================  =================================
``SCHEMA``         ``subject``, ``version``, ``magic`` 1        `SchemaRecord`, null: removed
``CONFIG``         ``subject`` if not global, ``magic`` 0       `odradek.registry.configs.Config`
``MODE``           ``subject`` if not global, ``magic`` 0       ``subject``, ``mode``
``DELETE_SUBJECT`` ``subject``, ``magic`` 0                     ``subject``, ``version``
``CLEAR_SUBJECT``  ``subject`` if not global, ``magic`` 0       ``subject``
``CONTEXT``        ``tenant``, ``context``, ``magic`` 0         ``tenant``, ``context``
``NOOP``           ``magic`` 0                                  null, or `NoopRecord`
=================  ===========================================  =================================

Other records are `Foreign`. They are never written.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from odradek.registry.configs import Config
from odradek.registry.json_value import (
    JsonFields,
    JsonObject,
    JsonValue,
    WrongType,
    encode_json,
)
from odradek.registry.metadata import Metadata
from odradek.registry.modes import Mode
from odradek.registry.references import decode_references, encode_references
from odradek.registry.rules import RuleSet
from odradek.registry.schemas.parsed import Reference
from odradek.registry.subjects import QualifiedSubject

TENANT = "default"
"""The only tenant. Confluent Cloud has others."""

DEFAULT_KIND = "AVRO"
"""The kind of a schema without ``schemaType``."""

SCHEMA_MAGICS = (0, 1)
"""The magic bytes of schema keys. Versions of Confluent before 3.0 wrote 0."""

MD5_BYTES = 16
"""Size of the hash in ``md5``, which Confluent stores if it encrypts the metadata."""

JSON_DEPTH_ERRORS = (ValueError, RecursionError)
"""The errors of ``json.loads`` for a text that is not JSON, or is nested too deeply."""

_SCHEMA_FIELDS = frozenset(
    (
        *("subject", "version", "id", "md5", "schemaType"),
        *("references", "metadata", "ruleSet", "schema", "deleted"),
    )
)


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A version of a subject. `kind` may be a type that this registry cannot parse.

    `foreign_key` is the key as another program has written it, if its bytes differ from those of
    this registry: an old ``magic``, or the default context in the name of the subject.
    """

    subject: str
    version: int
    id: int
    text: str
    kind: str = DEFAULT_KIND
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    deleted: bool = False
    md5: bytes | None = None
    unknown: JsonObject = field(default_factory=dict, hash=False)
    foreign_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class SchemaTombstone:
    """A version of a subject is permanently deleted. `foreign_key` is as in `SchemaRecord`."""

    subject: str
    version: int
    foreign_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The config of a subject or context. None deletes it."""

    subject: str | None
    config: Config | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """The mode of a subject or context. None deletes it."""

    subject: str | None
    mode: Mode | None


@dataclass(frozen=True, slots=True)
class DeleteSubjectRecord:
    """All versions of a subject up to a version are soft-deleted. None: no effect."""

    subject: str
    version: int | None


@dataclass(frozen=True, slots=True)
class ClearSubjectRecord:
    """The soft-deleted versions of a subject or context are forgotten."""

    subject: str | None
    present: bool = True


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """A context exists, or is deleted."""

    context: str
    present: bool = True
    tenant: str = TENANT


@dataclass(frozen=True, slots=True)
class NoopRecord:
    """A record without effect on schemas, which Confluent writes to learn the log's end.

    Odradek stores the greatest id of each context in it. An id is never assigned twice, even if its
    schema is permanently deleted and compaction removes its records. Confluent's registry ignores
    the value of this key.
    """

    max_ids: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A record that this registry does not understand. The reason is for the log line."""

    reason: str


Record: TypeAlias = (
    SchemaRecord
    | SchemaTombstone
    | ConfigRecord
    | ModeRecord
    | DeleteSubjectRecord
    | ClearSubjectRecord
    | ContextRecord
    | NoopRecord
)


def decode(key: bytes | None, value: bytes | None) -> Record | Foreign:
    """Return the record of a key and a value of the topic.

    Never raises. Unknown fields are not an error.
    """
    if key is None:
        return Foreign("the record has no key")
    try:
        key_fields = JsonFields(json.loads(key), "key")
        key_type = key_fields.text("keytype")
        decoder = _DECODERS.get(key_type or "")
        if decoder is None:
            return Foreign(f"key type {key_type!r} is not supported")
        record = decoder(key_fields, None if value is None else json.loads(value))
        return _with_key(record, key)
    except WrongType as error:
        return Foreign(str(error))
    except JSON_DEPTH_ERRORS as error:
        return Foreign(f"key or value is not JSON: {error}")


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    key, value = _encode(record)
    encoded_key = encode_json(key)
    if isinstance(record, SchemaRecord | SchemaTombstone) and record.foreign_key is not None:
        encoded_key = record.foreign_key
    return encoded_key, None if value is None else encode_json(value)


def _with_key(record: Record | Foreign, key: bytes) -> Record | Foreign:
    """Return a record with its key, if that has other bytes than a key of this registry."""
    if not isinstance(record, SchemaRecord | SchemaTombstone):
        return record
    subject = str(QualifiedSubject.parse(record.subject))
    is_own = key == encode_json(_schema_key(subject, record.version))
    return record if is_own else replace(record, foreign_key=key)


def _decode_schema(key: JsonFields, value: JsonValue) -> Record | Foreign:
    magic = key.integer("magic")
    if magic is not None and magic not in SCHEMA_MAGICS:
        return Foreign(f"magic {magic} of a schema key is not supported")
    subject, version = _required(key.text("subject"), "subject"), _version(key)
    if value is None:
        return SchemaTombstone(subject, version)
    fields = JsonFields(value, "value")
    schema_id = fields.integer("id")
    if schema_id is None or schema_id < 0:
        raise WrongType("value.id must be 0 or greater")
    return SchemaRecord(
        subject=subject,
        version=version,
        id=schema_id,
        text=_required(fields.text("schema"), "schema"),
        kind=fields.text("schemaType") or DEFAULT_KIND,
        references=decode_references(fields),
        metadata=Metadata.from_json(fields.value("metadata")),
        rule_set=RuleSet.from_json(fields.value("ruleSet")),
        deleted=bool(fields.boolean("deleted")),
        md5=_md5(fields.text("md5")),
        unknown=fields.unknown(_SCHEMA_FIELDS),
    )


def _decode_config(key: JsonFields, value: JsonValue) -> Record:
    config = None if value is None else Config.from_json(JsonFields(value, "value"))
    return ConfigRecord(key.text("subject"), config)


def _decode_mode(key: JsonFields, value: JsonValue) -> Record:
    if value is None:
        return ModeRecord(key.text("subject"), None)
    name = _required(JsonFields(value, "value").text("mode"), "mode")
    mode = Mode.parse(name)
    if mode is None:
        raise WrongType(f"mode {name!r} does not exist")
    return ModeRecord(key.text("subject"), mode)


def _decode_delete_subject(key: JsonFields, value: JsonValue) -> Record:
    subject = _required(key.text("subject"), "subject")
    version = None if value is None else JsonFields(value, "value").integer("version")
    return DeleteSubjectRecord(subject, version)


def _decode_clear_subject(key: JsonFields, value: JsonValue) -> Record:
    return ClearSubjectRecord(key.text("subject"), present=value is not None)


def _decode_context(key: JsonFields, value: JsonValue) -> Record:
    context = _required(key.text("context"), "context")
    return ContextRecord(context, value is not None, key.text("tenant") or TENANT)


def _decode_noop(key: JsonFields, value: JsonValue) -> Record:
    if value is None:
        return NoopRecord()
    maxima = JsonFields(JsonFields(value, "value").value("maxIds") or {}, "maxIds")
    ids = ((context, maxima.integer(context) or 0) for context in maxima.unknown(frozenset()))
    return NoopRecord(tuple(sorted(ids)))


_Decoder: TypeAlias = Callable[[JsonFields, JsonValue], Record | Foreign]

_DECODERS: dict[str, _Decoder] = {
    "SCHEMA": _decode_schema,
    "CONFIG": _decode_config,
    "MODE": _decode_mode,
    "DELETE_SUBJECT": _decode_delete_subject,
    "CLEAR_SUBJECT": _decode_clear_subject,
    "CONTEXT": _decode_context,
    "NOOP": _decode_noop,
}


def _encode(record: Record) -> tuple[JsonObject, JsonObject | None]:
    match record:
        case SchemaRecord():
            return _schema_key(record.subject, record.version), _schema_value(record)
        case SchemaTombstone():
            return _schema_key(record.subject, record.version), None
        case ConfigRecord():
            config = None if record.config is None else record.config.to_json()
            return _subject_key("CONFIG", record.subject), _subject_value(record.subject, config)
        case ModeRecord():
            mode: JsonObject | None = None if record.mode is None else {"mode": record.mode.value}
            return _subject_key("MODE", record.subject), _subject_value(record.subject, mode)
        case DeleteSubjectRecord():
            last: JsonObject | None = None
            if record.version is not None:
                last = {"version": record.version}
            key = _subject_key("DELETE_SUBJECT", record.subject)
            return key, _subject_value(record.subject, last)
        case ClearSubjectRecord():
            cleared: JsonObject | None = {} if record.present else None
            key = _subject_key("CLEAR_SUBJECT", record.subject)
            return key, _subject_value(record.subject, cleared)
        case ContextRecord():
            names: JsonObject = {"tenant": record.tenant, "context": record.context}
            key = {"keytype": "CONTEXT", **names, "magic": 0}
            return key, names if record.present else None
        case NoopRecord():
            maxima: JsonObject = {"maxIds": dict(record.max_ids)}
            return {"keytype": "NOOP", "magic": 0}, maxima if record.max_ids else None


def _schema_key(subject: str, version: int) -> JsonObject:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def _subject_key(key_type: str, subject: str | None) -> JsonObject:
    return {"keytype": key_type, **_subject(subject), "magic": 0}


def _subject_value(subject: str | None, fields: JsonObject | None) -> JsonObject | None:
    return None if fields is None else {**_subject(subject), **fields}


def _subject(subject: str | None) -> JsonObject:
    return {} if subject is None else {"subject": subject}


def _schema_value(record: SchemaRecord) -> JsonObject:
    value: JsonObject = {
        "subject": record.subject,
        "version": record.version,
        "id": record.id,
        "md5": None if record.md5 is None else base64.b64encode(record.md5).decode(),
        "schemaType": record.kind,
        "references": encode_references(record.references) or None,
        "metadata": None if record.metadata is None else record.metadata.to_json(),
        "ruleSet": None if record.rule_set is None else record.rule_set.to_json(),
        "schema": record.text,
        "deleted": record.deleted,
        **record.unknown,
    }
    return {name: element for name, element in value.items() if element is not None}


def _required(text: str | None, name: str) -> str:
    if text is None:
        raise WrongType(f"{name} is missing")
    return text


def _version(key: JsonFields) -> int:
    version = key.integer("version")
    if version is None or version < 1:
        raise WrongType("key.version must be 1 or greater")
    return version


def _md5(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise WrongType(f"value.md5 is not base64: {error}") from error
    if len(digest) != MD5_BYTES:
        raise WrongType(f"value.md5 has {len(digest)} bytes instead of {MD5_BYTES}")
    return digest
