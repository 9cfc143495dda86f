"""The failures that a topic survives, on broker processes and a real ZooKeeper.

The power cut of all brokers is simulated (`tests/simulation/test_power_cuts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from odradek.client.blocking import BlockingClient
from odradek.errors import ErrorCode
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.testing import Cluster
from testkit.requests import batch
from testkit.requests import produce as produce_request
from testkit.zookeeper import ZooKeeperProcess
from tests.helpers.cluster_clients import (
    LIMIT_S,
    QUIET,
    leader,
    plain_follower,
    produce,
    read,
    until,
)

LAG_MS = 1_500
LONG_MS = 30_000


def _cluster(zookeeper: ZooKeeperProcess, brokers: int, config: dict[str, object]) -> Cluster:
    return Cluster(brokers, config, processes=True, zookeeper=zookeeper.address)


@pytest.fixture(scope="module")
def five(zookeeper: ZooKeeperProcess) -> Iterator[Cluster]:
    """Five brokers. Each test starts the brokers again that it has killed."""
    with _cluster(zookeeper, 5, {}) as running:
        yield running


def _append(cluster: Cluster, topic: str, value: str, *, acks: int = -1) -> ErrorCode:
    """Send a produce request to the leader. Return its error.

    There is another attempt only while the leader does not know yet that it leads.
    """
    request = produce_request(topic, batch(value.encode()), acks=acks)
    found: list[ErrorCode] = []

    def knows_its_leadership() -> bool:
        host, _, port = cluster.address_of(leader(cluster, topic)).rpartition(":")
        with BlockingClient.connect((host, int(port)), LIMIT_S, "test") as client:
            response = client.call(request, ProduceResponse, 9)
        found.append(ErrorCode(response.responses[0].partition_responses[0].error_code))
        return found[-1] is not ErrorCode.NOT_LEADER_OR_FOLLOWER

    until(knows_its_leadership)
    return found[-1]


def _in_sync(cluster: Cluster, topic: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    return set(admin.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions[0].isrs)


def _set_min_isr(cluster: Cluster, topic: str, min_isr: int) -> None:
    changed = {"incremental_operation": AlterConfigOpType.SET}
    entry = ConfigEntry("min.insync.replicas", str(min_isr), **changed)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    (altered,) = admin.incremental_alter_configs([resource], request_timeout=LIMIT_S).values()
    altered.result(LIMIT_S)


def _await_leader(cluster: Cluster, topic: str, killed: Sequence[int]) -> None:
    until(lambda: cluster.leader_of(topic) not in (None, *killed))


def _kill_leaders(cluster: Cluster, topic: str, count: int) -> list[int]:
    """Kill so many brokers, each while it leads the topic. Return them."""
    killed: list[int] = []
    for _ in range(count):
        killed.append(leader(cluster, topic))
        cluster.kill(killed[-1])
        _await_leader(cluster, topic, killed)
    return killed


def _restart(cluster: Cluster, killed: Sequence[int]) -> None:
    with ThreadPoolExecutor(len(killed)) as threads:
        for _ in threads.map(cluster.restart, killed):
            pass
    cluster.wait_until_in_sync(timeout_s=LIMIT_S)


def test_half_of_3_and_of_5_replicas_may_fail_for_reads_and_writes(five: Cluster) -> None:
    for topic, replicas, min_isr in (("of-3", 3, 2), ("of-5", 5, 3)):
        five.create_topic(topic, 1, {"min.insync.replicas": min_isr}, replicas=replicas)
        produce(five, "all run", topic=topic)
    killed = _kill_leaders(five, "of-3", 1)
    produce(five, "one is killed", topic="of-3")
    assert read(five, "of-3") == ["all run", "one is killed"]
    _await_leader(five, "of-5", killed)
    killed += _kill_leaders(five, "of-5", 1)
    produce(five, "two are killed", topic="of-5")
    assert read(five, "of-5") == ["all run", "two are killed"]
    # One more is too many for writes, and loses nothing.
    killed += _kill_leaders(five, "of-5", 1)
    assert _append(five, "of-5", "refused") is ErrorCode.NOT_ENOUGH_REPLICAS
    _restart(five, killed)
    produce(five, "all run again", topic="of-5")
    assert read(five, "of-5") == ["all run", "two are killed", "all run again"]
    assert read(five, "of-3") == ["all run", "one is killed"]


def test_min_isr_5_refuses_writes_with_one_broker_gone_and_loses_nothing_with_four_gone(
    five: Cluster,
) -> None:
    values = [str(number) for number in range(50)]
    five.create_topic("strict", 1, {"min.insync.replicas": 5}, replicas=5)
    produce(five, *values, topic="strict")
    killed = _kill_leaders(five, "strict", 1)
    assert _append(five, "strict", "refused") is ErrorCode.NOT_ENOUGH_REPLICAS
    *others, last = (each for each in five.broker_ids if each not in killed)
    for broker_id in others:
        five.kill(broker_id)
    until(lambda: _in_sync(five, "strict") == {last})
    assert leader(five, "strict") == last
    assert _append(five, "strict", "refused") is ErrorCode.NOT_ENOUGH_REPLICAS
    # The high watermark does not advance below min ISR (KIP-966). The last broker may know an
    # earlier one, although it has all records.
    found = read(five, "strict")
    assert found == values[: len(found)]
    _set_min_isr(five, "strict", 1)
    produce(five, "alone", topic="strict")
    assert read(five, "strict") == [*values, "alone"]
    _restart(five, [*killed, *others])
    assert read(five, "strict") == [*values, "alone"]


def test_a_slow_follower_leaves_the_isr_writes_continue_and_it_returns(
    zookeeper: ZooKeeperProcess,
) -> None:
    config = {
        "replica.lag.time.max.ms": LAG_MS,
        # The session does not end, so only the lag can remove the follower.
        "broker.session.timeout.ms": LONG_MS,
        "zookeeper.session.timeout.ms": LONG_MS,
    }
    with _cluster(zookeeper, 3, config) as cluster:
        cluster.create_topic("t")
        produce(cluster, "all in sync")
        slow = plain_follower(cluster)
        cluster.pause(slow)
        produce(cluster, "while it is slow")  # committed when the follower has left the ISR
        assert _in_sync(cluster, "t") == set(cluster.broker_ids) - {slow}
        produce(cluster, "without it")
        cluster.resume(slow)
        cluster.wait_until_in_sync("t")
        assert _in_sync(cluster, "t") == set(cluster.broker_ids)
        assert read(cluster) == ["all in sync", "while it is slow", "without it"]


def test_acks_1_loses_only_the_records_that_the_old_leader_alone_had(
    zookeeper: ZooKeeperProcess,
) -> None:
    config = {"replica.lag.time.max.ms": LONG_MS}  # the followers stay in sync
    with _cluster(zookeeper, 3, config) as cluster:
        cluster.create_topic("t")
        assert _append(cluster, "t", "replicated", acks=1) is ErrorCode.NONE
        produce(cluster, "committed")
        old = leader(cluster)
        cluster.partition(old, keep_store=True, keep_clients=True)
        for number in range(3):
            assert _append(cluster, "t", f"alone {number}", acks=1) is ErrorCode.NONE
        cluster.kill(old)
        cluster.heal()
        _await_leader(cluster, "t", [old])
        produce(cluster, "after the election")
        expected = ["replicated", "committed", "after the election"]
        assert read(cluster) == expected
        cluster.restart(old)
        cluster.wait_until_in_sync("t")
        assert read(cluster) == expected
        # The old leader has the same records now: it serves them when it leads again.
        for broker_id in set(cluster.broker_ids) - {old}:
            cluster.kill(broker_id)
        _await_leader(cluster, "t", [each for each in cluster.broker_ids if each != old])
        assert read(cluster) == expected
