"""`odradek schema`, `produce` and `consume` with Odradek's registry and Confluent's serializers."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner

from odradek.cli.app import app
from odradek.testing.registry import Registry

from .conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.testing import Broker

    from .conftest import Cli

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
    ],
}
JSON_ORDER = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}


def schema(url: str, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["schema", *arguments, "--registry", url])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture
def client(kafka_registry: Registry) -> Iterator[Callable[[], Any]]:
    """Return a function that makes a client with a cache of its own."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with contextlib.ExitStack() as clients:
        yield lambda: clients.enter_context(SchemaRegistryClient({"url": kafka_registry.url}))


def context(topic: str = "t", headers: list[tuple[str, bytes]] | None = None) -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE, headers)


def registered(registry: Registry, tmp_path: Path, subject: str, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    schema(registry.url, "register", subject, str(tmp_path / name))


def last_value(kafka: Broker) -> bytes:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None and message.error() is None
    return bytes(message.value())


CONF = {"auto.register.schemas": True, "subject.name.strategy.type": "TOPIC"}


def test_commands_work_with_the_registry(kafka_registry: Registry, tmp_path: Path) -> None:
    url = kafka_registry.url
    registered(kafka_registry, tmp_path, "t-value", "a.avsc", json.dumps(ORDER))
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "x", "type": "int", "default": 0}]}
    registered(kafka_registry, tmp_path, "t-value", "b.avsc", json.dumps(wider))
    [row] = json.loads(schema(url, "list", "--json"))
    assert (row["versions"], row["latest"], row["kind"]) == (2, 2, "AVRO")
    assert row["compatibility"] == "BACKWARD"
    first, second = json.loads(schema(url, "list", "t-value", "--json"))
    for name in (str(first["id"]), first["guid"], "t-value:1"):
        assert json.loads(schema(url, "get", name)) == ORDER
    shown = json.loads(schema(url, "diff", "t-value", "--json"))
    assert shown["backward"]["compatible"] and shown["forward"]["compatible"]
    narrow = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    (tmp_path / "c.avsc").write_text(json.dumps(narrow))
    check = ["schema", "check", "t-value", str(tmp_path / "c.avsc"), "--registry", url, "--json"]
    result = CliRunner().invoke(app, check)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["reasons"]
    assert second["id"] != first["id"]


def test_export_is_imported_into_another_registry(
    kafka: Broker, kafka_registry: Registry, tmp_path: Path
) -> None:
    proto = 'syntax = "proto3";\nmessage A {\n  int32 n = 1;\n}\n'
    user = 'syntax = "proto3";\nimport "a.proto";\nmessage B {\n  A a = 1;\n}\n'
    registered(kafka_registry, tmp_path, "t-value", "a.avsc", json.dumps(ORDER))
    registered(kafka_registry, tmp_path, "z", "a.proto", proto)
    (tmp_path / "b.proto").write_text(user)
    reference = ["--reference", "a.proto=z:1"]
    schema(kafka_registry.url, "register", "b", str(tmp_path / "b.proto"), *reference)
    one, two = tmp_path / "one", tmp_path / "two"
    schema(kafka_registry.url, "export", str(one))
    with Registry(kafka, topic="_other_schemas") as target:
        summary = json.loads(schema(target.url, "import", str(one), "--json"))
        assert (summary["registered"], summary["conflicts"]) == (3, [])
        schema(target.url, "export", str(two))
        again = json.loads(schema(target.url, "import", str(one), "--json"))
        assert (again["registered"], again["present"]) == (0, 3)
    assert _files(one) == _files(two)


def _files(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_confluents_avro_deserializer_reads_what_produce_writes(
    cli: Cli, kafka: Broker, kafka_registry: Registry, client: Callable[[], Any], tmp_path: Path
) -> None:
    from decimal import Decimal

    from confluent_kafka.schema_registry.avro import AvroDeserializer

    cli.ok("topic", "create", "t")
    registered(kafka_registry, tmp_path, "t-value", "a.avsc", json.dumps(ORDER))
    options = ["--value-schema", "t-value", "--registry", kafka_registry.url]
    cli.ok("produce", "t", *options, input='{"id": 1, "note": "x", "price": "12.34"}\n')
    read = AvroDeserializer(client())(last_value(kafka), context())
    assert read == {"id": 1, "note": "x", "price": Decimal("12.34")}


def test_consume_reads_what_confluents_serializers_write(
    cli: Cli, kafka: Broker, kafka_registry: Registry, client: Callable[[], Any]
) -> None:
    from decimal import Decimal

    from confluent_kafka.schema_registry import header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    cli.ok("topic", "create", "t")
    registry = client()
    order = {"id": 1, "note": "x", "price": Decimal("12.34")}
    avro = AvroSerializer(registry, json.dumps(ORDER), conf=CONF)
    in_header = AvroSerializer(
        registry,
        json.dumps(ORDER),
        conf={**CONF, "schema.id.serializer": header_schema_id_serializer},
    )
    as_json = JSONSerializer(json.dumps(JSON_ORDER), registry, conf=CONF)
    headers: list[tuple[str, bytes]] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("t", avro(order, context()))
    producer.produce("t", in_header(order, context(headers=headers)), headers=headers)
    producer.produce("t", as_json({"id": 3}, context("other")))
    assert producer.flush(PATIENCE_S) == 0
    lines = cli.ok("consume", "t", "--registry", kafka_registry.url).splitlines()
    value = {"id": 1, "note": {"string": "x"}, "price": "12.34"}
    assert [json.loads(line) for line in lines] == [value, value, {"id": 3}]


def test_confluents_json_deserializer_reads_what_produce_writes(
    cli: Cli, kafka: Broker, kafka_registry: Registry, client: Callable[[], Any], tmp_path: Path
) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    cli.ok("topic", "create", "t")
    registered(kafka_registry, tmp_path, "t-value", "a.json", json.dumps(JSON_ORDER))
    options = ["--value-schema", "t-value", "--registry", kafka_registry.url]
    cli.ok("produce", "t", *options, input='{"id": 1}\n')
    deserializer = JSONDeserializer(json.dumps(JSON_ORDER), schema_registry_client=client())
    assert deserializer(last_value(kafka), context()) == {"id": 1}


def message_class() -> Any:
    """Return the class of a message with the field `file_name`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="source.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Source").field.add(name="file_name", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Source"))


def test_confluents_protobuf_serializer_and_commands_read_each_other(
    cli: Cli, kafka: Broker, kafka_registry: Registry, client: Callable[[], Any]
) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    source = message_class()
    cli.ok("topic", "create", "t")
    options = ["--value-schema", "t-value", "--registry", kafka_registry.url]
    message = ProtobufSerializer(source, client(), conf=CONF)(source(file_name="x"), context())
    cli.ok("produce", "t", *options, input='{"fileName": "x"}\n')
    assert last_value(kafka) == message
    assert cli.ok("consume", "t", "--registry", kafka_registry.url) == '{"fileName":"x"}\n'
    deserializer = ProtobufDeserializer(source, {}, client())
    assert deserializer(last_value(kafka), context()) == source(file_name="x")
