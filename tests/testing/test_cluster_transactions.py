"""Transactions of librdkafka's producer on a `Cluster`, while brokers are killed.

The partitions are led by other brokers than their coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from odradek.metadata.topics import TRANSACTION_STATE
from odradek.testing import Cluster

LIMIT_S = 60.0
PARTITIONS = 6
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


@contextmanager
def running_cluster(replicas: int) -> Iterator[Cluster]:
    """Run a cluster whose coordinators have that many replicas."""
    config = {
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": max(1, replicas - 1),
        # A request to a broker that does not respond would wait longer than these tests.
        "request.timeout.ms": 600_000,
    }
    with Cluster(3, config) as running:
        running.create_topic("t", PARTITIONS)
        yield running


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster(1) as running:
        yield running


def producer(cluster: Cluster) -> Producer:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}
    made = Producer({**settings, **QUIET})
    made.init_transactions(LIMIT_S)
    return made


def write(made: Producer, value: str) -> None:
    """Begin a transaction, and write the value to all partitions."""
    made.begin_transaction()
    for partition in range(PARTITIONS):
        made.produce("t", value, partition=partition)
    assert made.flush(LIMIT_S) == 0


def committed(cluster: Cluster, *values: str) -> list[list[str]]:
    """Return the committed values of each partition, when all partitions have the last one."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", **QUIET})
    consumer.assign([TopicPartition("t", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    while not all(each[-1:] == list(values[-1:]) for each in found):
        message = consumer.poll(LIMIT_S)
        assert message is not None, f"no further record within the limit: {found}"
        assert message.error() is None, message.error()
        found[message.partition()].append(message.value().decode())
    consumer.close()
    return found


def coordinator(cluster: Cluster) -> int:
    found = cluster.leader_of(TRANSACTION_STATE)
    assert found is not None
    return found


def leaders(cluster: Cluster) -> set[int | None]:
    return {cluster.leader_of("t", each) for each in range(PARTITIONS)}


def leader_elsewhere(cluster: Cluster) -> int:
    """Return a broker that leads partitions and is not the coordinator.

    On a slow machine a broker may lose its session, and lead nothing from then on.
    """
    return next(each for each in leaders(cluster) if each not in (None, coordinator(cluster)))


def test_transactions_span_partitions_of_all_brokers(cluster: Cluster) -> None:
    made = producer(cluster)
    assert leader_elsewhere(cluster)
    for number in range(5):
        write(made, f"v{number}")
        if number == 2:
            made.abort_transaction(LIMIT_S)
        else:
            made.commit_transaction(LIMIT_S)
    expected = ["v0", "v1", "v3", "v4"]
    assert committed(cluster, *expected) == [expected] * PARTITIONS


def test_leader_that_is_killed_between_prepare_and_marker(cluster: Cluster) -> None:
    """Its successor gets the marker."""
    made = producer(cluster)
    leader = leader_elsewhere(cluster)
    write(made, "a")
    markers = cluster.broker(leader).blackhole("WriteTxnMarkers")
    made.commit_transaction(LIMIT_S)
    markers.wait()
    cluster.kill(leader)
    assert committed(cluster, "a") == [["a"]] * PARTITIONS
    assert leader not in leaders(cluster)
    write(made, "b")
    made.commit_transaction(LIMIT_S)
    assert committed(cluster, "a", "b") == [["a", "b"]] * PARTITIONS


def test_leader_that_is_suspended_between_prepare_and_marker(cluster: Cluster) -> None:
    """The request to a suspended broker ends with its session, not with request.timeout.ms."""
    made = producer(cluster)
    leader = leader_elsewhere(cluster)
    write(made, "a")
    cluster.pause(leader)
    made.commit_transaction(LIMIT_S)
    cluster.broker(coordinator(cluster)).wait_for_open_transactions(0)
    cluster.resume(leader)
    assert committed(cluster, "a") == [["a"]] * PARTITIONS


@pytest.mark.parametrize("replicas", [1, 3])
def test_coordinator_that_is_killed_between_prepare_and_marker(replicas: int) -> None:
    """The next broker that loads the transaction completes it, or the next process of this one."""
    with running_cluster(replicas) as cluster:
        kill_coordinator(cluster, restarts=replicas == 1)


def kill_coordinator(cluster: Cluster, *, restarts: bool) -> None:
    made = producer(cluster)
    killed = coordinator(cluster)
    others = [cluster.broker(each) for each in cluster.broker_ids if each != killed]
    write(made, "a")
    faults = [each.blackhole("WriteTxnMarkers") for each in others]
    made.commit_transaction(LIMIT_S)
    others[0].wait_until(lambda: any(each.struck for each in faults), "a marker in flight")
    cluster.kill(killed)
    for each in faults:
        each.clear()
    if restarts:
        cluster.restart(killed)
    assert committed(cluster, "a") == [["a"]] * PARTITIONS
    write(made, "b")
    made.commit_transaction(LIMIT_S)
    assert committed(cluster, "a", "b") == [["a", "b"]] * PARTITIONS
