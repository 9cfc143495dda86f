"""Encoding and decoding of records by the schemas of a registry."""

from __future__ import annotations

import json
from uuid import UUID

import httpx
import pytest

from odradek.environment.clock import ManualClock
from odradek.registry.client import RegistryRefusal, RegistryUnavailable, StoredSchema
from odradek.registry.codec import (
    UNKNOWN_RETRY_MS,
    Decoded,
    RecordDecoder,
    RecordEncoder,
    SchemaChoice,
    UndefinedSchema,
    fetch_choice,
    parse_choice,
    register_schema,
)
from odradek.registry.codec_errors import InvalidValue, UndecodableValue, UnusableSchema
from odradek.registry.wire_format import write_prefix
from tests.helpers.fake_registry import FakeRegistry, guid_of

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
PROTO = 'syntax = "proto3"; message A { int32 n = 1; } message B { int32 m = 1; }'


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry()


def decoder(fake: FakeRegistry, clock: ManualClock | None = None) -> RecordDecoder:
    return RecordDecoder(fake.client(), clock or ManualClock())


def encoder(fake: FakeRegistry, subject: str, message: str = "") -> RecordEncoder:
    client = fake.client()
    return RecordEncoder(client, client.version(subject, "latest"), message)


@pytest.mark.parametrize(
    ("kind", "text", "value", "encoded"),
    [
        ("AVRO", ORDER, b'{"id": 1}', b"\x02"),
        ("JSON", '{"type": "object"}', b'{"id": 1}', b'{"id":1}'),
        ("PROTOBUF", PROTO, b'{"n": 1}', b"\x00\x08\x01"),
    ],
)
def test_value_comes_back_with_the_id_in_its_prefix(
    fake: FakeRegistry, kind: str, text: str, value: bytes, encoded: bytes
) -> None:
    fake.add("s", text, kind)
    data = encoder(fake, "s").encode(value)
    assert data == write_prefix(1) + encoded
    assert decoder(fake).decode(data) == Decoded(json.loads(value), 1)


def test_protobuf_message_is_chosen_by_name(fake: FakeRegistry) -> None:
    fake.add("s", PROTO, "PROTOBUF")
    data = encoder(fake, "s", "B").encode(b'{"m": 1}')
    assert data == write_prefix(1) + b"\x02\x02\x08\x01"
    assert decoder(fake).decode(data).value == {"m": 1}


def test_header_names_the_schema_by_guid(fake: FakeRegistry) -> None:
    guid = guid_of(fake.add("s", ORDER).body)
    assert decoder(fake).decode(b"\x02", b"\x01" + UUID(guid).bytes) == Decoded({"id": 1}, guid)


def test_message_indexes_of_a_header_are_not_in_the_value(fake: FakeRegistry) -> None:
    guid = guid_of(fake.add("s", PROTO, "PROTOBUF").body)
    header = b"\x01" + UUID(guid).bytes + b"\x02\x02"
    assert decoder(fake).decode(b"\x08\x01", header).value == {"m": 1}


def test_decimal_keeps_all_digits(fake: FakeRegistry) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 20}
    fake.add("s", json.dumps({"type": "array", "items": decimal}))
    data = encoder(fake, "s").encode(b"[0.12345678901234567890]")
    assert decoder(fake).decode(data).value == ["0.12345678901234567890"]


def test_schema_is_requested_once(fake: FakeRegistry) -> None:
    fake.add("s", ORDER)
    reads = decoder(fake)
    for _ in range(3):
        reads.decode(write_prefix(1) + b"\x02")
    assert fake.requests == ["GET /schemas/ids/1"]


def test_least_recently_used_schema_is_dropped(fake: FakeRegistry) -> None:
    for name in ("a", "b", "c"):
        fake.add(name, json.dumps({"type": "fixed", "name": name, "size": 1}))
    reads = RecordDecoder(fake.client(), ManualClock(), codecs_max=2)
    for id_ in (1, 2, 1, 3, 1, 2):
        reads.decode(write_prefix(id_) + b"x")
    assert [each[-1] for each in fake.requests] == ["1", "2", "3", "2"]


def test_unknown_schema_is_requested_again_after_a_time(fake: FakeRegistry) -> None:
    clock = ManualClock()
    reads = decoder(fake, clock)
    for _ in range(2):
        with pytest.raises(UndecodableValue, match="the registry has no schema 1"):
            reads.decode(write_prefix(1) + b"\x02")
    assert len(fake.requests) == 1
    fake.add("s", ORDER)
    clock.advance(UNKNOWN_RETRY_MS)
    assert reads.decode(write_prefix(1) + b"\x02").value == {"id": 1}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"text", "it has no schema id"),
        (b"", "it is empty"),
        (write_prefix(1), "schema 1: a number has no last byte"),
        (write_prefix(2), "schema 2: the Avro schema is invalid"),
        (write_prefix(3), "schema 3: its kind XML is unknown"),
    ],
)
def test_reason_names_the_schema(fake: FakeRegistry, data: bytes, reason: str) -> None:
    fake.add("a", ORDER)
    fake.add("b", '"Missing"')
    fake.add("c", "<a/>", "XML")
    with pytest.raises(UndecodableValue, match=reason):
        decoder(fake).decode(data)


def test_refused_credentials_are_not_a_property_of_the_record(fake: FakeRegistry) -> None:
    fake.auth = "Basic other"
    with pytest.raises(RegistryRefusal):
        decoder(fake).decode(write_prefix(1))


def test_registry_that_does_not_respond_ends_the_decoding(fake: FakeRegistry) -> None:
    def fail(_request: httpx.Request) -> None:
        raise httpx.ConnectError("refused")

    fake.fault = fail
    with pytest.raises(RegistryUnavailable):
        decoder(fake).decode(write_prefix(1))


@pytest.mark.parametrize("value", [b"{", b"", b"\xff", b'{"id": "x"}', b"[" * 100_000])
def test_text_that_does_not_fit_is_refused(fake: FakeRegistry, value: bytes) -> None:
    fake.add("s", ORDER)
    with pytest.raises(InvalidValue):
        encoder(fake, "s").encode(value)


def test_message_is_refused_for_other_kinds(fake: FakeRegistry) -> None:
    fake.add("s", ORDER)
    with pytest.raises(UnusableSchema, match="of kind AVRO"):
        encoder(fake, "s", "B")


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("17", SchemaChoice(id=17)),
        ("17#shop.Order", SchemaChoice(id=17, message="shop.Order")),
        ("orders-value", SchemaChoice(subject="orders-value")),
        ("orders-value:3", SchemaChoice(subject="orders-value", version=3)),
        ("orders-value:latest", SchemaChoice(subject="orders-value")),
        ("17:latest", SchemaChoice(subject="17")),
        (":.sales:orders", SchemaChoice(subject=":.sales:orders")),
        (":.sales:orders:3", SchemaChoice(subject=":.sales:orders", version=3)),
        (":.sales:17", SchemaChoice(subject=":.sales:17")),
        ("a:b", SchemaChoice(subject="a:b")),
        ("orders#1", SchemaChoice(subject="orders#1")),
        ("orders:2#Order", SchemaChoice(subject="orders", version=2, message="Order")),
    ],
)
def test_schema_is_named_by_id_or_subject(text: str, choice: SchemaChoice) -> None:
    assert parse_choice(text) == choice


def test_empty_name_is_refused() -> None:
    for text in ("", "#A"):
        with pytest.raises(UndefinedSchema):
            parse_choice(text)


def test_chosen_schema_has_its_id(fake: FakeRegistry) -> None:
    fake.add("a", '"int"')
    fake.add("s", ORDER)
    client = fake.client()
    assert fetch_choice(client, parse_choice("2")).id == 2
    assert fetch_choice(client, parse_choice("s:1")).id == 2
    assert register_schema(client, "new", StoredSchema(ORDER)).id == 2


def test_json_is_decoded_although_the_schema_cannot_be_used(fake: FakeRegistry) -> None:
    fake.add("s", '{"$ref": "nothing.json", "pattern": "("}', "JSON")
    assert decoder(fake).decode(write_prefix(1) + b'{"id":1}').value == {"id": 1}


@pytest.mark.parametrize("text", [b"NaN", b"[-Infinity]", b'{"id": 1e999}'])
def test_input_with_a_number_that_json_does_not_have_is_refused(
    fake: FakeRegistry, text: bytes
) -> None:
    fake.add("s", "{}", "JSON")
    with pytest.raises(InvalidValue):
        encoder(fake, "s").encode(text)
