"""`odradek.testing.Broker`: ready after the start, and nothing left after `close`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.broker.broker import BrokerServer
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.quotas import QuotaAlteration
from odradek.metadata.resources import ResourceType
from odradek.testing import Broker
from testkit.peer.server import free_ports

TIMEOUT_S = 120
THREADS = "log.cleaner.threads"


def _produce(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def _consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, TIMEOUT_S)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_round_trip_in_a_with_statement() -> None:
    with Broker() as broker:
        _produce(broker.bootstrap_servers, "t", b"1", b"2")
        assert _consume(broker.bootstrap_servers, "t", 2) == [b"1", b"2"]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are checked below with a thousand brokers, because others may run here too."""
    (port,) = free_ports(1)  # a port that the system does not assign to others later
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Broker(port=port) as broker:
        assert list(tmp_path.iterdir())
        thread = broker._thread
        assert thread in threading.enumerate()
    assert not list(tmp_path.iterdir())
    assert thread not in threading.enumerate()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def test_reset_deletes_topics_and_groups_and_changes_topic_ids(kafka: Broker) -> None:
    servers = kafka.bootstrap_servers
    kafka.create_topic("t", partitions=2)
    _produce(servers, "t", b"old")
    kafka.reset()
    assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=TIMEOUT_S).topics == {}
    kafka.create_topic("t")
    _produce(servers, "t", b"new")
    assert _consume(servers, "t", 1) == [b"new"]


def test_reset_deletes_altered_configs_and_quotas(kafka: Broker) -> None:
    async def alter(server: BrokerServer) -> None:
        change = ConfigOp(THREADS, OpType.SET, "2")
        group = ConfigOp("consumer.session.timeout.ms", OpType.SET, "50000")
        quota = QuotaAlteration((("client-id", "app"),), [("producer_byte_rate", 1.0)])
        results = await server.services.controller.alter_configs(
            [
                ConfigChange(ResourceType.BROKER, "", [change]),
                ConfigChange(ResourceType.GROUP, "readers", [group]),
            ]
        )
        results += (await server.services.controller.alter_client_quotas([quota])).values()
        assert results == [None, None, None]

    async def altered(server: BrokerServer) -> list[object]:
        image = server.services.image()
        configs = [*image.broker_configs.values(), *image.group_configs.values()]
        return [*filter(None, configs), *image.client_quotas, server.config.explicit(THREADS)]

    kafka.call(alter)
    assert len(kafka.call(altered)) == 4
    kafka.reset()
    assert kafka.call(altered) == [False]


def test_reset_restores_a_number_of_threads_that_was_raised_step_by_step(kafka: Broker) -> None:
    async def raise_threads(server: BrokerServer) -> list[object]:
        changes = [
            ConfigChange(ResourceType.BROKER, "", [ConfigOp(THREADS, OpType.SET, str(count))])
            for count in (2, 4, 8)
        ]
        return [await server.services.controller.alter_configs([each]) for each in changes]

    async def threads(server: BrokerServer) -> int:
        return server.config.get_int(THREADS)

    assert kafka.call(raise_threads) == [[None]] * 3
    assert kafka.call(threads) == 8
    kafka.reset()
    assert kafka.call(threads) == 1


class TestFixtureAfterTheSharedBrokerWasUsed:
    """Topics that a test leaves in the session's `kafka_broker` do not exist in `kafka`."""

    @pytest.fixture(autouse=True)
    def _used(self, kafka_broker: Broker) -> None:
        kafka_broker.create_topic("left-behind")

    def test_kafka_is_empty(self, _used: None, kafka: Broker) -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert admin.list_topics(timeout=TIMEOUT_S).topics == {}


def test_configs_of_kafka_are_applied() -> None:
    with Broker({"num.partitions": 4, "auto.create.topics.enable": True}) as broker:
        _produce(broker.bootstrap_servers, "t", b"1")
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics("t")
        assert len(metadata.topics["t"].partitions) == 4


def test_a_data_directory_of_the_caller_remains_after_close(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        _produce(broker.bootstrap_servers, "t", b"kept")
    with Broker(data_dir=tmp_path) as broker:
        assert _consume(broker.bootstrap_servers, "t", 1) == [b"kept"]


def test_error_that_prevents_the_start_is_raised(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises((OSError, KafkaError), match="in use"):
            Broker(port=taken.getsockname()[1]).start()
    with Broker(data_dir=tmp_path):
        with pytest.raises(OSError, match="in use by another process"):
            Broker(data_dir=tmp_path).start()
    with pytest.raises(KafkaError) as caught:
        Broker({"num.partitions": "many"}).start()
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_two_brokers_share_no_state() -> None:
    with Broker() as one, Broker() as other:
        _produce(one.bootstrap_servers, "t", b"one")
        admin = AdminClient({"bootstrap.servers": other.bootstrap_servers})
        assert admin.list_topics(timeout=TIMEOUT_S).topics == {}


CYCLES = 1000
WORKERS = 8


def test_a_thousand_brokers_by_eight_workers_leave_nothing_behind(tmp_path: Path) -> None:
    """After open, produce, consume and close no port, descriptor, thread or directory is left."""
    script = tmp_path / "cycles.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, threading, time
            from concurrent.futures import ThreadPoolExecutor
            from pathlib import Path
            from tests.testing.test_broker import _consume, _produce
            from odradek.testing import Broker

            def cycle(number):
                with Broker() as broker:
                    _produce(broker.bootstrap_servers, "t", b"%d" % number)
                    assert _consume(broker.bootstrap_servers, "t", 1) == [b"%d" % number]
                    return int(broker.bootstrap_servers.rpartition(":")[2])

            def held():
                return len(os.listdir("/proc/self/fd")), threading.active_count()

            cycles, workers, temporary = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
            cycle(0)
            before = held()
            with ThreadPoolExecutor(workers) as pool:
                ports = list(pool.map(cycle, range(cycles)))
            deadline = time.monotonic() + 60
            while (after := held()) != before and time.monotonic() < deadline:
                time.sleep(0.01)  # threads of the clients may still be ending
            tcp = Path("/proc/net/tcp").read_text().splitlines()[1:]
            listening = {int(l.split()[1].split(":")[1], 16) for l in tcp if l.split()[3] == "0A"}
            print(before, after, sorted(listening & set(ports)), list(temporary.iterdir()))
            assert after == before and not list(temporary.iterdir())
            """
        )
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, str(script), str(CYCLES), str(WORKERS), str(temporary)],
        cwd=root,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
