"""Paths and contents of the controller's nodes in the metadata store: Kafka's ``ZkData``.

The layout is the one of Kafka 2.3-3.x on ZooKeeper:

* ``/brokers/topics/T`` has the topic's id and the replicas of every partition.
* ``/brokers/topics/T/partitions/P/state`` has the leader and the in-sync replicas. The version of
  the node is the partition epoch.
* ``/config/topics/T`` and ``/config/brokers/N`` (or ``<default>``) have the altered configs.

``/odradek/deleted_topics/ID`` is not Kafka's. It has the name of a deleted topic until all of its
logs are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from odradek.ids import BrokerId, TopicName, Uuid, uuid_from_string, uuid_to_string
from odradek.metadata.image import BrokerRegistration, PartitionImage, TopicImage
from odradek.metadata.store.interface import Create, Delete, Node, Operation

CLUSTER_ID = "/cluster/id"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURES = "/feature"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS = "/config/client-metrics"
DELETED_TOPICS = "/odradek/deleted_topics"
DEFAULT_ENTITY = "<default>"

# In the order of their creation, because a parent must exist before its children.
PERSISTENT_PATHS = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/cluster",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_METRICS,
    "/odradek",
    DELETED_TOPICS,
)


def encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(data)
    return value


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def state_path(name: str, partition: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def deleted_topic_path(topic_id: Uuid) -> str:
    return f"{DELETED_TOPICS}/{uuid_to_string(topic_id)}"


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config_path(name: str) -> str:
    """Return the path of a broker's configs. `name` is its id as text, or "" for all brokers."""
    return f"{BROKER_CONFIGS}/{name or DEFAULT_ENTITY}"


def sanitized(name: str) -> str:
    """Encode a name of any characters as the last part of a path (``Sanitizer``)."""
    return quote(name, safe="").replace("~", "%7E")


def unsanitized(name: str) -> str:
    return unquote(name)


def group_config_path(name: str) -> str:
    return f"{GROUP_CONFIGS}/{sanitized(name)}"


def client_metrics_path(name: str) -> str:
    return f"{CLIENT_METRICS}/{sanitized(name)}"


def encode_topic(topic: TopicImage) -> bytes:
    return encode(
        {
            "version": 3,
            "topic_id": uuid_to_string(topic.topic_id),
            "partitions": {str(p.partition): list(p.replicas) for p in topic.partitions},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def encode_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    return encode(
        {
            "version": 1,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "controller_epoch": controller_epoch,
            "isr": list(partition.isr),
        }
    )


def decode_topic_header(data: bytes) -> tuple[Uuid, list[tuple[BrokerId, ...]]]:
    """Return a topic's id and the replicas of its partitions, in the order of their numbers."""
    value = decode(data)
    partitions = value["partitions"]
    replicas = [tuple(partitions[str(number)]) for number in range(len(partitions))]
    return uuid_from_string(value["topic_id"]), replicas


def decode_partition(number: int, replicas: tuple[BrokerId, ...], node: Node) -> PartitionImage:
    value = decode(node.data)
    return PartitionImage(
        partition=number,
        leader=BrokerId(value["leader"]),
        leader_epoch=value["leader_epoch"],
        partition_epoch=node.version,
        replicas=replicas,
        isr=tuple(value["isr"]),
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return encode({"version": 1, "config": dict(configs)})


def decode_configs(data: bytes) -> dict[str, str]:
    configs: dict[str, str] = decode(data)["config"]
    return configs


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Encode Kafka's ``FeatureZNode``, version 2. Status 1 means that features are enabled."""
    return encode({"version": 2, "status": 1, "features": dict(levels)})


def decode_features(data: bytes) -> dict[str, int]:
    levels: dict[str, int] = decode(data)["features"]
    return levels


PRODUCER_ID_BLOCK_SIZE = 1000
"""Producer ids that a broker allocates at a time, as in Kafka's ``ProducerIdsBlock``."""


def encode_producer_id_block(broker: int, first: int, last: int) -> bytes:
    """Encode Kafka's ``ProducerIdBlockZNode``: the ids that were allocated last."""
    return encode(
        {"version": 1, "broker": broker, "block_start": str(first), "block_end": str(last)}
    )


def encode_broker(broker: BrokerRegistration, time_ms: int) -> bytes:
    value: dict[str, Any] = {
        "version": 5,
        "host": broker.host,
        "port": broker.port,
        "jmx_port": -1,
        "timestamp": str(time_ms),
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.listeners],
        "listener_security_protocol_map": {e.listener: "PLAINTEXT" for e in broker.listeners},
        "features": {},
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    return encode(value)


def partition_operations(
    name: TopicName, partitions: Sequence[PartitionImage], controller_epoch: int
) -> list[Operation]:
    """Create the nodes of new partitions. The topic's ``partitions`` node exists."""
    operations: list[Operation] = []
    for partition in partitions:
        path = state_path(name, partition.partition)
        operations.append(Create(path.removesuffix("/state")))
        operations.append(Create(path, encode_state(partition, controller_epoch)))
    return operations


def create_topic_operations(
    topic: TopicImage, configs: Mapping[str, str], controller_epoch: int
) -> list[Operation]:
    path = topic_path(topic.name)
    operations: list[Operation] = [
        Create(path, encode_topic(topic)),
        Create(f"{path}/partitions"),
        *partition_operations(topic.name, topic.partitions, controller_epoch),
    ]
    if configs:
        operations.append(Create(topic_config_path(topic.name), encode_configs(configs)))
    return operations


def decode_deleted_topic(path_name: str, data: bytes) -> tuple[Uuid, TopicName]:
    """Return the id and the name of a topic whose deletion is recorded."""
    return uuid_from_string(path_name), TopicName(decode(data)["topic"])


def delete_topic_operations(topic: TopicImage, has_configs: bool) -> list[Operation]:
    """Delete every node of a topic, leaves first, and record the deletion."""
    path = topic_path(topic.name)
    operations: list[Operation] = []
    for partition in topic.partitions:
        state = state_path(topic.name, partition.partition)
        operations += [Delete(state), Delete(state.removesuffix("/state"))]
    operations += [Delete(f"{path}/partitions"), Delete(path)]
    if has_configs:
        operations.append(Delete(topic_config_path(topic.name)))
    record = encode({"version": 1, "topic": topic.name})
    operations.append(Create(deleted_topic_path(topic.topic_id), record))
    return operations
