"""Records of the three formats, with the serializers of confluent-kafka-python."""

from __future__ import annotations

import functools
import inspect
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc_tools
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
KNOWN_TYPES = Path(grpc_tools.__file__).parent / "_proto"
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
            data = await _made(serializer(self._message(form, version, value), context))
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
            found.append(self._plain(await _made(deserializer(message.value(), context))))
        consumer.close()
        return found

    async def register_imports(self, reader: Any) -> None:
        """Serialize a message whose file imports another one. The serializer registers both.

        The deserializer needs a client of its own, `reader`. The serializer's client keeps the text
        of the registration's response, and the deserializer takes it for a descriptor.
        """
        kind = _message_type(self._directory, "event.proto", "shop.Event")
        event = kind(counts={"a": 2**40}, name="a name", level=1)
        event.order.id = "one"
        event.at.seconds = 1_800_000_000
        event.parts.add(name="a part")
        conf = {"use.deprecated.format": False}
        context = SerializationContext("events", MessageField.VALUE)
        options = {**conf, "normalize.schemas": True}
        serialize = await _made(self._class("protobuf", "Serializer")(kind, self._client, options))
        deserialize = await _made(self._class("protobuf", "Deserializer")(kind, conf, reader))
        assert await _made(deserialize(await _made(serialize(event, context)), context)) == event

    async def use_latest(self, line: Any) -> None:
        """Serialize with the latest version of a subject, whose schema has a reference."""
        await _made(self._client.register_schema("lines-value", line))
        conf = {"auto.register.schemas": False, "use.latest.version": True}
        context = SerializationContext("lines", MessageField.VALUE)
        serialize = await _made(self._class("avro", "Serializer")(self._client, None, conf=conf))
        latest = {"use.latest.version": True}
        deserialize = await _made(self._class("avro", "Deserializer")(self._client, conf=latest))
        value = {"order": {"id": "one", "amount": 1}, "number": 2}
        assert await _made(deserialize(await _made(serialize(value, context)), context)) == value

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
        return await _made(made)

    async def _deserializer(self, form: str) -> Any:
        cls = self._class(form, "Deserializer")
        if form == "protobuf":
            made = cls(self._type(2), {"use.deprecated.format": False}, self._client)
        elif form == "json":
            made = cls(None, schema_registry_client=self._client)
        else:
            made = cls(self._client)
        return await _made(made)

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
        return _message_type(self._directory, f"order_{version}.proto", "shop.Order")


async def _made(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@functools.cache
def _message_type(directory: Path, name: str, message: str) -> Any:
    """Return the class of a message. protoc compiles the file."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "set"
        options = [f"-I{directory}", f"-I{KNOWN_TYPES}", "--include_imports"]
        code = protoc.main(["protoc", *options, f"--descriptor_set_out={out}", name])
        assert code == 0, name
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
