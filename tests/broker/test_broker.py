"""Lifecycle of a broker: start, errors at the start, restart, stop and periodic work."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import STORE_FILE, BrokerServer
from odradek.broker.periodic import PeriodicTasks
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.environment.environment import Environment
from odradek.errors import KafkaError
from odradek.ids import Uuid, uuid_to_string
from odradek.log.state.checkpoints import PARTITION_METADATA_FILE
from odradek.metadata.store.memory import MemoryStore
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import TIMEOUT_S, WireClient
from tests.hostile.process import BrokerProcess


def config_of(directory: Path, **properties: Any) -> BrokerConfig:
    configs = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    configs |= {name.replace("_", "."): str(value) for name, value in properties.items()}
    return BrokerConfig.from_properties(configs)


def with_server(
    config: BrokerConfig, work: Callable[[BrokerServer], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Run `work` with a started broker on a new event loop."""

    async def main() -> None:
        server = BrokerServer(config, **options)
        await server.start()
        try:
            await work(server)
        finally:
            await server.stop()

    asyncio.run(main())


def read_all(client: WireClient, topic: str = "t") -> tuple[int, int, int]:
    """Return (high watermark, log start offset, bytes of records)."""
    got = client.call(fetch(topic), 11).responses[0].partitions[0]
    assert got.error_code == 0
    return got.high_watermark, got.log_start_offset, len(got.records)


def test_restart_keeps_topics_records_and_committed_state(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", 2, {"retention.ms": 12345})
        for _ in range(5):
            client.call(produce(), 9)
        before = read_all(client)
    assert before[0] == 5
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        assert read_all(client) == before
        got = client.call(produce(), 9).responses[0].partition_responses[0]
        assert got.base_offset == 5

        async def look(server: BrokerServer) -> tuple[int, int]:
            partition = server.services.replica_manager.partition("t", 0)
            return partition.log.config.retention_ms, partition.leader_epoch

        assert broker.call(look) == (12345, 1)


def test_topic_recreated_while_the_broker_was_down_has_no_stale_data(tmp_path: Path) -> None:
    """The log belongs to a topic id that no longer exists."""
    with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        client.call(produce(), 9)
    id_file = tmp_path / "t-0" / PARTITION_METADATA_FILE
    id_file.write_text(f"version: 0\ntopic_id: {uuid_to_string(Uuid(bytes(range(16))))}")
    with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        assert read_all(client) == (0, 0, 0)


def test_topics_outlive_the_metadata_store_without_their_configs(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        broker.create_topic("t", 1, {"retention.ms": 12345})
        client.call(produce(), 9)
        before = read_all(client)
        ids = broker.server.services.image().topics_by_id.keys()
    for path in tmp_path.glob(f"{STORE_FILE}*"):
        path.unlink()
    with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
        assert read_all(client) == before
        image = broker.server.services.image()
    assert image.topics_by_id.keys() == ids
    assert image.topic_configs == {}


def test_second_broker_on_the_same_directory_is_refused_with_one_line(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        with pytest.raises((KafkaError, OSError), match="in use") as caught:
            Broker(data_dir=tmp_path).start()
        assert "\n" not in str(caught.value)


def test_port_in_use_is_reported_in_one_line_and_leaves_no_threads_or_locks(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use") as caught:
            Broker(data_dir=tmp_path, port=taken.getsockname()[1]).start()
        assert "\n" not in str(caught.value)
    assert not set(threading.enumerate()) - threads
    with Broker(data_dir=tmp_path):
        pass


def test_one_log_line_names_the_advertised_addresses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(server: BrokerServer) -> None:
        return

    caplog.set_level(logging.INFO)
    with_server(config_of(tmp_path), nothing, store=MemoryStore())
    text = "it advertises to each client the address"
    assert len([r for r in caplog.records if text in r.message]) == 1
    caplog.clear()
    advertised = config_of(tmp_path, advertised_listeners="PLAINTEXT://kafka.example:1234")
    with_server(advertised, nothing, store=MemoryStore())
    assert "it advertises PLAINTEXT://kafka.example:1234" in caplog.text


def test_the_log_names_a_relative_data_directory_with_its_whole_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(server: BrokerServer) -> None:
        return

    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    with_server(config_of(Path("data")), nothing, store=MemoryStore())
    assert f"data is in {tmp_path / 'data'}, and" in caplog.text


def test_configs_without_effect_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(server: BrokerServer) -> None:
        return

    config = config_of(tmp_path, num_network_threads=3, no_such_thing=1)
    with_server(config, nothing, store=MemoryStore())
    assert "no effect in Odradek (see docs/configuration.md): num.network.threads" in caplog.text
    assert "unknown configs are ignored, check their spelling: no.such.thing" in caplog.text


def test_reset_removes_all_data_and_keeps_connections(broker: Broker, client: WireClient) -> None:
    for _ in range(3):
        broker.create_topic("t", 3)
        assert client.call(produce(), 9).responses[0].partition_responses[0].base_offset == 0
        broker.reset()
    assert client.call(produce(), 9).responses[0].partition_responses[0].error_code == 3


def test_periodic_work_follows_the_injected_clock(tmp_path: Path) -> None:
    clock = ManualClock()

    async def work(server: BrokerServer) -> None:
        await server.create_topic("t", 1, {"retention.ms": "1000", "flush.ms": "5000"})
        partition = server.services.replica_manager.partition("t", 0)
        stamped = batch(b"x", timestamp_ms=clock.time_ms())
        partition.append(memoryview(stamped), 1, clock.time_ms())
        upkeep = PeriodicTasks(server.services)
        await upkeep.maintain()
        await upkeep.delete_old_segments()
        assert (partition.log.log_start_offset, partition.log.recovery_point) == (0, 0)
        clock.advance(5001)
        await upkeep.maintain()
        assert partition.log.recovery_point == 1
        await upkeep.delete_old_segments()
        assert partition.log.log_start_offset == 1

    with_server(
        config_of(tmp_path), work, environment=Environment(clock=clock), store=MemoryStore()
    )


def test_failed_periodic_work_is_logged_and_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(server: BrokerServer) -> None:
        done = asyncio.Event()
        calls = []

        async def broken() -> None:
            calls.append(1)
            if len(calls) == 2:
                done.set()
            raise ZeroDivisionError

        upkeep = PeriodicTasks(server.services)
        upkeep._every(1, broken)
        await asyncio.wait_for(done.wait(), TIMEOUT_S)
        await upkeep.stop()

    with_server(config_of(tmp_path), work, store=MemoryStore())
    assert "ZeroDivisionError" in caplog.text


def make_topic(client: WireClient) -> None:
    """Produce until the topic exists, which a Metadata request creates."""
    from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        client.call(request, 9)
        if not client.call(produce(), 9).responses[0].partition_responses[0].error_code:
            return
    raise AssertionError("the topic was not made")


def test_killed_broker_keeps_acknowledged_records(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process, WireClient(process.bootstrap_servers) as client:
        make_topic(client)
        for _ in range(50):
            last = client.call(produce(), 9).responses[0].partition_responses[0].base_offset
        process.kill()
    with BrokerProcess(tmp_path) as process, WireClient(process.bootstrap_servers) as client:
        assert read_all(client)[0] == last + 1
        got = client.call(produce(), 9).responses[0].partition_responses[0]
        assert got.base_offset == last + 1
        process.kill()


def test_sigterm_completes_pending_requests_and_ends_cleanly(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process, WireClient(process.bootstrap_servers) as client:
        make_topic(client)
        client.send(fetch(offset=1, max_wait_ms=600_000), 11)
        # The broker has executed the fetch when a later request on another connection has a
        # response.
        with WireClient(process.bootstrap_servers) as other:
            read_all(other)
        process.terminate()
        assert client.receive().responses[0].partitions[0].error_code == 0
        assert process.close() == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()
