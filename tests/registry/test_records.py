"""Tests of the records of the schema topic: Confluent's JSON, round trips, foreign records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.metadata import Metadata
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
    decode,
    encode,
)
from odradek.registry.schemas.parsed import Reference
from tests.registry import record_strategies

EXAMPLES: list[tuple[Record, bytes, bytes | None]] = [
    (
        SchemaRecord("orders", 1, 7, '"string"'),
        b'{"keytype":"SCHEMA","subject":"orders","version":1,"magic":1}',
        b'{"subject":"orders","version":1,"id":7,"schemaType":"AVRO",'
        b'"schema":"\\"string\\"","deleted":false}',
    ),
    (
        SchemaRecord(
            ":.sales:orders",
            2,
            8,
            'import "a.proto";',
            kind="PROTOBUF",
            references=(Reference("a.proto", "a", 3),),
            metadata=Metadata(properties=(("owner", "déjà"),)),
            deleted=True,
        ),
        b'{"keytype":"SCHEMA","subject":":.sales:orders","version":2,"magic":1}',
        '{"subject":":.sales:orders","version":2,"id":8,"schemaType":"PROTOBUF",'
        '"references":[{"name":"a.proto","subject":"a","version":3}],'
        '"metadata":{"properties":{"owner":"déjà"}},'
        '"schema":"import \\"a.proto\\";","deleted":true}'.encode(),
    ),
    (
        SchemaTombstone("orders", 1),
        b'{"keytype":"SCHEMA","subject":"orders","version":1,"magic":1}',
        None,
    ),
    (
        ConfigRecord("orders", Config(level=CompatibilityLevel.FULL, normalize=True)),
        b'{"keytype":"CONFIG","subject":"orders","magic":0}',
        b'{"subject":"orders","normalize":true,"compatibilityLevel":"FULL"}',
    ),
    (
        ConfigRecord(None, Config(level=CompatibilityLevel.NONE)),
        b'{"keytype":"CONFIG","magic":0}',
        b'{"compatibilityLevel":"NONE"}',
    ),
    (
        ModeRecord("orders", Mode.IMPORT),
        b'{"keytype":"MODE","subject":"orders","magic":0}',
        b'{"subject":"orders","mode":"IMPORT"}',
    ),
    (ModeRecord(None, None), b'{"keytype":"MODE","magic":0}', None),
    (
        DeleteSubjectRecord("orders", 3),
        b'{"keytype":"DELETE_SUBJECT","subject":"orders","magic":0}',
        b'{"subject":"orders","version":3}',
    ),
    (
        ClearSubjectRecord("orders"),
        b'{"keytype":"CLEAR_SUBJECT","subject":"orders","magic":0}',
        b'{"subject":"orders"}',
    ),
    (ClearSubjectRecord(None), b'{"keytype":"CLEAR_SUBJECT","magic":0}', b"{}"),
    (
        ContextRecord(".sales"),
        b'{"keytype":"CONTEXT","tenant":"default","context":".sales","magic":0}',
        b'{"tenant":"default","context":".sales"}',
    ),
    (NoopRecord(), b'{"keytype":"NOOP","magic":0}', None),
    (
        NoopRecord(((".", 4), (".sales", 2))),
        b'{"keytype":"NOOP","magic":0}',
        b'{"maxIds":{".":4,".sales":2}}',
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), EXAMPLES)
def test_records_have_the_json_of_confluent(
    record: Record, key: bytes, value: bytes | None
) -> None:
    assert encode(record) == (key, value)
    assert decode(key, value) == record


@given(record_strategies.records)
def test_decode_is_the_inverse_of_encode(record: Record) -> None:
    assert decode(*encode(record)) == record


@given(st.binary(max_size=60) | st.none(), st.binary(max_size=60) | st.none())
def test_any_bytes_are_decoded_without_an_exception(key: bytes | None, value: bytes | None) -> None:
    decode(key, value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        *("keytype", "subject", "version", "magic", "context", "id", "schema", "schemaType"),
        *("references", "metadata", "ruleSet", "deleted", "md5", "mode", "maxIds", "tags"),
        *("compatibilityLevel", "overrideRuleSet", "domainRules", "properties", "tenant"),
    ]
)


@given(
    st.sampled_from(["SCHEMA", "CONFIG", "MODE", "CONTEXT", "DELETE_SUBJECT", "NOOP", "ASSOC"]),
    st.dictionaries(fields, json_values),
    st.dictionaries(fields, json_values) | json_values,
)
def test_fields_of_any_type_are_decoded_without_an_exception(
    key_type: str, key: dict[str, object], value: object
) -> None:
    decode(json.dumps({**key, "keytype": key_type}).encode(), json.dumps(value).encode())


def test_deeply_nested_json_is_foreign() -> None:
    record = decode(b'{"keytype":"NOOP"}', b"[" * 200_000)

    assert isinstance(record, Foreign)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "the record has no key"),
        (b"", None, "not JSON"),
        (b"\xff", None, "not JSON"),
        (b'"SCHEMA"', None, "key must be a JSON object"),
        (b'{"keytype":"ASSOC"}', b"{}", "key type 'ASSOC' is not supported"),
        (b"{}", b"{}", "key type None is not supported"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":2}', b"{}", "magic 2"),
        (b'{"keytype":"SCHEMA","subject":"a","version":0}', None, "1 or greater"),
        (b'{"keytype":"SCHEMA","version":1}', None, "subject is missing"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x"}', "id must be 0"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":1}', "schema is missing"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"17", "value must be a JSON object"),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1}',
            b'{"id":1,"schema":"x","references":[{"name":"n"}]}',
            "Invalid reference",
        ),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1}',
            b'{"id":1,"schema":"x","md5":"AA=="}',
            "1 bytes instead of 16",
        ),
        (b'{"keytype":"SCHEMA","subject":"\\ud800","version":1}', None, "unpaired surrogate"),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"WRITE"}', "mode 'WRITE' does not exist"),
        (b'{"keytype":"CONFIG"}', b'{"compatibilityLevel":"SOME"}', "'SOME' does not exist"),
    ],
)
def test_foreign_records_have_a_reason(key: bytes | None, value: bytes | None, reason: str) -> None:
    record = decode(key, value)

    assert isinstance(record, Foreign)
    assert reason in record.reason


def test_unknown_fields_are_kept() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1,"new":1}'
    value = b'{"id":1,"schema":"x","offset":5,"new":{"a":[1]}}'

    record = decode(key, value)

    assert isinstance(record, SchemaRecord)
    assert record.unknown == {"offset": 5, "new": {"a": [1]}}
    encoded = encode(record)[1]
    assert encoded is not None
    assert json.loads(encoded)["new"] == {"a": [1]}


def test_absent_and_null_fields_have_defaults() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":0}'
    value = b'{"id":1,"schema":"x","references":null,"metadata":null,"deleted":null}'

    assert decode(key, value) == SchemaRecord("a", 1, 1, "x", foreign_key=key)


def test_global_config_of_old_registries_has_a_null_subject() -> None:
    record = decode(
        b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'
    )

    assert record == ConfigRecord(None, Config(level=CompatibilityLevel.NONE))


def test_unknown_field_with_half_a_surrogate_pair_is_written_as_it_was_read() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    record = decode(key, b'{"id":1,"schema":"x","other":"\\ud800","deleted":false}')
    assert isinstance(record, SchemaRecord)
    encoded = encode(record)
    assert decode(*encoded) == record
    assert record.unknown == {"other": "\ud800"}
