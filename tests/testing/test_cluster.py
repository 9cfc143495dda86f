"""`Cluster`: each method through the clients of librdkafka."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from odradek.broker.broker import BrokerServer
from odradek.errors import KafkaError
from odradek.testing import Cluster, WaitTimeoutError, broker_thread
from odradek.testing.cluster import ClusterBroker
from testkit import requests
from testkit.wire import ConnectionClosed, WireClient
from tests.helpers.programs import run_program
from tests.testing.leftovers import SCENARIOS

LIMIT_S = 60.0
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


def produce(
    cluster: Cluster,
    *values: str,
    topic: str = "t",
    idempotent: bool = True,
    timeout_s: float = LIMIT_S,
) -> None:
    """Produce to partition 0 with acks=all. Raise if a record is not committed."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "enable.idempotence": idempotent,
        "acks": "all",
        "message.timeout.ms": int(timeout_s * 1000),
    }
    producer = Producer({**settings, **QUIET})
    errors: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(timeout_s + LIMIT_S) == 0
    if errors:
        raise KafkaException(errors[0])


def read(cluster: Cluster, topic: str = "t") -> list[str]:
    """Return the values of partition 0."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    consumer = Consumer({**settings, "enable.partition.eof": True, **QUIET})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values = []
    while (message := consumer.poll(LIMIT_S)) is not None and message.error() is None:
        values.append(message.value().decode())
    assert message is not None, "nothing was read within the limit"
    consumer.close()
    return values


def leader(cluster: Cluster, topic: str = "t") -> int:
    found = cluster.leader_of(topic)
    assert found is not None
    return found


def plain_follower(cluster: Cluster) -> int:
    """Return a broker that neither leads partition 0 nor is the controller."""
    others = (leader(cluster), cluster.controller())
    return next(each for each in cluster.broker_ids if each not in others)


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
    address = cluster.broker(former).bootstrap_servers
    cluster.kill(former)
    produce(cluster, "a")
    cluster.wait_until_in_sync()  # the replica of the killed broker does not count
    cluster.restart(former)
    assert cluster.broker(former).bootstrap_servers == address
    cluster.wait_until_in_sync()
    for broker_id in cluster.broker_ids:
        if broker_id != former:
            cluster.kill(broker_id)
    cluster.broker(former).wait_for_high_watermark("t", 1)


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
    assert not cluster.broker(2).is_paused
    cluster.wait_until_in_sync()


def test_a_topic_with_one_replica_has_no_leader_while_its_broker_is_down(cluster: Cluster) -> None:
    cluster.create_topic("t", replicas=1)
    produce(cluster, "a")
    former = leader(cluster)
    cluster.kill(former)
    other = next(each for each in cluster.broker_ids if each != former)
    cluster.broker(other).wait_until(lambda: cluster.leader_of("t") is None)
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
    servers = cluster.broker(other).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    (created,) = admin.create_topics([NewTopic("t", 1, 2)], request_timeout=LIMIT_S).values()
    created.result(LIMIT_S)
    assert cluster.controller() not in (None, former)


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


def test_a_cluster_of_one_broker_works(seed: int) -> None:
    with Cluster(1) as cluster:
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


def test_a_broker_that_is_separated_cannot_be_restarted(cluster: Cluster) -> None:
    cluster.partition(2, keep_store=True, keep_clients=True)
    with pytest.raises(RuntimeError, match=r"broker 2 is cut off and cannot start: call heal\(\)"):
        cluster.restart(2)
    assert cluster.broker(2).is_running
    cluster.heal()
    cluster.restart(2)


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
