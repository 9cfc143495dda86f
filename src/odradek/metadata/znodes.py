"""Paths and contents of the controller's nodes in the metadata store: Kafka's ``ZkData``.

The layout is the one of Kafka 2.3-3.x on ZooKeeper:

* ``/brokers/topics/T`` has the topic's id and the replicas of every partition.
* ``/brokers/topics/T/partitions/P/state`` has the leader and the in-sync replicas. The version of
  the node is the partition epoch.
* ``/config/topics/T`` and ``/config/brokers/N`` (or ``<default>``) have the altered configs.

These nodes are not Kafka's:

* ``/odradek/deleted_topics/ID`` has the name of a deleted topic and the brokers that may still have
  logs of it, until all of them are removed.
* ``/odradek/brokers/N`` has the last registration of a broker, also while the broker is down.
* ``/odradek/metadata`` has the position of the last change: controller epoch and metadata offset.
  It also names topics whose partitions were not all created yet, because they exceed one write.
* ``/odradek/kafka`` exists if the store was taken over from Kafka.

``/admin/delete_topics/T`` exists while the nodes of a deleted topic are removed in several writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid, uuid_from_string, uuid_to_string
from odradek.metadata.image import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    Endpoint,
    LeaderRecoveryState,
    PartitionImage,
    SecurityProtocol,
    TopicDeletion,
    TopicImage,
)
from odradek.metadata.json_slices import decoding_json
from odradek.metadata.store.interface import Create, Delete, Node, Operation
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

R = TypeVar("R")

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
REGISTRATIONS = "/odradek/brokers"
STARTS = "/odradek/starts"
METADATA = "/odradek/metadata"
MOVE = "/odradek/move"
TAKEN_OVER = "/odradek/kafka"
CONTROLLER = "/controller"
DELETE_TOPICS = "/admin/delete_topics"
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
    REGISTRATIONS,
    STARTS,
    "/admin",
    DELETE_TOPICS,
)


class InvalidNode(KafkaError):
    """The contents of a node are not JSON, or do not have the node's form."""

    def __init__(self, path: str, reason: Exception) -> None:
        found = f"the key {reason} is missing" if isinstance(reason, KeyError) else str(reason)
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the node {path} of the metadata store is not valid ({found}). Restore its contents",
        )
        self.path = path
        self.reason = reason

    def below(self, root: str) -> InvalidNode:
        """Return the error with the path from the root of ZooKeeper."""
        return InvalidNode(root + self.path, self.reason)


_INVALID = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of decoding a node whose contents are not valid."""


def valid(path: str, decode_node: Callable[..., R], *contents: Any) -> R:
    """Return `decode_node(*contents)`.

    Raises:
        InvalidNode: The contents are not those of a node of this path.
    """
    try:
        return decode_node(*contents)
    except _INVALID as error:
        raise InvalidNode(path, error) from error


def valid_in_slices(path: str, decoding: Generator[None, None, R]) -> Generator[None, None, R]:
    """Do the same as `valid` with a generator that decodes in time slices."""
    try:
        return (yield from decoding)
    except _INVALID as error:
        raise InvalidNode(path, error) from error


def encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """Return the JSON value of a node.

    Raises:
        ValueError: The data are not JSON, or are nested too deeply.
    """
    try:
        value: dict[str, Any] = json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
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
    """Encode a name of any characters as the last part of a path (``Sanitizer``).

    ZooKeeper has no nodes ``.`` and ``..``.
    """
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="").replace("~", "%7E")


def unsanitized(name: str) -> str:
    return unquote(name)


def group_config_path(name: str) -> str:
    return f"{GROUP_CONFIGS}/{sanitized(name)}"


def client_metrics_path(name: str) -> str:
    return f"{CLIENT_METRICS}/{sanitized(name)}"


def encoding_topic(topic: TopicImage) -> Generator[None, None, bytes]:
    """Encode the node of a topic in time slices."""
    replicas: list[str] = []
    adding: list[str] = []
    removing: list[str] = []
    left = ELEMENTS_PER_SLICE
    for partition in topic.partitions:
        number = partition.partition
        replicas.append(_replicas_member(number, partition.replicas))
        if partition.adding_replicas:
            adding.append(_replicas_member(number, partition.adding_replicas))
        if partition.removing_replicas:
            removing.append(_replicas_member(number, partition.removing_replicas))
        left -= 1
        if not left:
            left = ELEMENTS_PER_SLICE
            yield
    return (
        f'{{"version":3,"topic_id":"{uuid_to_string(topic.topic_id)}",'
        f'"partitions":{{{",".join(replicas)}}},'
        f'"adding_replicas":{{{",".join(adding)}}},'
        f'"removing_replicas":{{{",".join(removing)}}}}}'
    ).encode()


def _replicas_member(partition: int, brokers: Sequence[BrokerId]) -> str:
    """Return a member of a JSON object. `json.dumps` would encode all of them in one step."""
    return f'"{partition}":{_array(brokers)}'


def _array(brokers: Sequence[BrokerId]) -> str:
    return f"[{','.join(map(str, brokers))}]"


def encode_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    """Encode Kafka's state of a partition. Three keys are not Kafka's: the ELR and directories.

    Keys beyond Kafka 2.3's are written only when they have a value.
    """
    # `json.dumps` takes 3.6 us, and this 0.9 us. A change may have 10,000 states.
    text = (
        f'{{"version":1,"leader":{partition.leader},"leader_epoch":{partition.leader_epoch},'
        f'"controller_epoch":{controller_epoch},"isr":{_array(partition.isr)}'
    )
    if partition.leader_recovery_state:
        text += f',"leader_recovery_state":{int(partition.leader_recovery_state)}'
    if partition.elr:
        text += f',"elr":{_array(partition.elr)}'
    if partition.last_known_elr:
        text += f',"last_known_elr":{_array(partition.last_known_elr)}'
    if partition.directories:
        ids = (f'"{uuid_to_string(each)}"' for each in partition.directories)
        text += f',"directories":[{",".join(ids)}]'
    return f"{text}}}".encode()


class PartitionReplicas(NamedTuple):
    """The part of a partition that is in the node of its topic."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


def decoding_topic_header(
    data: bytes,
) -> Generator[None, None, tuple[Uuid, list[PartitionReplicas]]]:
    """Decode the node of a topic in time slices.

    Returns:
        The topic's id and the replicas of its partitions, in the order of their numbers.
    """
    value = yield from decoding_json(data)
    partitions = value["partitions"]
    adding = value.get("adding_replicas", {})
    removing = value.get("removing_replicas", {})
    replicas: list[PartitionReplicas] = []
    for number in map(str, range(len(partitions))):
        replicas.append(
            PartitionReplicas(
                tuple(partitions[number]),
                tuple(adding.get(number, ())),
                tuple(removing.get(number, ())),
            )
        )
        if not len(replicas) % ELEMENTS_PER_SLICE:
            yield
    return uuid_from_string(value["topic_id"]), replicas


def decode_partition(number: int, replicas: PartitionReplicas, node: Node) -> PartitionImage:
    value = decode(node.data)
    return PartitionImage(
        partition=number,
        leader=BrokerId(value["leader"]),
        leader_epoch=value["leader_epoch"],
        partition_epoch=node.version,
        replicas=replicas.replicas,
        isr=tuple(value["isr"]),
        adding_replicas=replicas.adding,
        removing_replicas=replicas.removing,
        elr=tuple(value.get("elr", ())),
        last_known_elr=tuple(value.get("last_known_elr", ())),
        leader_recovery_state=LeaderRecoveryState(value.get("leader_recovery_state", 0)),
        directories=tuple(uuid_from_string(each) for each in value.get("directories", ())),
    )


def decode_cluster_id(data: bytes) -> str:
    found: str = decode(data)["id"]
    if not isinstance(found, str):
        raise TypeError(found)
    return found


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


def encode_broker(
    broker: BrokerRegistration, time_ms: int, clean_shutdown_epoch: int = UNKNOWN_BROKER_EPOCH
) -> bytes:
    """Encode Kafka's ``BrokerIdZNode``, version 5, with four keys that are not Kafka's.

    ``incarnation_id``, ``directories``, ``boot_id`` and ``clean_shutdown_epoch`` are left out when
    they are not known. The last one is the broker epoch in the clean-shutdown files. The epoch of
    this process is not in the node. It is the czxid of the node.
    """
    value: dict[str, Any] = {
        "version": 5,
        "host": broker.host,
        "port": broker.port,
        "jmx_port": -1,
        "timestamp": str(time_ms),
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.listeners],
        "listener_security_protocol_map": {
            e.listener: e.security_protocol.name for e in broker.listeners
        },
        "features": {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in broker.features.items()
        },
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    if broker.incarnation_id != ZERO_UUID:
        value["incarnation_id"] = uuid_to_string(broker.incarnation_id)
    if broker.directories:
        value["directories"] = [uuid_to_string(each) for each in broker.directories]
    if broker.boot_id:
        value["boot_id"] = broker.boot_id
    if clean_shutdown_epoch != UNKNOWN_BROKER_EPOCH:
        value["clean_shutdown_epoch"] = clean_shutdown_epoch
    return encode(value)


def decode_clean_shutdown_epoch(data: bytes) -> int:
    """Return the broker epoch in the clean-shutdown files of a broker. -1: it has none."""
    epoch = decode(data).get("clean_shutdown_epoch", UNKNOWN_BROKER_EPOCH)
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH


def encode_controller(broker: BrokerId, time_ms: int) -> bytes:
    """Encode Kafka's ``ControllerZNode``."""
    return encode({"version": 2, "brokerid": broker, "timestamp": str(time_ms)})


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(decode(data)["brokerid"])


def decode_broker(broker_id: BrokerId, data: bytes, epoch: int) -> BrokerRegistration:
    """Decode the node of a broker. `epoch` is the czxid of the node.

    Raises:
        ValueError: The node is not JSON of this form.
    """
    try:
        value = decode(data)
        protocols = value["listener_security_protocol_map"]
        return BrokerRegistration(
            id=broker_id,
            host=value["host"],
            port=value["port"],
            rack=value.get("rack"),
            listeners=tuple(_decode_endpoint(text, protocols) for text in value["endpoints"]),
            epoch=epoch,
            incarnation_id=_decode_uuid(value.get("incarnation_id")),
            features={
                name: (each["min_version"], each["max_version"])
                for name, each in value.get("features", {}).items()
            },
            directories=tuple(uuid_from_string(each) for each in value.get("directories", ())),
            boot_id=value.get("boot_id", ""),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the node of broker {broker_id} is not valid: {error!r}") from error


def _decode_uuid(text: str | None) -> Uuid:
    return ZERO_UUID if text is None else uuid_from_string(text)


def _decode_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host, int(port), SecurityProtocol[protocols[listener]])


def registration_path(broker: BrokerId) -> str:
    return f"{REGISTRATIONS}/{broker}"


def encode_registration(broker: BrokerRegistration) -> bytes:
    """Encode the last registration of a broker, with its epoch and whether it is fenced."""
    value = decode(encode_broker(broker, 0))
    del value["timestamp"]
    value["epoch"] = broker.epoch
    value["fenced"] = broker.fenced
    value["in_controlled_shutdown"] = broker.in_controlled_shutdown
    if broker.drained:
        value["drained"] = True
    return encode(value)


def decode_registration(broker: BrokerId, data: bytes) -> BrokerRegistration:
    value = decode(data)
    return replace(
        decode_broker(broker, data, value["epoch"]),
        fenced=value["fenced"],
        in_controlled_shutdown=value["in_controlled_shutdown"],
        drained=value.get("drained", False),
    )


def encode_position(
    controller_epoch: int, offset: int, unfinished: Sequence[TopicName] = ()
) -> bytes:
    """Encode the position of a change, and the topics that further writes complete."""
    value: dict[str, Any] = {"version": 1, "controller_epoch": controller_epoch, "offset": offset}
    if unfinished:
        value["unfinished_topics"] = list(unfinished)
    return encode(value)


def decode_unfinished(data: bytes) -> list[TopicName]:
    """Return the topics whose partitions were not all created yet."""
    return decode(data).get("unfinished_topics", []) if data else []


def delete_mark_path(name: TopicName) -> str:
    return f"{DELETE_TOPICS}/{name}"


def encode_delete_mark(topic_id: Uuid) -> bytes:
    """Encode the mark of a deletion, see `is_delete_mark`."""
    return encode({"version": 1, "topic_id": uuid_to_string(topic_id)})


def is_delete_mark(data: bytes) -> bool:
    """Return whether a node in ``/admin/delete_topics`` is a mark of this controller.

    Kafka's mark is empty. Kafka's tools of old releases create it to request a deletion.
    """
    return bool(data)


def decode_position(data: bytes) -> tuple[int, int]:
    """Return controller epoch and metadata offset. (0, 0) if the node is new."""
    value = decode(data) if data else {"controller_epoch": 0, "offset": 0}
    return value["controller_epoch"], value["offset"]


def decode_next_producer_id(data: bytes) -> int:
    """Return the first producer id that is in no block yet."""
    return int(decode(data)["block_end"]) + 1 if data else 0


def replicas_of(partition: PartitionImage) -> PartitionReplicas:
    """Return the part of a partition that is in the node of its topic."""
    return PartitionReplicas(
        partition.replicas, partition.adding_replicas, partition.removing_replicas
    )


def partition_operations(
    name: TopicName, partition: PartitionImage, controller_epoch: int
) -> list[Operation]:
    """Create the nodes of a new partition. The topic's ``partitions`` node exists."""
    path = state_path(name, partition.partition)
    return [
        Create(path.removesuffix("/state")),
        Create(path, encode_state(partition, controller_epoch)),
    ]


def create_topic_operations(topic: TopicImage, controller_epoch: int) -> list[Operation]:
    path = topic_path(topic.name)
    operations: list[Operation] = [
        Create(path, run_to_completion(encoding_topic(topic))),
        Create(f"{path}/partitions"),
    ]
    for partition in topic.partitions:
        operations += partition_operations(topic.name, partition, controller_epoch)
    return operations


def encode_deletion(deletion: TopicDeletion) -> bytes:
    return encode({"version": 2, "topic": deletion.name, "brokers": list(deletion.brokers)})


def decode_deletion(path_name: str, data: bytes, broker: BrokerId) -> tuple[Uuid, TopicDeletion]:
    """Return the id and the deletion of a topic whose deletion is recorded.

    Version 1 of the node was written by a cluster of one broker and does not name it. That broker
    is `broker`.
    """
    value = decode(data)
    deletion = TopicDeletion(TopicName(value["topic"]), tuple(value.get("brokers", (broker,))))
    return uuid_from_string(path_name), deletion


def delete_partition_operations(name: TopicName, number: int) -> list[Operation]:
    """Delete the nodes of one partition."""
    state = state_path(name, number)
    return [Delete(state), Delete(state.removesuffix("/state"))]


def delete_parents_operations(name: TopicName) -> list[Operation]:
    """Delete the nodes of a topic without partitions. Configs and the deletion are others."""
    path = topic_path(name)
    return [Delete(f"{path}/partitions"), Delete(path)]
