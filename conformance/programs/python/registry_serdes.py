"""Records of the three formats, with the serializers of confluent-kafka-python."""

from __future__ import annotations

import functools
import inspect
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    avro,
    header_schema_id_serializer,
    json_schema,
    protobuf,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

AWAY_S = 150.0
PREFIXES = {
    "avro": ("Avro", avro),
    "json": ("JSON", json_schema),
    "protobuf": ("Protobuf", protobuf),
}
ENDINGS = {"avro": "avsc", "json": "json", "protobuf": "proto"}


class Serdes:
    """Serializers and deserializers of one client of the registry."""

    def __init__(self, client: Any, directory: Path, *, is_async: bool) -> None:
        self._client = client
        self._directory = directory
        self._is_async = is_async

    async def write(self, bootstrap: str, form: str, topic: str, name: str) -> None:
        """Send one record with the first schema and two with the second."""
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        form, _, in_header = form.partition("+")
        values = [{"id": f"{name}-{n}", "amount": n} for n in (1, 2)]
        values.append({"id": f"{name}-ä€", "amount": -(2**31)})
        for number, value in enumerate(values):
            version = min(number + 1, 2)
            serializer = await self._serializer(form, version, bool(in_header))
            if version == 2:
                value["note"] = "a note"
            context = SerializationContext(topic, MessageField.VALUE, headers=[])
            data = serializer(self._message(form, version, value), context)
            data = await data if inspect.isawaitable(data) else data
            producer.produce(topic, data, headers=context.headers or None)
        assert producer.flush(AWAY_S) == 0

    async def read(self, bootstrap: str, form: str, topic: str, count: int) -> list[dict[str, Any]]:
        """Return the decoded values of the first records of a topic."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        deserializer = await self._deserializer(form.partition("+")[0])
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + AWAY_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records of {topic}"
            message = consumer.poll(1.0)
            if message is None:
                continue
            assert message.error() is None, message.error()
            context = SerializationContext(topic, MessageField.VALUE, message.headers())
            value = deserializer(message.value(), context)
            value = await value if inspect.isawaitable(value) else value
            found.append(self._plain(value))
        consumer.close()
        return found

    def _class(self, form: str, role: str) -> Any:
        prefix, module = PREFIXES[form]
        return getattr(module, f"{'Async' if self._is_async else ''}{prefix}{role}")

    async def _serializer(self, form: str, version: int, in_header: bool) -> Any:
        cls = self._class(form, "Serializer")
        conf: dict[str, Any] = {"auto.register.schemas": True}
        if in_header:
            conf["schema.id.serializer"] = header_schema_id_serializer
        if form == "protobuf":
            conf["use.deprecated.format"] = False
            made = cls(self._type(version), self._client, conf)
        elif form == "json":
            made = cls(self._text(form, version), self._client, conf=conf)
        else:
            made = cls(self._client, self._text(form, version), conf=conf)
        return await made if inspect.isawaitable(made) else made

    async def _deserializer(self, form: str) -> Any:
        cls = self._class(form, "Deserializer")
        if form == "protobuf":
            made = cls(self._type(2), {"use.deprecated.format": False}, self._client)
        elif form == "json":
            made = cls(None, schema_registry_client=self._client)
        else:
            made = cls(self._client)
        return await made if inspect.isawaitable(made) else made

    def _text(self, form: str, version: int) -> str:
        return (self._directory / f"order_{version}.{ENDINGS[form]}").read_text(encoding="utf-8")

    def _message(self, form: str, version: int, value: dict[str, Any]) -> Any:
        return self._type(version)(**value) if form == "protobuf" else value

    @staticmethod
    def _plain(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        return dict(json.loads(json_format.MessageToJson(value)))

    def _type(self, version: int) -> Any:
        return _message_type(self._directory, f"order_{version}.proto")


@functools.cache
def _message_type(directory: Path, name: str) -> Any:
    """Return the class of the message Order. protoc compiles the file."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "set"
        code = protoc.main(["protoc", f"-I{directory}", f"--descriptor_set_out={out}", name])
        assert code == 0, name
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(files.file[0].SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
