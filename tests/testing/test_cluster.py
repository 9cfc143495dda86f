"""`Cluster`: each method through the clients of librdkafka."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest

from odradek.broker.broker import BrokerServer
from odradek.testing import Cluster, broker_thread
from odradek.testing.cluster import ClusterBroker
from testkit import requests
from testkit.wire import ConnectionClosed, WireClient
from tests.helpers.cluster_clients import leader, produce, read
from tests.helpers.programs import run_program
from tests.testing.leftovers import SCENARIOS

LIMIT_S = 60.0
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


def test_a_broker_that_is_killed_in_its_pause_executes_no_request(cluster: Cluster) -> None:
    cluster.create_topic("t")
    former = leader(cluster)
    broker = cluster.broker(former)
    with WireClient(broker.bootstrap_servers) as client:
        client.call(requests.produce("t"), 9)
        cluster.pause(former)
        client.send(requests.produce("t"), 9)
        cluster.kill(former)
        with pytest.raises(ConnectionClosed):
            client.receive()
    for each in cluster.broker_ids:
        if each != former:
            cluster.kill(each)
    cluster.restart(former)

    async def end_offset(server: BrokerServer) -> int:
        return server.services.replica_manager.partition("t", 0).log.log_end_offset

    assert broker.call(end_offset) == 1


def test_each_broker_has_the_faults_of_a_broker(cluster: Cluster) -> None:
    cluster.create_topic("t")
    fault = cluster.broker(leader(cluster)).fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    produce(cluster, "a")
    assert fault.struck == 1
    assert read(cluster) == ["a"]


def test_configs_apply_to_all_brokers() -> None:
    with Cluster(2, {"num.partitions": 5}) as cluster:
        for broker_id in cluster.broker_ids:
            found = cluster.broker(broker_id).server.config
            assert found.get_int("num.partitions") == 5
            assert found.get_int("default.replication.factor") == 2
            assert found.get_int("min.insync.replicas") == 1


def test_a_broker_whose_session_was_just_lost_can_be_paused_and_cut_off(cluster: Cluster) -> None:
    cluster.create_topic("t")
    for fault in (cluster.pause, cluster.partition):
        broker = cluster.broker(2)
        assert broker._store is not None
        session_id = broker._store.session_id
        broker._store_thread.call(lambda ensemble, lost=session_id: ensemble.expire(lost))  # type: ignore[misc]
        fault(2)
        cluster.heal()
        broker.wait_until(
            lambda broker=broker, lost=session_id: broker._store.session_id not in (0, lost)  # type: ignore[misc]
        )
    cluster.wait_until_in_sync()
    produce(cluster, "a")


def test_a_start_that_takes_too_long_leaves_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former session ends after two seconds. Then the broker waits for metadata in vain."""
    controller = cluster.controller()
    assert controller is not None
    other = next(each for each in cluster.broker_ids if each != controller)
    cluster.kill(other)
    cluster.partition(controller, keep_store=True)
    before = threads()
    with monkeypatch.context() as patches:
        patches.setattr(broker_thread, "START_TIMEOUT_S", 3.0)
        with pytest.raises(TimeoutError, match="did not start within"):
            cluster.restart(other)
    assert threads() <= before
    cluster.heal()
    cluster.restart(other)


def test_the_rest_of_a_cluster_ends_when_a_broker_does_not_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = threads()
    kill = ClusterBroker.kill

    def kill_and_fail(broker: ClusterBroker) -> None:
        kill(broker)
        if broker.broker_id == 1:
            raise TimeoutError("the broker did not stop")

    monkeypatch.setattr(ClusterBroker, "kill", kill_and_fail)
    cluster = Cluster(2).start()
    directory = cluster._directory
    assert directory is not None
    with pytest.raises(TimeoutError, match="did not stop"):
        cluster.close()
    assert threads() <= before
    assert not directory.exists()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_left_after_the_end(scenario: str) -> None:
    program = "from tests.testing.leftovers import main; main()"
    done = run_program(program, scenario, options=["-W", "error::ResourceWarning"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"threads": [], "descriptors": {}, "files": []}
    # For example: a task was destroyed while it was pending, a coroutine was never awaited.
    assert not re.search("pending|never|ResourceWarning", done.stderr), done.stderr


def threads() -> set[str]:
    return {f"{each.name} {each.ident}" for each in threading.enumerate() if "odradek" in each.name}
