"""Only the user of the broker may read the files that it writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.ids import TopicPartition
from odradek.metadata.store.memory import MemoryStore
from odradek.net.listener import Endpoint
from odradek.testing import Broker
from odradek.testing.state import do_periodic_work
from testkit.requests import produce
from testkit.wire import WireClient
from tests.broker.test_broker import config_of, with_server
from tests.hostile.process import TIMEOUT_S, BrokerProcess

CONFIG = {
    "log.cleaner.backoff.ms": 3_600_000,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    """A umask of 0, so that files get exactly the mode with which they are created."""
    before = os.umask(0)
    yield
    os.umask(before)


def others_may(data: Path) -> dict[str, str]:
    """Return the modes of `data` and its contents that differ from 0700 (directory) or 0600."""
    found = {}
    for path in (data, *data.rglob("*")):
        try:
            status = path.lstat()
        except FileNotFoundError:  # a running broker has renamed or removed it
            continue
        expected = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if stat.S_IMODE(status.st_mode) != expected:
            found[str(path)] = stat.filemode(status.st_mode)
    return found


def use(bootstrap_servers: str) -> None:
    """Write records in transactions, read them and commit offsets."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": "mover", "linger.ms": 0}
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe(["pages"])
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("pages", b"x", key=b"k")
        producer.flush(TIMEOUT_S)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    while (message := consumer.poll(TIMEOUT_S)) is None or message.error():
        pass
    for _ in range(20):
        consumer.commit(message, asynchronous=False)
    consumer.close()


async def compact_and_delete(server: Any) -> None:
    """Compact the committed offsets, and delete a topic whose files stay for a minute."""
    services = server.services
    for log in services.log_manager.all_logs():
        log.roll(services.clock.time_ms())
        log.flush()
    services.log_manager.checkpoint()
    cleaned = await server.log_cleaner.clean()
    assert cleaned >= 1
    assert services.log_manager.cleaned_offset(
        services.log_manager.get(TopicPartition("__consumer_offsets", 0))
    )
    await do_periodic_work(server)
    await services.controller.delete_topics([services.image().topics_by_name["gone"].topic_id])


def test_everything_in_a_new_data_directory_is_for_its_user_only(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    with Broker(CONFIG, data_dir=data) as broker:
        assert not others_may(tmp_path / "new"), "a broker without records"
        broker.create_topic("pages")
        broker.create_topic("gone")
        with WireClient(broker.bootstrap_servers) as client:
            client.call(produce("gone"), 9)
        use(broker.bootstrap_servers)
        assert not others_may(data)
        broker.call(compact_and_delete)
        assert not others_may(data)
        assert list(data.glob("gone-0.*-delete"))
    assert (data / ".kafka_cleanshutdown").exists()
    assert not others_may(data), "after a clean stop"
    for _ in range(2):
        with BrokerProcess(data, CONFIG) as process:
            use(process.bootstrap_servers)
            assert not others_may(data)
            process.kill()
        assert not others_may(data), "after a crash"


def test_directories_and_files_that_exist_keep_their_modes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o750)
    with Broker(CONFIG, data_dir=data):
        pass
    for path in data.iterdir():
        path.chmod(0o640)
    with Broker(CONFIG, data_dir=data):
        assert stat.S_IMODE(data.stat().st_mode) == 0o750
        for name in ("odradek-metadata.sqlite", "meta.properties", ".lock"):
            assert stat.S_IMODE((data / name).stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "fe80::1")],
)
def test_addresses_of_this_machine_only(host: str, loopback: bool) -> None:
    assert Endpoint("PLAINTEXT", host, 9092).is_loopback is loopback


@pytest.mark.parametrize("elsewhere", [False, True])
def test_one_warning_says_that_clients_elsewhere_are_not_authenticated(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: bool,
) -> None:
    """The endpoint is not opened, because tests listen only on addresses of the loopback."""

    async def nothing(_server: object) -> None:
        return

    if elsewhere:
        monkeypatch.setattr(Endpoint, "is_loopback", False)
    config = config_of(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,OTHER://localhost:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    )
    with_server(config, nothing, store=MemoryStore())
    found = [each.message for each in caplog.records if "not authenticated" in each.message]
    assert len(found) == elsewhere
    assert all("PLAINTEXT://127.0.0.1" in each and "OTHER://" in each for each in found)
