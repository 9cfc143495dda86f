"""Requests of brokers are served on the inter-broker listener only."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.broker.requests.apis import API_BY_KEY, INTER_BROKER_APIS, Api
from odradek.client.connection import request_frame
from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Endpoint, SecurityProtocol
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.registry import request_class, response_class
from odradek.result_tasks import wait
from odradek.testing import Broker
from testkit.wire import ConnectionClosed, WireClient
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster
from tests.helpers.two_brokers import CONTROLLER_ID, Roles, TwoBrokers, run_with_two_brokers
from tests.protocol.building import build

Test = Callable[[TwoBrokers], Awaitable[None]]
BY_NAME = pytest.mark.parametrize("api", INTER_BROKER_APIS, ids=lambda api: api.message_name)


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    def start(test: Test, **config: str) -> None:
        run_with_two_brokers(tmp_path, test, config)

    return start


def test_each_api_is_in_one_of_the_tables() -> None:
    assert not {int(api.key) for api in INTER_BROKER_APIS} & set(API_BY_KEY)


@BY_NAME
def test_a_client_listener_ends_the_connection_as_kafka_does(run: Any, api: Api) -> None:
    async def test(brokers: TwoBrokers) -> None:
        request, response = request_class(api.key)(), response_class(api.key)
        with pytest.raises(ConnectionError):
            await brokers.call(request, response, CONTROLLER_ID, version=api.max_version)
        # The listener of the brokers has made the entry of this API. Clients still get none.
        await brokers.call(request, response, CONTROLLER_ID, listener="BROKERS")
        with pytest.raises(ConnectionError):
            await brokers.call(request, response, CONTROLLER_ID, version=api.max_version)

    run(test)


@BY_NAME
def test_a_single_broker_does_not_serve_the_api(api: Api) -> None:
    with Broker() as broker, WireClient(broker.bootstrap_servers) as client:
        with pytest.raises(ConnectionClosed):
            client.call(request_class(api.key)(), api.max_version)


def test_a_listener_for_clients_and_brokers_lists_the_apis_of_both(tmp_path: Path) -> None:
    """With Kafka's defaults, brokers and clients share the listener PLAINTEXT."""

    async def test(brokers: TwoBrokers) -> None:
        response = await brokers.call(
            ApiVersionsRequest("a", "1"), ApiVersionsResponse, listener="CLIENTS"
        )
        listed = {each.api_key for each in response.api_keys}
        assert {int(api.key) for api in INTER_BROKER_APIS} <= listed

    run_with_two_brokers(tmp_path, test, {"inter.broker.listener.name": "CLIENTS"})


@pytest.mark.parametrize("version", [4, 11, 12, 13, 15, 17])
@pytest.mark.parametrize("listener", ["CLIENTS", "BROKERS"])
def test_a_fetch_as_a_replica_is_refused_on_a_client_listener(
    run: Any, version: int, listener: str
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        await brokers.controller.create_topic("t", 1)
        topic = brokers.image(CONTROLLER_ID).topics_by_name["t"]  # type: ignore[index]
        requested = FetchTopic(
            "t" if version < 13 else "",
            topic.topic_id if version >= 13 else bytes(16),
            [FetchPartition(0, partition_max_bytes=1_000)],
        )
        request = FetchRequest(
            replica_id=2 if version < 15 else -1,
            replica_state=ReplicaState(2, 5) if version >= 15 else None,
            max_wait_ms=0,
            session_epoch=0 if version >= 7 else -1,
            topics=[requested],
        )
        response = await brokers.call(
            request, FetchResponse, CONTROLLER_ID, listener=listener, version=version
        )
        code = response.responses[0].partitions[0].error_code
        if listener == "CLIENTS":
            assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert response.session_id == 0
            assert not brokers.controller.services.fetch_sessions.sessions
        else:
            assert code not in (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        named = response.responses[0].topic_id if version >= 13 else response.responses[0].topic
        assert named == (topic.topic_id if version >= 13 else "t")

    run(test)


def test_a_consumer_is_served_on_both_listeners(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        await brokers.controller.create_topic("t", 1)
        request = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
        for listener in ("CLIENTS", "BROKERS"):
            response = await brokers.call(
                request, FetchResponse, CONTROLLER_ID, listener=listener, version=12
            )
            assert response.responses[0].partitions[0].error_code == 0

    run(test)


@pytest.mark.parametrize(
    ("properties", "is_member"),
    [
        ({"inter.broker.listener.name": "OTHER"}, False),
        ({"listeners": "A://127.0.0.1:0", "listener.security.protocol.map": "A:PLAINTEXT"}, True),
    ],
)
def test_a_broker_without_the_inter_broker_listener_does_not_start(
    tmp_path: Path, properties: dict[str, str], is_member: bool
) -> None:
    membership = Roles(1, {}) if is_member else None
    config = BrokerConfig({"log.dirs": str(tmp_path), **properties})
    server = BrokerServer(config, store=MemoryStore(), membership=membership)
    with pytest.raises(KafkaError) as caught:
        asyncio.run(server.start())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert not list(tmp_path.iterdir())


def test_a_single_broker_imports_no_channels_at_its_start() -> None:
    code = (
        "import sys; import odradek.broker.broker;"
        "found = [m for m in sys.modules if m.startswith(('odradek.client', "
        "'odradek.metadata.controller_channel', 'odradek.protocol.messages.')) "
        "and not m.endswith('_record')];"  # the controller changes metadata by records
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_single_broker_needs_no_inter_broker_listener() -> None:
    properties = {"listeners": "A://127.0.0.1:0", "listener.security.protocol.map": "A:PLAINTEXT"}
    with Broker(properties) as broker:
        assert broker.server.services.cluster is None


def test_a_registration_has_every_listener_with_its_security_protocol(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        registered = brokers.image(CONTROLLER_ID).brokers.get(CONTROLLER_ID)  # type: ignore[call-overload]
        plaintext = SecurityProtocol.PLAINTEXT
        assert [each._replace(port=0) for each in registered.listeners] == [
            Endpoint("CLIENTS", "127.0.0.1", 0, plaintext),
            Endpoint("BROKERS", "127.0.0.1", 0, plaintext),
        ]

    run(test)


async def exchange(port: int, frame: bytes) -> bytes:
    """Send a frame over a new connection. Return all bytes of the broker until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">i", len(frame)) + frame)
    writer.write_eof()
    received = await reader.read()
    writer.close()
    return received


def state_of(cluster: ClusterBrokers) -> list[tuple[Any, ...]]:
    """Return the metadata of each broker, and offsets, epochs and contents of its partitions."""
    state: list[tuple[Any, ...]] = []
    for broker_id, server in cluster.servers.items():
        state.append((broker_id, cluster.image(broker_id), cluster.controller_id))
        for partition in server.services.replica_manager.partitions():
            log = partition.log
            state.append(
                (
                    partition.topic_partition,
                    (partition.leader, partition.leader_epoch, partition.isr, partition.error),
                    (log.log_start_offset, log.high_watermark, log.log_end_offset),
                    log.epochs.entries(),
                    [Path(segment.file.path).read_bytes() for segment in log.segments],
                )
            )
    return state


def test_malformed_requests_of_brokers_cost_their_connection_only(
    tmp_path: Path, patient: None, seed: int
) -> None:
    random = Random(seed)

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[1, 2], [2, 1]])
        for number in range(2):
            await cluster.produce("t", b"first", b"second", partition=number)
        partitions = [
            server.services.replica_manager.partition("t", number)
            for server in cluster.servers.values()
            for number in range(2)
        ]
        await cluster.until(lambda: all(each.log.high_watermark == 2 for each in partitions))
        before = state_of(cluster)
        registered = {"broker_id": 2, "broker_epoch": cluster.member(2).broker_epoch}
        channel = cluster.channel(cluster.controller_id, "BROKERS")
        port = cluster.port(cluster.controller_id, "BROKERS")
        outcomes = {True: 0, False: 0}
        for api in INTER_BROKER_APIS:
            cls, response = request_class(api.key), response_class(api.key)
            for version in range(api.min_version, api.max_version + 1):
                message = build(cls, version, random)
                frame = request_frame(message, version, 5)
                for _ in range(10):
                    data = bytearray(frame)
                    data[random.randrange(8, len(data))] = random.randrange(256)
                    size = random.randrange(len(data))
                    # A drain has no epoch, so with another byte it may be one of broker 1 or 2.
                    if api.message_name != "DrainBroker":
                        size = random.choice([len(data), size])
                    outcomes[bool(await exchange(port, bytes(data[:size])))] += 1
                # The controller would execute these requests if they were whole.
                for name in registered.keys() & vars(cls).keys():
                    setattr(message, name, registered[name])
                frame = request_frame(message, version, 5)
                for size in (8, random.randrange(8, len(frame)), len(frame) - 1):
                    assert not await exchange(port, frame[:size])
            await wait(channel.send(cls(), response))
        assert outcomes[True] and outcomes[False]
        assert state_of(cluster) == before

    config = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
    run_with_cluster(tmp_path, test, count=2, config=config, session_timeout_ms=60_000)


def test_a_broker_of_a_cluster_needs_room_for_forwarded_requests(tmp_path: Path) -> None:
    """A single broker forwards nothing, and starts with any limit."""
    config = BrokerConfig({"log.dirs": str(tmp_path), "socket.request.max.bytes": "2047"})
    server = BrokerServer(config, store=MemoryStore(), membership=Roles(1, {}))
    with pytest.raises(KafkaError, match="needs at least 2048") as caught:
        asyncio.run(server.start())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
