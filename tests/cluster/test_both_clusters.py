"""`Cluster` in this process and on processes: both kinds pass the same tests.

The processes run on a real ZooKeeper, which needs Java.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from odradek.errors import KafkaError
from odradek.testing import Cluster, WaitTimeoutError
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

NewCluster = Callable[..., Cluster]


@pytest.fixture(params=["in this process", "processes"])
def new_cluster(request: pytest.FixtureRequest) -> NewCluster:
    if request.param == "in this process":
        return Cluster
    zookeeper: ZooKeeperProcess = request.getfixturevalue("zookeeper")
    return partial(Cluster, processes=True, zookeeper=zookeeper.address)


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(3) as running:
        yield running


def test_topics_have_three_replicas_and_two_must_be_in_sync(cluster: Cluster) -> None:
    cluster.create_topic("t", 3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    metadata = admin.list_topics(timeout=LIMIT_S)
    assert sorted(metadata.brokers) == cluster.broker_ids == [1, 2, 3]
    for partition in metadata.topics["t"].partitions.values():
        assert sorted(partition.replicas) == sorted(partition.isrs) == [1, 2, 3]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    (described,) = admin.describe_configs([resource], request_timeout=LIMIT_S).values()
    assert described.result(LIMIT_S)["min.insync.replicas"].value == "2"


def test_internal_topics_have_three_replicas(cluster: Cluster) -> None:
    cluster.create_topic("t")
    produce(cluster, "a")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", **QUIET}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(LIMIT_S)
    assert message is not None and message.value() == b"a"
    consumer.commit(asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    offsets = admin.list_topics("__consumer_offsets", timeout=LIMIT_S).topics["__consumer_offsets"]
    assert {len(each.replicas) for each in offsets.partitions.values()} == {3}


def test_acknowledged_records_survive_the_kill_of_the_leader(cluster: Cluster) -> None:
    cluster.create_topic("t")
    produce(cluster, "a")
    former = leader(cluster)
    cluster.kill(former)
    produce(cluster, "b")
    assert leader(cluster) != former
    assert read(cluster) == ["a", "b"]


def test_a_killed_broker_that_is_restarted_follows_again(cluster: Cluster) -> None:
    cluster.create_topic("t")
    former = leader(cluster)
    address = cluster.address_of(former)
    cluster.kill(former)
    produce(cluster, "a")
    cluster.wait_until_in_sync()  # the replica of the killed broker does not count
    cluster.restart(former)
    assert cluster.address_of(former) == address
    cluster.wait_until_in_sync()
    for broker_id in cluster.broker_ids:
        if broker_id != former:
            cluster.kill(broker_id)
    assert read(cluster) == ["a"]
    assert leader(cluster) == former


def test_a_restart_hands_the_leadership_over(cluster: Cluster) -> None:
    cluster.create_topic("t")
    produce(cluster, "a")
    former = leader(cluster)
    cluster.restart(former)
    assert leader(cluster) != former
    cluster.wait_until_in_sync()
    assert read(cluster) == ["a"]


def test_a_paused_leader_is_replaced_and_follows_after_its_pause(cluster: Cluster) -> None:
    cluster.create_topic("t")
    produce(cluster, "a")
    former = leader(cluster)
    cluster.pause(former)
    produce(cluster, "b")
    assert leader(cluster) != former
    cluster.resume(former)
    cluster.wait_until_in_sync()
    assert read(cluster) == ["a", "b"]


def test_a_leader_that_is_cut_off_commits_nothing(cluster: Cluster) -> None:
    cluster.create_topic("t")
    produce(cluster, "a")
    former = leader(cluster)
    cluster.partition(former)
    produce(cluster, "b")
    assert leader(cluster) != former
    cluster.heal()
    cluster.wait_until_in_sync()
    assert read(cluster) == ["a", "b"]


def test_a_follower_that_is_cut_off_leaves_the_in_sync_replicas(cluster: Cluster) -> None:
    cluster.create_topic("t")
    follower = plain_follower(cluster)
    cluster.partition(follower, keep_store=True)
    produce(cluster, "a")
    with pytest.raises(WaitTimeoutError, match=rf"t-0 has leader \d, not in sync: \[{follower}\]"):
        cluster.wait_until_in_sync("t", timeout_s=0.5)
    cluster.heal()
    cluster.wait_until_in_sync("t")


def test_brokers_on_one_side_of_a_partition_reach_each_other(cluster: Cluster) -> None:
    cluster.create_topic("t")
    cut_off = plain_follower(cluster)
    others = [each for each in cluster.broker_ids if each != cut_off]
    cluster.partition(*others, keep_store=True, keep_clients=True)
    # The broker that is cut off cannot get producer ids from the controller.
    produce(cluster, "a", idempotent=False)
    cluster.heal()
    cluster.wait_until_in_sync()


def test_healing_ends_pauses(cluster: Cluster) -> None:
    cluster.create_topic("t")
    cluster.pause(2)
    cluster.heal()
    assert not cluster.is_paused(2)
    cluster.wait_until_in_sync()


def test_a_topic_with_one_replica_has_no_leader_while_its_broker_is_down(cluster: Cluster) -> None:
    cluster.create_topic("t", replicas=1)
    produce(cluster, "a")
    former = leader(cluster)
    cluster.kill(former)
    until(lambda: cluster.leader_of("t") is None)
    cluster.restart(former)
    cluster.wait_until_in_sync()
    assert leader(cluster) == former
    assert read(cluster) == ["a"]


def test_all_brokers_may_be_killed_at_the_same_time(cluster: Cluster) -> None:
    cluster.create_topic("t")
    produce(cluster, "a")
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    restarts = [
        threading.Thread(target=cluster.restart, args=(each,)) for each in cluster.broker_ids
    ]
    for each in restarts:
        each.start()
    for each in restarts:
        each.join()
    cluster.wait_until_in_sync()
    assert read(cluster) == ["a"]


def test_admin_requests_succeed_while_the_controller_is_replaced(cluster: Cluster) -> None:
    former = cluster.controller()
    assert former is not None
    other = next(each for each in cluster.broker_ids if each != former)
    cluster.kill(former)
    servers = cluster.address_of(other)
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    (created,) = admin.create_topics([NewTopic("t", 1, 2)], request_timeout=LIMIT_S).values()
    created.result(LIMIT_S)
    until(lambda: cluster.controller() not in (None, former))


def test_a_cluster_of_one_broker_works(new_cluster: NewCluster) -> None:
    with new_cluster(1) as cluster:
        cluster.create_topic("t")
        produce(cluster, "a")
        cluster.kill(1)
        cluster.restart(1)
        assert read(cluster) == ["a"]


def test_a_broker_that_is_cut_off_can_be_killed_and_restarted_after_healing(
    cluster: Cluster,
) -> None:
    cluster.create_topic("t")
    cluster.partition(2)
    with pytest.raises(RuntimeError, match=r"broker 2 is cut off and cannot start: call heal\(\)"):
        cluster.restart(2)
    cluster.kill(2)
    cluster.heal()
    cluster.restart(2)
    cluster.partition(2)
    cluster.heal()
    cluster.wait_until_in_sync()
    produce(cluster, "a")


def test_a_broker_that_is_separated_cannot_be_restarted(cluster: Cluster) -> None:
    cluster.partition(2, keep_store=True, keep_clients=True)
    with pytest.raises(RuntimeError, match=r"broker 2 is cut off and cannot start: call heal\(\)"):
        cluster.restart(2)
    assert cluster.is_running(2)
    cluster.heal()
    cluster.restart(2)


def test_wrong_arguments_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(0)
    with pytest.raises(ValueError, match="no broker 4, but 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ValueError, match="no partition unknown-0"):
        cluster.leader_of("unknown")
    with pytest.raises(KafkaError):
        cluster.create_topic("no such name")
    cluster.kill(1)
    for fault in (cluster.kill, cluster.pause):
        with pytest.raises(RuntimeError, match="broker 1 does not run"):
            fault(1)
