"""Objects that `gc.freeze` may keep: none of a deleted topic or of a closed connection stays.

The tests disable the garbage collector. An object that is in a reference cycle would then stay.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from odradek.broker.broker import BrokerServer
from odradek.broker.main import _make_server
from odradek.collector import Collector
from odradek.config.broker import BrokerConfig
from odradek.environment.environment import Environment
from odradek.log.unified_log import UnifiedLog
from odradek.net.connection import Connection
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.replication.delayed_produce import DelayedProduce
from odradek.replication.followed_replica import FollowedReplica
from odradek.replication.leader_replication import LeaderReplication
from odradek.replication.partition import Partition
from odradek.replication.replica_fetcher import ReplicaFetcher
from odradek.testing import Broker
from testkit.requests import fetch, produce
from testkit.wire import WireClient
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

PARTITIONS = 3
ROUND_TRIPS_MAX = 200
"""Requests during which the broker frees the objects. A few are enough."""


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living(*types: type[Any]) -> int:
    """Return the number of objects of these types, which may have no weak references."""
    return sum(type(each) in types for each in gc.get_objects())


def logs_of(*servers: BrokerServer) -> list[ref[UnifiedLog]]:
    return [ref(log) for each in servers for log in each.services.log_manager.all_logs()]


def test_a_deleted_topic_and_a_closed_connection_are_freed_without_the_collector() -> None:
    earlier = living(Partition, Connection)
    config = {"file.delete.delay.ms": 0}
    with Broker() as broker, WireClient(broker.bootstrap_servers) as other:
        other.call(ApiVersionsRequest("other", "1"), 3)
        broker.create_topic("t", PARTITIONS, config)
        with WireClient(broker.bootstrap_servers) as client:
            for partition in range(PARTITIONS):
                for _ in range(3):  # the connection remembers a request that is repeated
                    client.call(produce(partition=partition, acks=-1), 9)
                    client.call(fetch(partitions=(partition,)), 11)
            client.call(fetch(partitions=(0,), offset=3, max_wait_ms=1), 11)
            logs = logs_of(broker.server)
            assert len(logs) == PARTITIONS
            assert all(log() for log in logs)
            assert living(Partition, Connection) == earlier + PARTITIONS + 2
            client.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=60_000), 6)
        for _ in range(ROUND_TRIPS_MAX):
            other.call(ApiVersionsRequest("other", "1"), 3)
            if living(Partition, Connection) == earlier + 1:
                break
        broker.advance(60)
        for _ in range(ROUND_TRIPS_MAX):
            other.call(ApiVersionsRequest("other", "1"), 3)
            if not any(log() for log in logs):
                break
        assert [log() for log in logs] == [None] * PARTITIONS
        assert living(Partition, Connection) == earlier + 1


@pytest.mark.parametrize("other_topic", [True, False])
def test_a_deleted_topic_of_a_cluster_is_freed_without_the_collector(
    tmp_path: Path, patient: None, *, other_topic: bool
) -> None:
    """The other topic keeps the fetchers. Without it they end with the topic."""
    types = (Partition, LeaderReplication, FollowedReplica, DelayedProduce, ReplicaFetcher)

    async def test(cluster: ClusterBrokers) -> None:
        if other_topic:
            await cluster.create_topic("other", 4, 2)
        earlier = living(*types)
        others = {log() for log in logs_of(*cluster.servers.values())}
        await cluster.create_topic("t", 4, 2)
        for number in range(4):
            assert not (await cluster.produce("t", b"a", partition=number)).error_code
            assert await cluster.fetch("t", number) == [b"a"]
        logs = [log for log in logs_of(*cluster.servers.values()) if log() not in others]
        assert len(logs) == 8
        assert living(*types) > earlier + 8
        cluster.close_channels()
        request = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=60_000)
        await cluster.call(1, request, DeleteTopicsResponse)
        await cluster.until(lambda: living(*types) == earlier)
        await cluster.until(lambda: not any(log() for log in logs))

    run_with_cluster(tmp_path, test, count=2, config={"log.segment.delete.delay.ms": "0"})


def test_the_process_of_serve_has_a_collector(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path)})
    assert isinstance(_make_server(config, Environment(), None)._collector, Collector)


def test_an_embedded_broker_freezes_nothing() -> None:
    frozen = gc.get_freeze_count()
    with Broker() as broker:
        broker.create_topic("t", 400)
        assert gc.get_freeze_count() == frozen


START_OF_SERVE = """
import gc, os, sys
from odradek import collector
from odradek.cli.main import main

def imported():
    collections = [each["collections"] - before for each, before in zip(gc.get_stats(), at_start)]
    enable_after_imports()
    print(collections, "odradek.broker.broker" in sys.modules, gc.isenabled())
    print(gc.get_freeze_count(), flush=True)
    os._exit(0)

enable_after_imports, collector.enable_after_imports = collector.enable_after_imports, imported
at_start = [each["collections"] for each in gc.get_stats()]
sys.argv = ["odradek", "serve", "--listen", "127.0.0.1:0", "--data", sys.argv[1]]
main()
"""


def test_serve_collects_no_garbage_while_it_imports_its_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START_OF_SERVE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    collections, frozen = done.stdout.splitlines()
    assert collections == "[0, 0, 0] True True"
    assert int(frozen) > 10_000
