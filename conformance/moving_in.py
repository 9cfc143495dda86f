"""A cluster of Odradek on the ZooKeeper and log directories of a stopped Apache Kafka 3.9.

`python -m conformance.moving_in --bootstrap-server - --broker odradek`: the case starts a ZooKeeper
and three brokers of Kafka, fills and stops them, and starts three brokers of Odradek in their
place. `--broker kafka` starts Kafka again instead, which checks the case itself.

`python -m conformance.moving_in --record DIR` writes the files of `tests/data/kafka-3.9.1`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from conformance.differential.wire import Wire
from conformance.harness import Case, Context, Skip, main
from odradek.protocol.messages import alter_client_quotas_request as quotas
from odradek.protocol.messages import alter_partition_reassignments_request as reassignments
from odradek.protocol.messages import describe_client_quotas_request as quota_queries
from odradek.protocol.messages import incremental_alter_configs_request as configs
from odradek.protocol.messages.metadata_request import MetadataRequest
from testkit.peer import PeerUnavailable
from testkit.peer.server import BrokerProcess, start_odradek
from testkit.peer.zookeeper_mode import start_kafka_39
from testkit.zookeeper import ZooKeeperProcess, ZooKeeperUnavailable, start_zookeeper

BROKERS = (1, 2, 3)
CHROOT = "/kafka"
GROUP, USER = "readers", "alice"
WAIT_S = 60.0
LONG_BYTES = 100
CLIENT = {"log_level": 0, "socket.timeout.ms": 30_000}
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # A new replica then needs many fetches, so that a throttled reassignment does not end.
    "replica.fetch.max.bytes": "4096",
    # On a busy machine Kafka may stand still for seconds.
    "zookeeper.session.timeout.ms": "30000",
    # Kafka's indexes of 10 MB would be sparse files.
    "log.index.size.max.bytes": "16384",
}
TOPICS = (
    NewTopic("plain", 3, 3, config={"retention.ms": "-1"}),
    NewTopic(
        "compacted",
        1,
        3,
        config={
            "cleanup.policy": "compact",
            "segment.bytes": "4096",
            "min.cleanable.dirty.ratio": "0.01",
        },
    ),
    NewTopic("in.out", 2, 3, config={"min.insync.replicas": "2", "retention.ms": "-1"}),
    NewTopic("empty", 2, 2),
    NewTopic("moving", 1, replica_assignment=[[1, 2]], config={"retention.ms": "-1"}),
)
MOVED_TO = [2, 3]
View = dict[str, Any]
Tree = dict[str, str | None]


# --- the data that Kafka is filled with ---


def fill(bootstrap: str) -> Producer:
    """Write topics, records, offsets, transactions, configs, quotas and SCRAM credentials.

    Returns:
        The producer of a transaction that stays open until the producer is collected.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
    _done(admin.create_topics(list(TOPICS), operation_timeout=WAIT_S))
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **CLIENT})
    for i in range(60):
        producer.produce("plain", f"v{i}", f"k{i}", i % 3)
    for i in range(100):  # several segments
        producer.produce("compacted", f"x{i}" * 50, f"c{i % 5}", 0)
        producer.flush(WAIT_S)
    for i in range(100):
        producer.produce("moving", str(i) * 2000, None, 0)
    assert producer.flush(WAIT_S) == 0
    hanging = _transactions(bootstrap)
    _configs_and_quotas(admin, bootstrap)
    return hanging


def _done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(WAIT_S)


def _transactional(bootstrap: str, name: str) -> Producer:
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings, **CLIENT})
    producer.init_transactions(WAIT_S)
    return producer


def _transactions(bootstrap: str) -> Producer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **CLIENT,
        }
    )
    consumer.subscribe(["plain"])
    count, deadline = 0, time.monotonic() + WAIT_S
    while count < 60:
        assert time.monotonic() < deadline, f"{count} records were read"
        count += len(consumer.consume(60, 1.0))
    offsets = [TopicPartition("plain", p, o) for p, o in ((0, 10), (1, 20), (2, 5))]
    consumer.commit(offsets=offsets, asynchronous=False)
    mover = _transactional(bootstrap, "mover")
    for name, commits in (("yes", True), ("no", False), ("more", True)):
        mover.begin_transaction()
        for i in range(4):
            mover.produce("in.out", f"{name}{i}", None, i % 2)
        if name == "yes":
            moved = [TopicPartition("plain", 2, 17)]
            mover.send_offsets_to_transaction(moved, consumer.consumer_group_metadata())
        assert mover.flush(WAIT_S) == 0
        mover.commit_transaction(WAIT_S) if commits else mover.abort_transaction(WAIT_S)
    consumer.close()
    hanging = _transactional(bootstrap, "hanging")
    hanging.begin_transaction()
    hanging.produce("in.out", "open", None, 1)
    assert hanging.flush(WAIT_S) == 0
    return hanging


def _configs_and_quotas(admin: AdminClient, bootstrap: str) -> None:
    for address in bootstrap.split(","):
        with _wire(address) as wire:
            node = _node_id(wire, address)
            for side in ("leader", "follower"):
                prefix = f"{side}.replication.throttled"
                _set(wire, ResourceType.BROKER, str(node), f"{prefix}.rate", "1")
                _set(wire, ResourceType.TOPIC, "moving", f"{prefix}.replicas", "*")
            _set(wire, ResourceType.BROKER, "", "log.retention.ms", "987654321")
            _set(wire, ResourceType.TOPIC, "plain", "max.message.bytes", "2000000")
    credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(USER, credentials, b"secret", b"salt")
    _done(admin.alter_user_scram_credentials([upsertion], request_timeout=WAIT_S))
    for parts, key, rate in (
        ((("client-id", "slow"),), "producer_byte_rate", 1048576.0),
        ((("user", None),), "consumer_byte_rate", 2097152.0),
        ((("user", USER),), "producer_byte_rate", 3000000.0),
        ((("user", USER), ("client-id", None)), "consumer_byte_rate", 5000000.0),
    ):
        alter_quota(bootstrap, parts, key, rate)


def _node_id(wire: Wire, address: str) -> int:
    brokers = _call(wire, MetadataRequest([]), 12).brokers
    (node,) = [each for each in brokers if f"{each.host}:{each.port}" == address]
    found: int = node.node_id
    return found


def _set(wire: Wire, kind: ResourceType, name: str, key: str, value: str) -> None:
    config = configs.AlterableConfig(key, 0, value)
    resource = configs.AlterConfigsResource(kind.value, name, [config])
    response = _call(wire, configs.IncrementalAlterConfigsRequest([resource]), 1)
    assert response.responses[0].error_code == 0, response


def alter_quota(
    bootstrap: str, parts: tuple[tuple[str, str | None], ...], key: str, rate: float
) -> None:
    """Set a quota through the first broker."""
    entity = [quotas.EntityData(kind, name) for kind, name in parts]
    entry = quotas.EntryData(entity, [quotas.OpData(key, rate, remove=False)])
    with _wire(bootstrap) as wire:
        response = _call(wire, quotas.AlterClientQuotasRequest([entry]), 1)
        assert response.entries[0].error_code == 0, response


def reassign(bootstrap: str, controller: str) -> None:
    """Begin a reassignment that the throttle keeps from ending."""
    partition = reassignments.ReassignablePartition(0, MOVED_TO)
    request = reassignments.AlterPartitionReassignmentsRequest(
        topics=[reassignments.ReassignableTopic("moving", [partition])]
    )
    with _wire(controller) as wire:
        response = _call(wire, request, 0)
        assert response.error_code == 0, response
        assert response.responses[0].partitions[0].error_code == 0, response


# --- the data that a client sees, and the store ---


@contextlib.contextmanager
def _wire(bootstrap: str) -> Iterator[Wire]:
    wire = Wire(bootstrap.split(",", maxsplit=1)[0])
    try:
        yield wire
    finally:
        wire.close()


def _call(wire: Wire, request: Any, version: int) -> Any:
    wire.send(request, version)
    return wire.receive()


def controller_of(bootstrap: str) -> str:
    """Return the address of the controller."""
    with _wire(bootstrap) as wire:
        found = _call(wire, MetadataRequest(None), 12)
        (node,) = [each for each in found.brokers if each.node_id == found.controller_id]
        return f"{node.host}:{node.port}"


def _replicas(bootstrap: str, topic: str) -> list[int]:
    with _wire(bootstrap) as wire:
        found = _call(wire, MetadataRequest(None), 12)
    (described,) = [each for each in found.topics if each.name == topic]
    return sorted(described.partitions[0].replica_nodes)


def seen(bootstrap: str) -> View:
    """Return topics, ids, replicas, committed records, offsets, configs and quotas.

    Of a compacted topic it returns the newest record of each key. The log cleaner may remove the
    others at any time, also after the start of the next broker.
    """
    with _wire(bootstrap) as wire:
        metadata = _call(wire, MetadataRequest(None), 12)
        described = _call(wire, quota_queries.DescribeClientQuotasRequest([], False), 1)
    topics = {
        topic.name: (
            topic.topic_id.hex(),
            [sorted(each.replica_nodes) for each in _by_number(topic.partitions)],
        )
        for topic in metadata.topics
    }
    configs = _configs(bootstrap, topics)
    return {
        "cluster": metadata.cluster_id,
        "topics": topics,
        "records": {
            f"{name}-{number}": (
                newest_of_keys(records(bootstrap, name, number))
                if configs[name].get("cleanup.policy") == "compact"
                else records(bootstrap, name, number)
            )
            for name, (_, partitions) in topics.items()
            if not name.startswith("__")
            for number in range(len(partitions))
        },
        "offsets": _offsets(bootstrap),
        "configs": configs,
        "quotas": {
            str(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
                value.key: value.value for value in entry.values
            }
            for entry in described.entries
        },
    }


def _by_number(partitions: list[Any]) -> list[Any]:
    return sorted(partitions, key=lambda each: each.partition_index)


def records(bootstrap: str, topic: str, partition: int) -> list[Any]:
    """Return offset, timestamp, key and value of the committed records of a partition."""
    settings = {"group.id": "conformance", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **CLIENT})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        key, value = message.key(), message.value()
        found.append([message.offset(), message.timestamp(), _text(key), _text(value)])
    consumer.close()
    assert message is not None, f"{topic}-{partition} has no end: it was not served"
    return found


def newest_of_keys(found: list[Any]) -> list[Any]:
    """Return the last record of each key, in the order of the offsets."""
    newest = {key: [offset, timestamp, key, value] for offset, timestamp, key, value in found}
    return sorted(newest.values())


def _text(data: Any) -> str | None:
    """Return a key or value, or the hash of a long one."""
    if data is None:
        return None
    return data.decode() if len(data) < LONG_BYTES else hashlib.sha256(data).hexdigest()[:16]


def _offsets(bootstrap: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
    request = ConsumerGroupTopicPartitions(GROUP, [TopicPartition("plain", p) for p in range(3)])
    (future,) = admin.list_consumer_group_offsets([request], request_timeout=WAIT_S).values()
    return [each.offset for each in future.result(WAIT_S).topic_partitions]


def _configs(bootstrap: str, topics: Any) -> dict[str, dict[str, str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    return {
        resource.name: {
            name: entry.value
            for name, entry in future.result(WAIT_S).items()
            if entry.source == 1  # set on the topic itself
        }
        for resource, future in admin.describe_configs(resources, request_timeout=WAIT_S).items()
    }


def tree(zookeeper: str) -> Tree:
    """Return the contents of all nodes of the cluster."""
    from kazoo.client import KazooClient

    client = KazooClient(zookeeper + CHROOT)
    client.start()
    paths = ["/"]
    found: Tree = {}
    for path in paths:
        data, _ = client.get(path)
        found[path] = None if data is None else data.decode()
        paths += [f"{path.rstrip('/')}/{name}" for name in sorted(client.get_children(path))]
    client.stop()
    client.close()
    return found


# --- the case ---


class Cluster:
    """Three brokers of Kafka on a ZooKeeper, and then three brokers of Odradek in their place."""

    def __init__(self, work: Path, zookeeper: ZooKeeperProcess) -> None:
        self.work = work
        self.zookeeper = zookeeper
        self.brokers: dict[int, BrokerProcess] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    def start_kafka(self) -> None:
        for each in BROKERS:
            connect = self.zookeeper.address + CHROOT
            self.brokers[each] = start_kafka_39(
                self.work / str(each), each, connect, {**PROPERTIES, "broker.rack": f"r{each}"}
            )

    def stop(self) -> None:
        """Stop the brokers one after the other, the controller last, as an operator does."""
        for each in self.brokers.values():
            each.stop()

    def start_odradek(self, *brokers: int) -> None:
        """Start brokers on the log directories of Kafka."""
        for each in brokers:
            directory = self.work / str(each)
            kafkas = directory / "kafka-logs"
            if kafkas.exists():
                kafkas.rename(directory / "odradek-logs")
            connect = self.zookeeper.address + CHROOT
            options = ("--broker-id", str(each), "--zookeeper", connect)
            file = ("--config", str(directory / "server.properties"))  # Kafka's
            self.brokers[each] = start_odradek(directory, options=(*options, *file))

    def restart(self) -> None:
        for each, broker in self.brokers.items():
            self.brokers[each] = broker.restart()


@contextlib.contextmanager
def cluster(work: Path) -> Iterator[Cluster]:
    """Run ZooKeeper with brokers that are started later."""
    with start_zookeeper(work / "zookeeper") as zookeeper:
        found = Cluster(work, zookeeper)
        try:
            yield found
        finally:
            found.stop()


def filled(kafka: Cluster) -> tuple[View, Tree]:
    """Start, fill and stop Kafka. Return its data and the nodes that it leaves."""
    kafka.start_kafka()
    hanging = fill(kafka.bootstrap)
    reassign(kafka.bootstrap, controller_of(kafka.bootstrap))
    for each in kafka.brokers.values():
        _until(
            lambda b=each.bootstrap: _replicas(b, "moving") == [1, 2, 3],  # type: ignore[misc]
            "the reassignment does not begin",
        )
    before = seen(kafka.bootstrap)
    kafka.stop()
    del hanging
    nodes = tree(kafka.zookeeper.address)
    moving = json.loads(nodes["/brokers/topics/moving"] or "")
    assert moving["adding_replicas"] == {"0": [3]}, moving
    assert before["offsets"] == [10, 20, 17]
    return before, nodes


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def _moves_in(context: Context) -> None:
    try:
        with cluster(context.work) as moved:
            before, nodes = filled(moved)
            if context.broker == "kafka":
                moved.restart()
            elif context.broker == "odradek":
                moved.start_odradek(*BROKERS)
            else:
                raise Skip("needs --broker: it starts three of them")
            after = seen(moved.bootstrap)
            for what, expected in before.items():
                assert after[what] == expected, f"{what}: {after[what]}, and not {expected}"
            if context.broker == "odradek":
                _preserved(nodes, tree(moved.zookeeper.address))
            _continues(moved)
            if context.broker == "odradek":
                moved.stop()
                _kafka_does_not_start_again(moved)
    except (PeerUnavailable, ZooKeeperUnavailable) as reason:
        raise Skip(str(reason)) from None


CHANGING = ("/controller_epoch", "/latest_producer_id_block", "/feature")


def _preserved(before: Tree, after: Tree) -> None:
    """Compare the nodes that no broker changes at a start."""
    for path, data in before.items():
        if path.endswith("/state") or path in CHANGING:
            continue
        if path == "/config/brokers/<default>":
            kept = json.loads(data or "")["config"]
            # min.insync.replicas is added with the ELR (KIP-966), as in Kafka 4.
            expected = {**kept, "min.insync.replicas": "1"}
            assert json.loads(after[path] or "")["config"] == expected, after[path]
            continue
        assert after.get(path) == data, f"{path}: {after.get(path)}, and not {data}"


def _continues(moved: Cluster) -> None:
    """Continue a transactional id, end an open transaction, and write to every partition."""
    bootstrap = moved.bootstrap
    _transactional(bootstrap, "hanging")  # aborts its transaction
    mover = _transactional(bootstrap, "mover")
    mover.begin_transaction()
    mover.produce("in.out", "last", None, 1)
    mover.commit_transaction(WAIT_S)
    values = [value for *_, value in records(bootstrap, "in.out", 1)]
    assert values == ["yes1", "yes3", "more1", "more3", "last"], values
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **CLIENT})
    for topic in ("plain", "compacted", "moving", "empty"):
        producer.produce(topic, "new", "key", 0)
    assert producer.flush(WAIT_S) == 0
    for topic in ("plain", "compacted", "moving", "empty"):
        assert records(bootstrap, topic, 0)[-1][-1] == "new", topic
    address = moved.zookeeper.address
    users = json.loads(tree(address)[f"/config/users/{USER}"] or "")["config"]
    alter_quota(bootstrap, (("user", USER),), "producer_byte_rate", 4_000_000.0)
    changed = json.loads(tree(address)[f"/config/users/{USER}"] or "")["config"]
    assert changed["SCRAM-SHA-256"] == users["SCRAM-SHA-256"], changed
    assert float(changed["producer_byte_rate"]) == 4_000_000.0, changed
    _until(lambda: _all_in_sync(address), "a replica stayed out of sync")


def _kafka_does_not_start_again(moved: Cluster) -> None:
    """Start a broker of Kafka on the store, which has the feature of Odradek's metadata now."""
    before = tree(moved.zookeeper.address)
    directory = moved.work / "kafka-again"
    try:
        broker = start_kafka_39(directory, BROKERS[-1] + 1, moved.zookeeper.address + CHROOT)
    except RuntimeError as error:
        assert "FeatureCache" in str(error), error
    else:
        broker.stop()
        raise AssertionError("Kafka started on a store that was taken over")
    after = tree(moved.zookeeper.address)
    assert after == before, {path for path in after if after[path] != before.get(path)}


def _all_in_sync(address: str) -> bool:
    nodes = tree(address)
    for path, data in nodes.items():
        if path.endswith("/state"):
            topic, number = path.split("/")[3], path.split("/")[5]
            replicas = json.loads(nodes[f"/brokers/topics/{topic}"] or "")["partitions"][number]
            if set(json.loads(data or "")["isr"]) != set(replicas) and topic != "moving":
                return False
    return True


CASES = (Case("a stopped cluster of Kafka 3.9 on ZooKeeper moves in", _moves_in, ci=True),)


def record(target: Path) -> None:
    """Write the nodes and the log directories of a stopped cluster."""
    with tempfile.TemporaryDirectory() as work, cluster(Path(work)) as kafka:
        before, nodes = filled(kafka)
        target.mkdir(parents=True, exist_ok=True)
        for name, content, indent in (("tree", nodes, 1), ("view", before, None)):
            text = json.dumps(content, indent=indent, sort_keys=True) + "\n"
            (target / f"{name}.json").write_text(text, encoding="utf-8")
        with tarfile.open(target / "directories.tar.xz", "w:xz") as archive:
            for each in BROKERS:
                archive.add(Path(work) / str(each) / "kafka-logs", str(each))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(Path(sys.argv[2]))
    else:
        main("moving_in", CASES)
