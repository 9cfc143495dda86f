"""The decision whether a store is that of a Kafka cluster, and whether it may be taken over. Pure.

Apache Kafka up to 3.9 kept the metadata of a cluster in ZooKeeper, in the nodes that `znodes` has,
too. So a take-over changes no node of a topic or config. It only adds the nodes of Odradek.

The checks run before anything is written. A cluster that authenticates or authorizes its clients is
refused, because its data would be open to all clients. Not all of that is in the store: a stopped
broker leaves no listeners, and an authorizer may keep its rules elsewhere. The configs of the
broker that takes over are therefore checked, too, and Kafka's own file as it was before options
replaced some of them. Without that file, an administrator has to permit the take-over.
Static configs such as ``log.retention.ms`` would be lost, and records be deleted by the defaults.

A take-over also needs the log directories. A broker that begins with empty ones is in sync
according to the store, and would be elected. The other replicas would truncate their logs to its
empty ones.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import NamedTuple

from odradek.config.consents import TAKE_OVER_WITHOUT_FILE
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid, uuid_to_string
from odradek.metadata import znodes
from odradek.metadata.features import METADATA_VERSION, default_levels
from odradek.metadata.image import MetadataImage
from odradek.slicing import ELEMENTS_PER_SLICE

ROOT = "/"
ODRADEK = "odradek"
DELEGATION_TOKENS = "delegation_token"
MIGRATION = "migration"
REASSIGNMENTS = "/admin/reassign_partitions"
SEQUENCE_IDS, CONFIG_CHANGES = "/brokers/seqid", "/config/changes"
ACL_NODES = ("kafka-acl", "kafka-acl-extended", "kafka-acl-changes", "kafka-acl-extended-changes")
"""Created by ``AclAuthorizer``. Without rules in them, it admits super users only."""
MESSAGE_NAMES_MAX = 5
"""Brokers, topics and configs that a message names."""

_SECURE_PREFIXES = (
    *("ssl.", "sasl.", "authorizer.", "super.users", "delegation.token."),
    "principal.builder.class",
)
_LISTENERS = ("listeners", "advertised.listeners")
_PROTOCOL_MAP = "listener.security.protocol.map"
_PROTOCOL = "security.inter.broker.protocol"
_SECURE_PROTOCOLS = ("SSL", "SASL")
_PROTECTED_NODES = "zookeeper.set.acl"
_AUTHORIZATION_KEYS = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")


class KafkaStore(NamedTuple):
    """The parts of a store of Kafka that decide whether it may be taken over.

    Attributes:
        root_names: The names of the nodes below the root.
        brokers: The names below ``/brokers/ids``: brokers that run.
        has_controller: Whether ``/controller`` exists.
        has_epoch: Whether ``/controller_epoch`` exists.
        has_producer_ids: Whether ``/latest_producer_id_block`` exists.
        deletions: The topics below ``/admin/delete_topics``.
        has_pending_reassignments: Whether ``/admin/reassign_partitions`` exists.
        broker_configs: The dynamic configs of each broker, by id. The defaults have the id "".
        scram_users: The users with SCRAM credentials.
    """

    root_names: Collection[str] = ()
    brokers: Collection[str] = ()
    has_controller: bool = False
    has_epoch: bool = True
    has_producer_ids: bool = True
    deletions: Collection[str] = ()
    has_pending_reassignments: bool = False
    broker_configs: Mapping[str, Mapping[str, str]] = {}
    scram_users: Collection[str] = ()


def is_kafkas(root_names: Collection[str], *, has_kafkas_parents: bool) -> bool:
    """Return whether a store with a cluster id is one of Kafka that was not taken over.

    Args:
        root_names: The names of the nodes below the root.
        has_kafkas_parents: Whether the two parents exist that only Kafka creates. A store of
            Odradek that has lost its nodes lacks them.
    """
    return ODRADEK not in root_names and has_kafkas_parents


def store_refusal(store: KafkaStore) -> str | None:
    """Return why a store of Kafka is not taken over, with the remedy. None: it may be."""
    names = store.root_names
    acls = [each for each in ACL_NODES if each in names]
    if acls:
        return (
            f"has access control (node /{acls[0]}), which Odradek does not enforce. All clients "
            "would have access. Remove the rules and the authorizer in Kafka first if you want that"
        )
    if DELEGATION_TOKENS in names:
        return (
            "authenticates clients by delegation tokens (node /delegation_token), which Odradek "
            "does not. All clients would have access"
        )
    secured = secure_configs(store.broker_configs)
    if secured:
        return (
            f"has SASL or SSL listeners (configs of brokers: {_some(secured)}), which Odradek does "
            "not serve. Remove these configs in Kafka first if all clients may have access"
        )
    if MIGRATION in names:
        return (
            "has begun to migrate to KRaft (node /migration). Finish the migration, or return to "
            "ZooKeeper and remove the node"
        )
    return _unfinished(store)


def _unfinished(store: KafkaStore) -> str | None:
    if store.brokers or store.has_controller:
        running = f"brokers {_some(store.brokers)}" if store.brokers else "its controller"
        return (
            f"runs ({running}). Stop all brokers of Kafka. After a crash their nodes exist until "
            "their sessions have expired"
        )
    if store.deletions:
        return (
            f"has not finished the deletion of topics ({_some(store.deletions)}). Let Kafka finish "
            f"it, or remove the nodes below {znodes.DELETE_TOPICS} to keep the topics"
        )
    for exists, path in (
        (store.has_epoch, znodes.CONTROLLER_EPOCH),
        (store.has_producer_ids, znodes.PRODUCER_ID_BLOCK),
    ):
        if not exists:
            return f"has no node {path}. Restore it with its contents"
    return None


def _some(names: Collection[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - MESSAGE_NAMES_MAX} more" if len(found) > MESSAGE_NAMES_MAX else ""
    return ", ".join(found[:MESSAGE_NAMES_MAX]) + more


def secure_configs(broker_configs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of configs that make listeners of SASL or SSL, or an authorizer."""
    return sorted(
        {
            name
            for configs in broker_configs.values()
            for name, value in configs.items()
            if _is_secure(name, value, _protocols(configs.get(_PROTOCOL_MAP, "")))
        }
    )


def _protocols(text: str) -> dict[str, str]:
    """Return the protocols of a ``listener.security.protocol.map`` by listener name."""
    pairs = (each.upper().rpartition(":") for each in text.split(","))
    return {name.strip(): protocol.strip() for name, _, protocol in pairs}


def _is_secure(name: str, value: str, protocols: Mapping[str, str]) -> bool:
    if name.startswith("listener.name."):
        name = name.removeprefix("listener.name.").partition(".")[2]
        return name.startswith(("ssl.", "sasl.", "principal.")) or ".sasl." in f".{name}"
    if name in _LISTENERS:
        names = [each.partition("://")[0].strip().upper() for each in value.split(",")]
        return any(protocols.get(each, each).startswith(_SECURE_PROTOCOLS) for each in names)
    if name == _PROTOCOL_MAP:
        # Kafka's default maps each protocol to itself, also those without a listener.
        return any(
            protocol.startswith(_SECURE_PROTOCOLS) and protocol != listener
            for listener, protocol in protocols.items()
        )
    if name == _PROTOCOL:
        return value.strip().upper().startswith(_SECURE_PROTOCOLS)
    if name == _PROTECTED_NODES:
        return value.strip().lower() == "true"
    return name.startswith(_SECURE_PREFIXES)


def config_refusal(configs: Mapping[str, str]) -> str | None:
    """Return why the static configs of a broker exclude the take-over. None: they do not.

    Args:
        configs: Its configs. Options of the command line may have replaced those of Kafka's file,
            so the file is checked separately.
    """
    authorization = [name for name in _AUTHORIZATION_KEYS if configs.get(name, "").strip()]
    if authorization:
        return (
            f"has an authorizer (config {authorization[0]}), which Odradek does not enforce. All "
            "clients would have access. Remove this config if you want that"
        )
    secured = secure_configs(
        {"": {name: value for name, value in configs.items() if value.strip()}}
    )
    if secured:
        return (
            f"has brokers with SASL or SSL (configs {_some(secured)}), which Odradek does not "
            "serve. Remove these configs if all clients may have access"
        )
    return None


def file_refusal(
    file: Mapping[str, str] | None, scram_users: Collection[str], *, permitted: bool
) -> str | None:
    """Return why a broker needs Kafka's own file. None: it has that file, or does not need it.

    Args:
        file: The contents of the file of the broker. None without a file.
        scram_users: The users with SCRAM credentials in the store.
        permitted: Whether an administrator permits a take-over without the file.
    """
    if permitted or (file is not None and file.get("zookeeper.connect", "").strip()):
        return None
    other = "" if file is None else " (the file of --config has no zookeeper.connect)"
    users = f", and it has {len(scram_users)} users with SCRAM credentials" if scram_users else ""
    return (
        f"needs Kafka's server.properties{other}, which may have retention, min.insync.replicas or "
        f"SASL listeners{users}. Start with --config FILE. If default configs and access for all "
        f"clients are right, set {TAKE_OVER_WITHOUT_FILE}=true"
    )


class DirectoryUse(NamedTuple):
    """How the log directories of a broker were used.

    Attributes:
        is_new: Whether they belong to no cluster yet.
        has_mark: Whether they have the mark of a cluster of Odradek.
        has_single_store: Whether they have the metadata of a single broker of Odradek.
        has_kraft_metadata: Whether they have the metadata of Kafka without ZooKeeper.
    """

    is_new: bool = False
    has_mark: bool = False
    has_single_store: bool = False
    has_kraft_metadata: bool = False


def use_refusal(use: DirectoryUse) -> str | None:
    """Return why a broker with these log directories takes no cluster over. None: it may."""
    if use.is_new:
        return (
            "needs a broker of Kafka first. Start Odradek with the id and the log directories of "
            "each one, before new brokers"
        )
    if use.has_mark:
        return (
            "was taken over before, according to the log directories, and its ZooKeeper has the "
            "nodes from before that. Restore the nodes of Odradek"
        )
    if use.has_single_store:
        return (
            "has log directories that a single broker of Odradek has used since. Use the "
            "directories as Kafka left them"
        )
    if use.has_kraft_metadata:
        return (
            "has metadata without ZooKeeper in the log directories. Start this broker once without "
            "zookeeper.connect, and then with an empty path of ZooKeeper"
        )
    return None


Logs = Mapping[TopicPartition, Sequence[Uuid | None]]
"""The topic ids of the logs of each partition. None: a log has none."""


def checking_directories(
    image: MetadataImage, node_id: BrokerId, logs: Logs
) -> Generator[None, None, str | None]:
    """Return why the log directories of a broker do not fit the store, in time slices.

    A replica in the ISR needs its log. Another one copies its log from the leader. The last members
    of the ISR are in the ELR while they are down.

    Args:
        image: The metadata in the store.
        node_id: The broker.
        logs: The logs in its directories.

    Returns:
        The reason with the remedy. None: the log directories fit.
    """
    twice = yield from _finding_copies(logs)
    if twice is not None:
        return f"broker {node_id} has several directories {twice}. Keep the right one only"
    strange = yield from checking_known_logs(image, node_id, logs)
    if strange is not None:
        return strange
    missing: list[str] = []
    left = ELEMENTS_PER_SLICE
    for topic in image.topics_by_name.values():
        for partition in topic.partitions:
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
            if node_id not in (*partition.isr, *partition.elr, *partition.last_known_elr):
                continue
            found = logs.get(TopicPartition(topic.name, partition.partition), ())
            name = f"{topic.name}-{partition.partition}"
            if not found:
                missing.append(name)
            elif None not in found and topic.topic_id not in found:
                return _of_another_topic(node_id, name, found, topic.topic_id)
    if not missing:
        return None
    return (
        f"broker {node_id} is in sync for {len(missing)} partitions without a log in its log "
        f"directories ({_some(missing)}). Name all log directories of Kafka in log.dirs, or start "
        "this broker after the other replicas"
    )


def checking_known_logs(
    image: MetadataImage, node_id: BrokerId, logs: Logs
) -> Generator[None, None, str | None]:
    """Return why the metadata does not belong to these logs, in time slices. None: it may.

    A broker renames the logs that the metadata does not assign to it. If it would rename all logs,
    then the metadata belongs to another cluster with the same id, or was lost.
    """
    for count, (tp, ids) in enumerate(logs.items(), 1):
        if not count % ELEMENTS_PER_SLICE:
            yield
        topic = image.topics_by_name.get(TopicName(tp.topic))
        found = image.partition(tp.topic, tp.partition)
        if topic is None or found is None or node_id not in found.replicas:
            continue
        if None in ids or topic.topic_id in ids:
            return None
    if not logs:
        return None
    return (
        f"the metadata store has none of the {len(logs)} partitions in the log directories of "
        f"broker {node_id} ({_some([f'{tp.topic}-{tp.partition}' for tp in logs])}). Set "
        "zookeeper.connect to the path of their cluster, or restore its ZooKeeper. If you do not "
        "need their records, use empty log directories"
    )


def _finding_copies(logs: Logs) -> Generator[None, None, str | None]:
    """Return a partition with several logs that are not of different topics."""
    for count, (tp, ids) in enumerate(logs.items(), 1):
        if not count % ELEMENTS_PER_SLICE:
            yield
        if len(ids) > 1 and (None in ids or len(set(ids)) < len(ids)):
            return f"{tp.topic}-{tp.partition}"
    return None


def _of_another_topic(
    node_id: BrokerId, name: str, found: Sequence[Uuid | None], expected: Uuid
) -> str:
    ids = ", ".join(uuid_to_string(each) for each in found if each is not None)
    return (
        f"broker {node_id} has a log of {name} with the topic id {ids}, but the topic has the id "
        f"{uuid_to_string(expected)}. Use the log directories of this cluster"
    )


def store_warnings(store: KafkaStore) -> list[str]:
    """Return one line for each part of the store that has no effect in Odradek."""
    found = []
    if store.scram_users:
        found.append(
            f"the SCRAM credentials of {len(store.scram_users)} users are kept, but clients are "
            "not authenticated"
        )
    if store.has_pending_reassignments:
        found.append(f"the reassignments in {REASSIGNMENTS} are kept, but do not begin")
    return found


def initial_levels(levels: Mapping[str, int]) -> dict[str, int]:
    """Return the features after a take-over. Features that were off stay off.

    On ZooKeeper Kafka has no ``metadata.version``. The one of Odradek's own format is added.
    """
    return {METADATA_VERSION: default_levels()[METADATA_VERSION], **levels}
