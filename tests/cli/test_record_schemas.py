"""`odradek produce` and `consume` with schemas, against a real broker and a registry in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
import pytest
from confluent_kafka import Producer

from odradek.cli.record_schemas import NOTICES_MAX
from odradek.registry.client import Credentials, RegistryClient
from odradek.registry.wire_format import VALUE_HEADER, write_prefix
from tests.helpers.fake_registry import ADDRESS, FakeRegistry, guid_of

from .conftest import PATIENCE_S

if TYPE_CHECKING:
    from .conftest import Cli

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
PROTO = 'syntax = "proto3"; package shop; message A { int32 n = 1; } message B { int64 m = 1; }'


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """The registry that the commands use."""
    registry = FakeRegistry()

    def open_client(
        urls: Sequence[str], _credentials: Credentials | None, notify: Callable[[str], None]
    ) -> RegistryClient:
        http = httpx.Client(transport=httpx.MockTransport(registry.handle))
        return RegistryClient(urls, http, notify, sleep=lambda _wait_s: None)

    monkeypatch.setattr("odradek.registry.client.open_client", open_client)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", ADDRESS)
    yield registry


def send(cli: Cli, value: bytes | None, key: bytes | None = None, **headers: bytes) -> None:
    producer = Producer({"bootstrap.servers": cli.bootstrap_servers, "linger.ms": 0})
    producer.produce("t", value, key, headers=list(headers.items()))
    assert producer.flush(PATIENCE_S) == 0


def decoded(cli: Cli, *arguments: str) -> list[Any]:
    return [
        json.loads(line) for line in cli.ok("consume", "t", "--decode", *arguments).splitlines()
    ]


@pytest.mark.parametrize(
    ("kind", "text", "lines", "values"),
    [
        (
            "AVRO",
            ORDER,
            ['{"id": 1}', '{"id": 2, "note": "x"}'],
            [{"id": 1, "note": None}, {"id": 2, "note": {"string": "x"}}],
        ),
        ("JSON", '{"type": "object"}', ['{"a": [1]}'], [{"a": [1]}]),
        ("PROTOBUF", PROTO, ['{"n": 5}'], [{"n": 5}]),
    ],
)
def test_values_come_back_as_json(
    cli: Cli, fake: FakeRegistry, kind: str, text: str, lines: list[str], values: list[Any]
) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", text, kind)
    cli.ok("produce", "t", "--value-schema", "t-value", input="\n".join(lines) + "\n")
    assert decoded(cli) == values
    assert [record["value"] for record in decoded(cli, "--json")] == values
    assert [record["value_schema"] for record in decoded(cli, "--json")] == [1] * len(values)


@pytest.mark.parametrize("name", ["1", "t-value", "t-value:1", "t-value:latest"])
def test_schema_is_named_by_id_or_version(cli: Cli, fake: FakeRegistry, name: str) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    cli.ok("produce", "t", "--value-schema", name, input='{"id": 1}\n')
    [record] = cli.json_lines("consume", "t")
    assert record["value"] == "\0\0\0\0\x01\x02\0"


def test_schema_of_a_file_is_registered_under_the_topic(
    cli: Cli, fake: FakeRegistry, tmp_path: Path
) -> None:
    cli.ok("topic", "create", "t")
    value, key = tmp_path / "order.proto", tmp_path / "key.avsc"
    value.write_text(PROTO)
    key.write_text('"string"')
    cli.ok(
        "produce",
        "t",
        *("-K", "\\t", "--value-schema", f"@{value}#shop.B", "--key-schema", f"@{key}"),
        input='"k"\t{"m": "7"}\n',
    )
    assert sorted(fake.subjects) == ["t-key", "t-value"]
    [record] = decoded(cli, "--json")
    assert (record["key"], record["value"]) == ("k", {"m": "7"})
    assert record["key_schema"] != record["value_schema"]
    assert cli.ok("consume", "t", "--decode", "--keys") == '"k"\t{"m":"7"}\n'


def test_output_is_input_again(cli: Cli, fake: FakeRegistry) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    cli.ok("produce", "t", "--value-schema", "1", input='{"id": 1, "note": {"string": "é"}}\n')
    cli.ok("produce", "t", "--value-schema", "1", input=cli.ok("consume", "t", "--decode"))
    first, second = cli.json_lines("consume", "t")
    assert first["value"] == second["value"]


def test_tombstones_and_absent_keys_stay_null(cli: Cli, fake: FakeRegistry) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    fake.add("t-key", '"string"')
    options = ["-K", ":", "--tombstones", "--value-schema", "t-value", "--key-schema", "t-key"]
    cli.ok("produce", "t", *options, input='"k":\n')
    [record] = decoded(cli, "--json")
    assert (record["key"], record["value"]) == ("k", None)
    assert "value_schema" not in record


@pytest.mark.parametrize("transactional", [False, True])
def test_value_that_does_not_fit_ends_the_command_with_its_line(
    cli: Cli, fake: FakeRegistry, transactional: bool
) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    options = ["--transactional-id", "x"] if transactional else []
    lines = '{"id": 1}\n{"id": "x"}\n{"id": 3}\n'
    result = cli("produce", "t", "--value-schema", "1", *options, input=lines)
    assert result.exit_code == 1
    reason = "Line 2: The value does not fit its schema: id: 'x' is not a number without a fraction"
    if transactional:
        assert str(result.exception) == f"The transaction was aborted: {reason}"
        assert decoded(cli) == []
    else:
        assert str(result.exception) == f"{reason} (1 record acknowledged)"
        assert decoded(cli) == [{"id": 1, "note": None}]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--value-schema", "nope"], "Subject 'nope' not found (error 40401)."),
        (["--value-schema", "77"], "Schema 77 not found (error 40403)."),
        (["--value-schema", ""], "--value-schema: '' names no schema."),
        (["--value-schema", "@nope.avsc"], "nope.avsc: No such file or directory."),
        (["--key-schema", "@nope"], "nope: the suffix names no kind of schema."),
        (["--value-schema", "1#A"], "--value-schema 1#A: a message was named"),
        (["--value-schema", "2#Nope"], "--value-schema 2#Nope: the Protobuf schema has no message"),
    ],
)
def test_schema_that_cannot_be_used_is_one_line(
    cli: Cli, fake: FakeRegistry, options: list[str], line: str
) -> None:
    cli.ok("topic", "create", "t")
    fake.add("a", ORDER)
    fake.add("b", PROTO, "PROTOBUF")
    result = cli("produce", "t", *options, input="{}\n")
    assert result.exit_code == 1
    assert line in str(result.exception)


def test_header_names_the_schema_by_guid(cli: Cli, fake: FakeRegistry) -> None:
    cli.ok("topic", "create", "t")
    guid = guid_of(fake.add("t-value", ORDER).body)
    send(cli, b"\x02\x00", **{VALUE_HEADER: b"\x01" + UUID(guid).bytes})
    [record] = decoded(cli, "--json")
    assert (record["value"], record["value_schema"]) == ({"id": 1, "note": None}, guid)
    assert record["headers"][0]["key"] == VALUE_HEADER


def test_plain_keys_are_printed_without_a_notice(cli: Cli, fake: FakeRegistry) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    send(cli, write_prefix(1) + b"\x02\x00", key=b"user-17")
    result = cli("consume", "t", "--decode", "--keys")
    assert result.stdout == 'user-17\t{"id":1,"note":null}\n'
    assert result.stderr == ""


def test_value_that_is_not_decoded_is_printed_as_it_is_with_its_reason(
    cli: Cli, fake: FakeRegistry
) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    for value in (b"plain", write_prefix(1) + b"\x02", write_prefix(9) + b"\x02"):
        send(cli, value, key=b"\x00\x00\x00\x00\x00\x00\x00\x09")
    records = decoded(cli, "--json")
    assert records[0]["value"] == "plain"
    assert [record["value_error"] for record in records] == [
        "it has no schema id: the first byte is 112, not 0",
        "schema 1: a number has no last byte",
        "the registry has no schema 9",
    ]
    assert records[0]["key_error"] == "the registry has no schema 0"
    result = cli("consume", "t", "--decode", "-n", "1")
    assert result.stdout == "plain\n"
    assert result.stderr == (
        "odradek: t, partition 0, offset 0: the value is printed as it is: it has no schema id: the"
        " first byte is 112, not 0\n"
    )


def test_number_of_notices_is_limited(cli: Cli, fake: FakeRegistry) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input="plain\n" * (NOTICES_MAX + 5))
    lines = cli("consume", "t", "--decode").stderr.splitlines()
    assert len(lines) == NOTICES_MAX + 1
    assert lines[-1].endswith("--json shows the error of each")


def test_records_are_not_decoded_unless_requested(cli: Cli, fake: FakeRegistry) -> None:
    cli.ok("topic", "create", "t")
    fake.add("t-value", ORDER)
    cli.ok("produce", "t", "--value-schema", "1", input='{"id": 1}\n')
    fake.requests.clear()
    [record] = cli.json_lines("consume", "t")
    assert record["value"] == "\0\0\0\0\x01\x02\0"
    assert fake.requests == []
    [record] = cli.json_lines("consume", "t", "--registry", ADDRESS)
    assert record["value"] == {"id": 1, "note": None}


def test_registry_that_does_not_respond_ends_consume(cli: Cli, fake: FakeRegistry) -> None:
    def fail(_request: httpx.Request) -> None:
        raise httpx.ConnectError("refused")

    cli.ok("topic", "create", "t")
    send(cli, write_prefix(1))
    fake.fault = fail
    result = cli("consume", "t", "--decode")
    assert result.exit_code == 1
    assert str(result.exception).startswith(f"No registry responds at {ADDRESS} (refused).")
