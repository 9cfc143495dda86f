"""One instance on a real broker: its start, its writes, its stop and its failures."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.cli.serve import REGISTRY_STOP_S
from odradek.environment.clock import ManualClock
from odradek.registry import http_server, log_identity
from odradek.registry import server as server_module
from odradek.registry.election import URL_LENGTH_MAX
from odradek.registry.kafka_settings import KafkaSettings, RefusedSetting
from odradek.registry.log_identity import LogLost
from odradek.registry.records import SchemaRecord, encode
from odradek.registry.schemas_topic import BrokersUnavailable, RefusedTopic, prepare_topic
from odradek.registry.server import RefusedAddress, RegistryServer, ServerOptions
from odradek.testing import Broker

TIMEOUT_S = 120.0
AVRO = '{"type":"string"}'


def options(servers: str, **changes: Any) -> ServerOptions:
    return ServerOptions(KafkaSettings(servers), port=0, **changes)


def run(
    chosen: ServerOptions,
    test: Callable[[RegistryServer, httpx.AsyncClient], Coroutine[Any, Any, None]],
) -> None:
    async def in_loop() -> None:
        server = RegistryServer(chosen)
        await server.start()
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT_S) as client:
                await test(server, client)
        finally:
            await server.stop()

    asyncio.run(in_loop())


async def register(client: httpx.AsyncClient, subject: str, schema: str = AVRO) -> int:
    response = await client.post(f"/subjects/{subject}/versions", json={"schema": schema})
    assert response.status_code == 200, response.text
    schema_id: int = response.json()["id"]
    return schema_id


def test_responses_are_sent_without_a_wait_for_acknowledgements(kafka: Broker) -> None:
    """asyncio turns Nagle's algorithm off if the listener names its protocol."""

    async def test(server: RegistryServer, client: httpx.AsyncClient) -> None:
        assert (await client.get("/")).status_code == 200
        found = [
            each.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for each in _transports(server)
        ]
        assert found and all(found)

    run(options(kafka.bootstrap_servers), test)


def _transports(server: RegistryServer) -> list[asyncio.Transport]:
    """Return the open connections of the HTTP server."""
    assert server._parts is not None
    connections = server._parts.http._server.server_state.connections
    return [each.transport for each in connections]


def test_a_registered_schema_is_read_again_after_a_restart(kafka: Broker) -> None:
    ids: list[int] = []

    async def write(server: RegistryServer, client: httpx.AsyncClient) -> None:
        ids.append(await register(client, "pages-value"))
        assert server.is_writer

    async def read(_: RegistryServer, client: httpx.AsyncClient) -> None:
        found = await client.get(f"/schemas/ids/{ids[0]}")
        assert found.json()["schema"] == '"string"'
        assert await register(client, "pages-value") == ids[0]
        assert await register(client, "other-value", '{"type":"long"}') == ids[0] + 1

    run(options(kafka.bootstrap_servers), write)
    run(options(kafka.bootstrap_servers), read)


def test_the_instance_refuses_connections_until_it_has_read_the_log(kafka: Broker) -> None:
    settings = KafkaSettings(kafka.bootstrap_servers)
    prepare_topic(settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(1000):
        key, value = encode(SchemaRecord(f"s{number}", 1, number + 1, '"string"'))
        producer.produce("_schemas", value, key, 0)
    assert producer.flush(TIMEOUT_S) == 0

    async def test(_: RegistryServer, client: httpx.AsyncClient) -> None:
        assert len((await client.get("/subjects")).json()) == 1000

    run(options(kafka.bootstrap_servers), test)


def test_foreign_records_are_skipped_and_named_and_stay_in_the_topic(
    kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    prepare_topic(KafkaSettings(kafka.bootstrap_servers))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("_schemas", b"{", b"{", 0)
    assert producer.flush(TIMEOUT_S) == 0

    async def test(_: RegistryServer, client: httpx.AsyncClient) -> None:
        assert await register(client, "pages-value") == 1

    with caplog.at_level(logging.WARNING):
        run(options(kafka.bootstrap_servers), test)
    (line,) = [each.getMessage() for each in caplog.records if "skipped" in each.getMessage()]
    assert line.startswith("the record at offset 0 of topic '_schemas' is skipped: ")


def test_a_port_in_use_is_one_line(kafka: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        chosen = ServerOptions(KafkaSettings(kafka.bootstrap_servers), port=port)
        with pytest.raises(RefusedAddress) as raised:
            asyncio.run(RegistryServer(chosen).start())
    assert "in use" in str(raised.value) and "--listen" in str(raised.value)


def test_a_refused_topic_ends_the_start_and_frees_the_port(kafka: Broker) -> None:
    kafka.create_topic("_schemas", partitions=2, config={"cleanup.policy": "compact"})

    async def start() -> int:
        server = RegistryServer(options(kafka.bootstrap_servers))
        with pytest.raises(RefusedTopic):
            await server.start()
        return server.port

    port = asyncio.run(start())
    socket.create_server(("127.0.0.1", port)).close()


def test_an_url_that_is_too_long_is_refused(kafka: Broker) -> None:
    url = "http://" + "h" * URL_LENGTH_MAX
    with pytest.raises(RefusedSetting, match="--advertise"):
        asyncio.run(RegistryServer(options(kafka.bootstrap_servers, advertised_url=url)).start())


def test_a_start_waits_for_brokers_and_then_gives_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    attempts: list[int] = []

    def unavailable(_: KafkaSettings) -> None:
        attempts.append(1)
        clock.advance(25_000)
        raise BrokersUnavailable("No broker responds at x.")

    monkeypatch.setattr(server_module, "prepare_topic", unavailable)
    monkeypatch.setattr(server_module, "START_RETRY_S", 0.0)
    with caplog.at_level(logging.WARNING), pytest.raises(BrokersUnavailable):
        asyncio.run(RegistryServer(options("127.0.0.1:1"), clock=clock).start())
    assert len(attempts) == 3
    assert "tries again" in caplog.text


def test_a_topic_that_was_deleted_and_created_again_ends_the_instance(kafka: Broker) -> None:
    async def test(server: RegistryServer, client: httpx.AsyncClient) -> None:
        await register(client, "pages-value")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        await asyncio.to_thread(admin.delete_topics(["_schemas"])["_schemas"].result, TIMEOUT_S)
        await asyncio.to_thread(prepare_topic, KafkaSettings(kafka.bootstrap_servers))
        with pytest.raises(LogLost):
            async with asyncio.timeout(TIMEOUT_S):
                await server.failed()

    run(options(kafka.bootstrap_servers), test)


def test_a_new_topic_that_is_longer_than_the_old_one_ends_the_instance(kafka: Broker) -> None:
    """The reader finds records at its position, but they are those of another topic."""

    async def test(server: RegistryServer, client: httpx.AsyncClient) -> None:
        await register(client, "pages-value")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        await asyncio.to_thread(admin.delete_topics(["_schemas"])["_schemas"].result, TIMEOUT_S)
        await asyncio.to_thread(prepare_topic, KafkaSettings(kafka.bootstrap_servers))
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(40):
            key, value = encode(SchemaRecord(f"s{number}", 1, 139 - number, f'"restored{number}"'))
            producer.produce("_schemas", value, key, 0)
        assert await asyncio.to_thread(producer.flush, TIMEOUT_S) == 0
        with pytest.raises(LogLost):
            async with asyncio.timeout(TIMEOUT_S):
                await server.failed()
        assert not server.is_writer

    run(options(kafka.bootstrap_servers), test)


def test_a_deleted_topic_ends_the_instance(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_identity, "ABSENT_MS", 0.0)

    async def test(server: RegistryServer, client: httpx.AsyncClient) -> None:
        await register(client, "pages-value")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        await asyncio.to_thread(admin.delete_topics(["_schemas"])["_schemas"].result, TIMEOUT_S)
        with pytest.raises(LogLost, match="was deleted"):
            async with asyncio.timeout(TIMEOUT_S):
                await server.failed()

    run(options(kafka.bootstrap_servers), test)


def test_writes_continue_when_the_broker_forgets_the_member(kafka: Broker) -> None:
    """The clock of the broker passes the session timeout, so the group has no member."""

    async def test(_: RegistryServer, client: httpx.AsyncClient) -> None:
        first = await register(client, "a", '{"type":"string"}')
        await asyncio.to_thread(kafka.advance, 60.0)
        assert await register(client, "b", '{"type":"long"}') == first + 1

    run(options(kafka.bootstrap_servers), test)


def test_a_writer_that_another_program_fences_takes_over_again(kafka: Broker) -> None:
    async def test(_: RegistryServer, client: httpx.AsyncClient) -> None:
        first = await register(client, "a", '{"type":"string"}')
        settings = KafkaSettings(kafka.bootstrap_servers)
        cluster_id = (await asyncio.to_thread(prepare_topic, settings)).cluster_id
        intruder = Producer(settings.producer(cluster_id))
        await asyncio.to_thread(intruder.init_transactions, TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                response = await client.post(
                    "/subjects/b/versions", json={"schema": '{"type":"long"}'}
                )
                if response.status_code == 200:
                    break
                assert response.json()["error_code"] in (50002, 50004), response.text
                await asyncio.sleep(0.1)
        assert response.json()["id"] == first + 1

    run(options(kafka.bootstrap_servers), test)


def test_the_limits_of_a_stop_are_below_the_time_that_a_broker_waits_for_it() -> None:
    limits = (
        http_server.GRACE_S,
        http_server.ERRORS_S,
        server_module.LEAVE_TIMEOUT_S,
        server_module.READER_TIMEOUT_S,
        server_module.POOLS_TIMEOUT_MS / 1000,
    )
    assert sum(limits) < 10.0 < REGISTRY_STOP_S


def test_stop_ends_all_threads_of_the_instance(kafka: Broker) -> None:
    async def test(_: RegistryServer, client: httpx.AsyncClient) -> None:
        await register(client, "pages-value")

    before = set(threading.enumerate())
    run(options(kafka.bootstrap_servers), test)
    names = {each.name for each in set(threading.enumerate()) - before}
    assert not {name for name in names if name.startswith("odradek-registry")}
