"""Scenarios of a schema registry on confluent-kafka-python's clients, plain and asyncio.

`conformance/schema_registry/programs.py` describes the command line. ``--asyncio`` before the name
of the scenario selects the asyncio client, whose methods have the same names.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import registry_serdes
from confluent_kafka.schema_registry import (
    AssociationCreateOrUpdateRequest,
    AsyncSchemaRegistryClient,
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import (
    DekRegistryClient,
)

KINDS = {"avsc": "AVRO", "json": "JSON", "proto": "PROTOBUF"}
REFERENCES = {
    "avsc": "shop.Order",
    "json": "http://shop.example/order.json",
    "proto": "order.proto",
}


async def done(value: Any) -> Any:
    """Return a result of the plain client, or wait for one of the asyncio client."""
    return await value if inspect.isawaitable(value) else value


class Scenarios:
    """The scenarios of one client. Each raises AssertionError when a response differs."""

    def __init__(self, url: str, directory: Path, *, is_async: bool) -> None:
        self._directory = directory
        self._url = url
        self._class = AsyncSchemaRegistryClient if is_async else SchemaRegistryClient
        self._client: Any = self._class({"url": url})
        self._is_async = is_async

    def schema(self, name: str, **more: Any) -> Schema:
        text = (self._directory / name).read_text(encoding="utf-8")
        return Schema(text, KINDS[name.rpartition(".")[2]], **more)

    async def expect(self, code: int, call: Any) -> None:
        try:
            found = await done(call())
        except SchemaRegistryError as error:
            assert error.error_code == code, f"{error.error_code} instead of {code}: {error}"
        else:
            raise AssertionError(f"{found!r} instead of error {code}")

    async def lookups(self) -> None:
        client = self._client
        first, second = self.schema("order_1.avsc"), self.schema("order_2.avsc")
        schema_id = await done(client.register_schema("orders", first))
        response = await done(client.register_schema_full_response("orders", second, True))
        assert (schema_id, response.schema_id, response.version) == (1, 2, 2), response
        assert await done(client.register_schema("others", first)) == schema_id
        await self._look_up_versions()
        fresh = self._class({"url": self._url})
        found = await done(fresh.get_schema(1, "orders", fmt="resolved"))
        assert json.loads(found.schema_str) == json.loads(first.schema_str)
        found = await done(fresh.lookup_schema("orders", second))
        assert (found.schema_id, found.version) == (2, 2)
        by_guid = await done(fresh.get_schema_by_guid(found.guid))
        assert json.loads(by_guid.schema_str) == json.loads(second.schema_str)
        assert set(await done(client.get_schema_types())) == {"AVRO", "JSON", "PROTOBUF"}
        for other in ("json", "proto"):
            assert await done(client.register_schema(other, self.schema(f"order_1.{other}"))) > 2
            kept = await done(fresh.get_latest_version(other))
            assert kept.schema.schema_type == KINDS[other]

    async def _look_up_versions(self) -> None:
        client = self._client
        assert await done(client.get_versions("orders")) == [1, 2]
        assert await done(client.get_versions("orders", offset=1, limit=1)) == [2]
        assert (await done(client.get_version("orders", 1))).schema_id == 1
        assert (await done(client.get_latest_version("orders"))).version == 2
        assert await done(client.get_subjects()) == ["orders", "others"]
        assert await done(client.get_subjects("or")) == ["orders"]
        assert await done(client.get_subjects_by_schema_id(1)) == ["orders", "others"]
        found = await done(client.get_schema_versions(1, offset=1))
        assert [(each.subject, each.version) for each in found] == [("others", 1)]

    async def compatibility(self) -> None:
        client = self._client
        assert await done(client.get_compatibility()) == "BACKWARD"
        for ending in KINDS:
            first = self.schema(f"order_1.{ending}")
            second, wrong = (
                self.schema(f"{each}.{ending}") for each in ("order_2", "incompatible")
            )
            await done(client.register_schema(ending, first))
            assert await done(client.test_compatibility(ending, second))
            assert not await done(client.test_compatibility(ending, wrong, 1, verbose=True))
            assert not await done(client.test_compatibility_all_versions(ending, wrong))
            await self.expect(409, lambda s=ending, w=wrong: client.register_schema(s, w))
            await done(client.set_compatibility(ending, "NONE"))
            assert await done(client.get_compatibility(ending)) == "NONE"
            assert await done(client.register_schema(ending, wrong)) > 1
        for level in ConfigCompatibilityLevel:
            await done(client.set_compatibility(level=level.value))
            assert await done(client.get_compatibility()) == level.value

    async def references(self) -> None:
        client = self._client
        for ending, name in REFERENCES.items():
            subject = f"lines-{ending}"
            line = self.schema(f"line.{ending}", references=[SchemaReference(name, ending, 1)])
            await self.expect(42201, lambda s=subject, one=line: client.register_schema(s, one))
            await done(client.register_schema(ending, self.schema(f"order_1.{ending}")))
            line_id = await done(client.register_schema(subject, line))
            found = await done(self._class({"url": self._url}).get_schema(line_id))
            assert found.references == line.references, found.references
            assert await done(client.get_referenced_by(ending, 1)) == [line_id]
            await self.expect(42206, lambda s=ending: client.delete_version(s, 1))

    async def errors(self) -> None:
        client = self._client
        schema = self.schema("order_1.avsc")
        await self.expect(40401, lambda: client.get_versions("unknown"))
        await self.expect(40401, lambda: client.get_latest_version("unknown"))
        await self.expect(40401, lambda: client.lookup_schema("unknown", schema))
        await self.expect(40401, lambda: client.delete_subject("unknown"))
        await self.expect(40403, lambda: client.get_schema(99))
        await done(client.register_schema("orders", schema))
        await self.expect(40402, lambda: client.get_version("orders", 9))
        await self.expect(42202, lambda: client.get_version("orders", 0))
        await self.expect(
            40403, lambda: client.lookup_schema("orders", self.schema("order_2.avsc"))
        )
        await self.expect(40408, lambda: client.get_config("orders"))
        await self.expect(40409, lambda: client.get_mode("orders"))
        await self.expect(42203, lambda: client.set_compatibility("orders", "SOME"))
        await self.expect(42204, lambda: client.update_mode("orders", "SOME"))
        for ending in KINDS:
            wrong = self.schema(f"invalid.{ending}")
            await self.expect(42201, lambda w=wrong: client.register_schema("new", w))

    async def deletes(self) -> None:
        client = self._client
        first, second = self.schema("order_1.avsc"), self.schema("order_2.avsc")
        for schema in (first, second):
            await done(client.register_schema("orders", schema))
        await self.expect(40407, lambda: client.delete_version("orders", 1, permanent=True))
        assert await done(client.delete_version("orders", 1)) == 1
        await self.expect(40406, lambda: client.delete_version("orders", 1))
        assert await done(client.get_versions("orders")) == [2]
        assert await done(client.get_versions("orders", deleted=True)) == [1, 2]
        assert (await done(client.get_version("orders", 1, deleted=True))).schema_id == 1
        found = await done(client.lookup_schema("orders", first, deleted=True))
        assert found.version == 1
        assert await done(client.delete_version("orders", 1, permanent=True)) == 1
        await self.expect(40402, lambda: client.get_version("orders", 1, deleted=True))
        await self.expect(40405, lambda: client.delete_subject("orders", permanent=True))
        assert await done(client.delete_subject("orders")) == [2]
        await self.expect(40404, lambda: client.delete_subject("orders"))
        assert await done(client.get_subjects()) == []
        assert await done(client.get_subjects(deleted=True)) == ["orders"]
        assert await done(client.delete_subject("orders", permanent=True)) == [2]
        assert await done(client.get_subjects(deleted=True)) == []

    async def contexts(self) -> None:
        first, second = self.schema("order_1.avsc"), self.schema("order_2.avsc")
        qualified = ":.sales:orders"
        assert await done(self._client.register_schema("orders", first)) == 1
        assert await done(self._client.register_schema(qualified, second)) == 1
        assert await done(self._client.get_contexts()) == [".", ".sales"]
        prefixed = self._class({"url": f"{self._url}/contexts/.sales"})
        found = await done(prefixed.get_latest_version("orders"))
        assert (found.subject, found.schema_id) == (qualified, 1)
        assert await done(prefixed.get_subjects()) == [qualified]
        fresh = self._class({"url": self._url})
        texts = [
            json.loads((await done(fresh.get_schema(1, subject))).schema_str)
            for subject in ("orders", qualified)
        ]
        assert texts == [json.loads(each.schema_str) for each in (first, second)]

    async def settings(self) -> None:
        client = self._client
        level = ConfigCompatibilityLevel.FULL
        config = ServerConfig(compatibility=level, compatibility_group="major")
        sent = {"compatibility": "FULL", "compatibilityGroup": "major"}
        assert await done(client.set_config("orders", config)) == sent
        found = await done(client.get_config("orders"))
        assert (found.compatibility_level, found.compatibility_group) == (level, "major")
        await done(client.delete_config("orders"))
        await self.expect(40408, lambda: client.get_config("orders"))
        await done(client.set_config(config=ServerConfig(compatibility=level)))
        assert (await done(client.get_config())).compatibility_level == level
        await done(client.delete_config())
        assert await done(client.get_compatibility()) == "BACKWARD"
        await self._change_modes()

    async def _change_modes(self) -> None:
        client = self._client
        assert await done(client.get_global_mode()) == "READWRITE"
        assert await done(client.update_mode("orders", "READONLY")) == "READONLY"
        assert await done(client.get_mode("orders")) == "READONLY"
        schema = self.schema("order_1.avsc")
        await self.expect(42205, lambda: client.register_schema("orders", schema))
        assert await done(client.delete_mode("orders")) == "READONLY"
        assert await done(client.register_schema("orders", schema)) == 1
        await self.expect(42205, lambda: client.update_global_mode("IMPORT"))
        assert await done(client.update_global_mode("IMPORT", force=True)) == "IMPORT"
        assert await done(client.update_global_mode("READWRITE")) == "READWRITE"

    async def contracts(self) -> None:
        client = self._client
        rule = Rule(
            "positive", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None,
            "message.amount > 0", None, None, False,
        )  # fmt: skip
        owner = Metadata(None, MetadataProperties({"owner": "team"}), None)
        schema = self.schema("order_1.avsc", metadata=owner, rule_set=RuleSet([], [rule]))
        assert await done(client.register_schema("orders", schema)) == 1
        found = await done(client.get_latest_with_metadata("orders", {"owner": "team"}))
        assert found.schema.metadata.properties.properties == {"owner": "team"}
        [kept] = found.schema.rule_set.domain_rules
        assert (kept.name, kept.type, kept.expr) == ("positive", "CEL", "message.amount > 0")
        await self.expect(
            40403, lambda: client.get_latest_with_metadata("orders", {"owner": "others"})
        )

    async def generated(self) -> None:
        serdes = registry_serdes.Serdes(self._client, self._directory, is_async=self._is_async)
        await serdes.register_imports(self._class({"url": self._url}))
        found = await done(self._client.get_latest_version("events-value", fmt="serialized"))
        assert [each.name for each in found.schema.references] == ["order_1.proto"]
        assert await done(self._client.get_subjects()) == ["events-value", "order_1.proto"]
        order = self.schema("order_1.avsc")
        await done(self._client.register_schema("order", order))
        reference = SchemaReference("shop.Order", "order", 1)
        await serdes.use_latest(self.schema("line.avsc", references=[reference]))

    async def unsupported(self) -> None:
        """Call methods whose endpoints are not implemented. Each gets the error of a path."""
        client = self._client
        request = AssociationCreateOrUpdateRequest("orders", "cluster", "1", "topic", [])
        await self.expect(404, lambda: client.create_association(request))
        await self.expect(
            404, lambda: client.get_associations_by_resource_name("orders", "cluster")
        )
        await self.expect(404, lambda: client.delete_associations("1"))
        if not self._is_async:  # the asyncio client has no client for keys
            keys = DekRegistryClient({"url": self._url})
            await self.expect(404, lambda: keys.get_kek("kek"))
            await self.expect(404, lambda: keys.register_kek("kek", "local-kms", "1"))
            await self.expect(404, lambda: keys.get_dek("kek", "orders"))
            await self.expect(404, lambda: keys.register_dek("kek", "orders", "material"))

    async def write(self, bootstrap: str, form: str, topic: str, name: str) -> None:
        serdes = registry_serdes.Serdes(self._client, self._directory, is_async=self._is_async)
        await serdes.write(bootstrap, form, topic, name)

    async def read(self, bootstrap: str, form: str, count: str, *topics: str) -> None:
        serdes = registry_serdes.Serdes(self._client, self._directory, is_async=self._is_async)
        for topic in topics:
            for value in await serdes.read(bootstrap, form, topic, int(count)):
                print(json.dumps({"topic": topic, **value}))


def main() -> None:
    words = sys.argv[1:]
    is_async = words[0] == "--asyncio"
    scenario, url, directory, *arguments = words[1:] if is_async else words

    async def run() -> None:
        scenarios = Scenarios(url, Path(directory), is_async=is_async)
        method: Callable[..., Awaitable[None]] = getattr(scenarios, scenario)
        await method(*arguments)

    asyncio.run(run())


if __name__ == "__main__":
    main()
