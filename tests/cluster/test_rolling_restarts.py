"""Rolling restarts show no error to clients that retry, also from the release before."""

from __future__ import annotations

import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import Cluster
from testkit.zookeeper import ZooKeeperProcess
from tests.cluster.conftest import Processes
from tests.helpers.retrying_clients import LIMIT_S, TRANSACTIONAL, RetryingClients

PARTITIONS = 3
FORMER = Path(__file__).parents[1] / "data" / "odradek-1093d698" / "source.tar.xz"
"""The source of the release before, so that the test needs no history of the repository."""
HANDED_OVER = "has handed over its leaderships"
LINE_OF_THIS_RELEASE = re.compile(r"is registered with epoch \d+ in session 0x")


def _restart_all(
    clients: RetryingClients, broker_ids: list[int], restart: Callable[[int], None]
) -> None:
    """Restart each broker while the clients run, and check what they have seen."""
    with clients.running():
        clients.await_progress()
        for broker_id in broker_ids:
            restart(broker_id)
            clients.await_progress()
    assert clients.errors == []
    found = clients.read()
    for name, values in clients.acknowledged.items():
        for value in values:
            assert found[value] == 1 or (name == "plain" and found[value] > 1), value
            assert clients.consumed[value], f"the group has not received {value}"


def test_a_rolling_restart_shows_no_error_to_clients_that_retry(
    zookeeper: ZooKeeperProcess,
) -> None:
    with Cluster(3, processes=True, zookeeper=zookeeper.address) as cluster:
        cluster.create_topic("t", PARTITIONS)
        clients = RetryingClients(cluster.bootstrap_servers, "t", PARTITIONS)

        def restart(broker_id: int) -> None:
            before = cluster.pid(broker_id)
            cluster.restart(broker_id)
            assert cluster.pid(broker_id) != before
            # Without it the partitions have no leader until the controller notices the end.
            assert cluster.log_text(broker_id).count(HANDED_OVER) == 1
            cluster.wait_until_in_sync()

        _restart_all(clients, cluster.broker_ids, restart)


def test_a_rolling_upgrade_from_the_release_before_shows_no_error_to_clients_that_retry(
    processes: Processes, tmp_path: Path
) -> None:
    with tarfile.open(FORMER) as archive:
        archive.extractall(tmp_path / "former", filter="data")
    processes.start(
        1, 2, 3, source=tmp_path / "former", configs={"group.initial.rebalance.delay.ms": "0"}
    )
    admin = AdminClient({"bootstrap.servers": processes.bootstrap, "log_level": 0})
    topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
    (created,) = admin.create_topics([topic], request_timeout=LIMIT_S).values()
    created.result(LIMIT_S)

    def await_in_sync() -> None:
        deadline = time.monotonic() + LIMIT_S
        while any(len(isr) < 3 for isr in _isrs(admin)):
            assert time.monotonic() < deadline, "a replica is not in sync"
            time.sleep(0.1)

    def upgrade(broker_id: int) -> None:
        assert not LINE_OF_THIS_RELEASE.search(processes.brokers[broker_id].log_text())
        processes.upgrade(broker_id)
        await_in_sync()
        assert LINE_OF_THIS_RELEASE.search(processes.brokers[broker_id].log_text())

    await_in_sync()
    # The release before does not complete transactions that have partitions of other brokers.
    clients = RetryingClients(processes.bootstrap, "t", PARTITIONS, ("idempotent", "plain"))
    _restart_all(clients, [1, 2, 3], upgrade)
    transactional = RetryingClients(processes.bootstrap, "t", PARTITIONS, (TRANSACTIONAL,))
    with transactional.running():
        transactional.await_progress()
    assert transactional.errors == []


def _isrs(admin: AdminClient) -> list[list[int]]:
    found = admin.list_topics("t", timeout=LIMIT_S).topics["t"].partitions
    return [each.isrs for each in found.values()]
