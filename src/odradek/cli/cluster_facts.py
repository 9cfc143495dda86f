"""Collects the facts about a cluster for `odradek cluster status`, over the network.

The metadata come from the first broker that responds, and ZooKeeper's address from the configs of
the brokers. Each broker and each server of ZooKeeper is asked once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from odradek.cli.client import reason, server_address
from odradek.cli.cluster_diagnosis import (
    NONE,
    BrokerFacts,
    ClusterFacts,
    PartitionFacts,
    ZooKeeperFacts,
)
from odradek.cli.output import CommandError
from odradek.cli.wire import CLIENT_ID
from odradek.client.blocking import BlockingClient
from odradek.launcher.readiness import zookeeper_serves
from odradek.metadata import znodes
from odradek.metadata.topics import CLUSTER_METADATA
from odradek.protocol.codec import Message
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse
from odradek.protocol.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
)
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.replication.offset_lookup import LATEST

PROBE_S = 5.0
"""Time limit of each broker and each server of ZooKeeper."""
TOPIC, BROKER = 2, 4
"""Resource types of DescribeConfigs."""
TOOL = -2
"""The replica id with which followers return their log end."""
LAGGING_MAX = 500
"""Most partitions whose replicas are asked for their log end."""
TOPICS_PER_REQUEST = 1_000


class Brokers:
    """Connections to the brokers of a cluster, by id. Used with `with`."""

    def __init__(self) -> None:
        self._clients: dict[int, BlockingClient] = {}
        self.failures: dict[int, str] = {}
        self.silent: dict[int, str] = {}

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def connect(self, broker_id: int, address: tuple[str, int]) -> None:
        """Connect to a broker, or note why this host cannot. The broker must respond."""
        client = None
        try:
            client = BlockingClient.connect(address, PROBE_S, CLIENT_ID)
            client.negotiate()
        except (OSError, TypeError) as error:
            self.failures[broker_id] = _text(error)
            if client is not None:
                client.close()
        else:
            self._clients[broker_id] = client

    def ask(self, broker_id: int, request: Message, response: type[Any]) -> Any | None:
        """Return a broker's response, or None if it does not respond.

        Note why it does not. It is not asked again, because each request may take the time limit.
        """
        client = self._clients.get(broker_id)
        if client is None:
            return None
        try:
            return client.call(request, response)
        except (OSError, TypeError) as error:
            self._clients.pop(broker_id).close()
            self.silent[broker_id] = _text(error)
            return None

    @property
    def ids(self) -> list[int]:
        """The brokers that respond."""
        return list(self._clients)


def _text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {PROBE_S:g} s"
    return reason(error)


def collect(bootstrap_server: str, zookeeper: str | None) -> ClusterFacts:
    """Return the facts.

    Args:
        bootstrap_server: Addresses of brokers.
        zookeeper: The ZooKeeper. None: the one in the configs of the brokers.

    Raises:
        CommandError: No broker responds.
    """
    cluster = _described(bootstrap_server)
    with Brokers() as brokers:
        for each in cluster.brokers:
            brokers.connect(each.broker_id, (each.host, each.port))
        zookeeper = zookeeper or _zookeeper_of(brokers)
        store = None if zookeeper is None else zookeeper_facts(zookeeper)
        ahead = {} if store is None or store.failure else clocks(store.connect)
        partitions = _partitions(brokers)
        if partitions is not None:
            partitions = _with_lags(brokers, _with_min_isr(brokers, partitions))
        silent = dict(brokers.silent)
        # The last request: a broker that has lost the controller does not respond to it.
        offset, applied = _quorum(brokers, cluster.controller_id)
    return ClusterFacts(
        cluster.cluster_id,
        cluster.controller_id,
        offset,
        {
            each.broker_id: BrokerFacts(
                each.broker_id,
                f"{each.host}:{each.port}",
                each.is_fenced,
                brokers.failures.get(each.broker_id),
                applied.get(each.broker_id),
                ahead.get(each.broker_id),
                each.drained,
                silent.get(each.broker_id),
            )
            for each in sorted(cluster.brokers, key=lambda each: each.broker_id)
        },
        store,
        None if partitions is None else tuple(partitions),
    )


def _described(bootstrap_server: str) -> DescribeClusterResponse:
    """Return the cluster as the first broker that responds knows it."""
    failures = []
    for server in bootstrap_server.split(","):
        address = server_address(server)
        if address is None:
            continue
        try:
            with BlockingClient.connect(address, PROBE_S, CLIENT_ID) as client:
                client.negotiate()
                request = DescribeClusterRequest(include_fenced_brokers=True)
                return client.call(request, DescribeClusterResponse)
        except (OSError, TypeError) as error:
            failures.append(f"{server}: {_text(error)}")
    raise CommandError(
        f"No broker responds ({'; '.join(failures)}). Start one, or set the addresses with"
        " --bootstrap-server. With --zookeeper HOST:PORT/PATH the command shows ZooKeeper alone."
    )


# --- brokers ---


def _zookeeper_of(brokers: Brokers) -> str | None:
    for broker_id in brokers.ids:
        resource = DescribeConfigsResource(BROKER, str(broker_id), ["zookeeper.connect"])
        found = brokers.ask(broker_id, DescribeConfigsRequest([resource]), DescribeConfigsResponse)
        if found is not None and found.results[0].configs:
            return found.results[0].configs[0].value or None
    return None


def _quorum(brokers: Brokers, controller_id: int) -> tuple[int | None, dict[int, int]]:
    """Return the metadata offset of the controller, and those of the brokers that poll it."""
    request = DescribeQuorumRequest([TopicData(CLUSTER_METADATA, [PartitionData(0)])])
    found = brokers.ask(controller_id, request, DescribeQuorumResponse)
    if found is None or found.error_code or not found.topics:
        return None, {}
    partition = found.topics[0].partitions[0]
    if partition.error_code:
        return None, {}
    applied = {each.replica_id: each.log_end_offset for each in partition.observers}
    return partition.high_watermark, applied


# --- partitions ---


def _partitions(brokers: Brokers) -> list[PartitionFacts] | None:
    """Return all partitions, as the first broker that responds knows them. None: no broker does."""
    for broker_id in brokers.ids:
        metadata = brokers.ask(broker_id, MetadataRequest(None), MetadataResponse)
        if metadata is None:
            continue
        names = sorted(each.name for each in metadata.topics if each.name)
        found = _pages(brokers, broker_id, names)
        if found is not None:
            return found
    return None


def _pages(brokers: Brokers, broker_id: int, names: list[str]) -> list[PartitionFacts] | None:
    partitions: list[PartitionFacts] = []
    cursor: Cursor | None = None
    while names:
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names])
        request.cursor = cursor
        page = brokers.ask(broker_id, request, DescribeTopicPartitionsResponse)
        if page is None:
            return None
        for topic in page.topics:
            for each in topic.partitions:
                partitions.append(
                    PartitionFacts(
                        f"{topic.name}-{each.partition_index}",
                        each.leader_id,
                        tuple(each.replica_nodes),
                        tuple(each.isr_nodes),
                        tuple(each.eligible_leader_replicas or ()),
                        tuple(each.last_known_elr or ()),
                    )
                )
        if page.next_cursor is None:
            break
        cursor = Cursor(page.next_cursor.topic_name, page.next_cursor.partition_index)
    return partitions


def _topic(partition: PartitionFacts) -> tuple[str, int]:
    topic, _, number = partition.name.rpartition("-")
    return topic, int(number)


def _with_min_isr(brokers: Brokers, partitions: list[PartitionFacts]) -> list[PartitionFacts]:
    """Add min.insync.replicas where a replica is missing."""
    short = sorted({_topic(each)[0] for each in partitions if each.out_of_sync})
    values: dict[str, int] = {}
    for start in range(0, len(short), TOPICS_PER_REQUEST):
        resources = [
            DescribeConfigsResource(TOPIC, name, ["min.insync.replicas"])
            for name in short[start : start + TOPICS_PER_REQUEST]
        ]
        for broker_id in brokers.ids:
            request = DescribeConfigsRequest(resources)
            found = brokers.ask(broker_id, request, DescribeConfigsResponse)
            if found is None:
                continue
            for result in found.results:
                for config in result.configs:
                    values[result.resource_name] = int(config.value or 1)
            break
    return [replace(each, min_isr=values.get(_topic(each)[0], 1)) for each in partitions]


def _with_lags(brokers: Brokers, partitions: list[PartitionFacts]) -> list[PartitionFacts]:
    """Add the number of records that replicas on responding brokers lack."""
    lagging = [each for each in partitions if each.leader != NONE and each.out_of_sync]
    asked: dict[int, list[PartitionFacts]] = {}
    for each in lagging[:LAGGING_MAX]:
        for broker_id in {each.leader, *each.out_of_sync}:
            asked.setdefault(broker_id, []).append(each)
    ends = {broker_id: _log_ends(brokers, broker_id, found) for broker_id, found in asked.items()}

    def behind(partition: PartitionFacts) -> Mapping[int, int]:
        end = ends.get(partition.leader, {}).get(partition.name)
        lags = {}
        for broker_id in partition.out_of_sync if end is not None else ():
            own = ends.get(broker_id, {}).get(partition.name)
            if own is not None and end is not None:
                lags[broker_id] = max(0, end - own)
        return lags

    return [replace(each, behind=behind(each)) if each.out_of_sync else each for each in partitions]


def _log_ends(
    brokers: Brokers, broker_id: int, partitions: Iterable[PartitionFacts]
) -> dict[str, int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each in partitions:
        name, number = _topic(each)
        topics.setdefault(name, []).append(ListOffsetsPartition(number, timestamp=LATEST))
    request = ListOffsetsRequest(
        TOOL, topics=[ListOffsetsTopic(name, found) for name, found in topics.items()]
    )
    found = brokers.ask(broker_id, request, ListOffsetsResponse)
    if found is None:
        return {}
    return {
        f"{topic.name}-{each.partition_index}": each.offset
        for topic in found.topics
        for each in topic.partitions
        if not each.error_code
    }


# --- ZooKeeper ---


def zookeeper_facts(connect: str) -> ZooKeeperFacts:
    """Return the facts of a ZooKeeper.

    Raises:
        CommandError: The text is not HOST:PORT[,HOST:PORT...][/PATH].
    """
    from odradek.broker.zookeeper_cluster import parse_connect
    from odradek.errors import KafkaError

    try:
        names = parse_connect(connect)
    except KafkaError:
        raise CommandError(f"--zookeeper takes HOST:PORT[/PATH], not {connect!r}.") from None
    servers = {}
    for server in names.hosts.split(","):
        host, _, port = server.rpartition(":")
        serves = zookeeper_serves(host.strip("[]"), int(port), PROBE_S)
        servers[server] = (
            None if serves else "no response to `srvr`: it does not run, or has no quorum"
        )
    facts = ZooKeeperFacts(names.hosts + names.chroot, servers)
    if None not in servers.values():
        return replace(facts, failure="no server responds")
    return _read(facts)


def _read(facts: ZooKeeperFacts) -> ZooKeeperFacts:
    """Add the contents of the nodes that each cluster has."""
    nodes: dict[str, Any] = {}
    try:
        with _session(facts.connect) as client:
            for path in (znodes.CLUSTER_ID, znodes.CONTROLLER):
                found = client.get_async(path)
                with contextlib.suppress(Exception):  # the node does not exist, or is not JSON
                    nodes[path] = json.loads(found.get(timeout=PROBE_S)[0])
            registered = client.get_children_async(znodes.BROKER_IDS)
            ids: list[str] = []
            with contextlib.suppress(Exception):  # the node does not exist
                ids = registered.get(timeout=PROBE_S)
    except Exception as error:  # noqa: BLE001 - kazoo has no common base of its errors
        return replace(facts, failure=f"no session within {PROBE_S:g} s ({reason(error)})")
    return replace(
        facts,
        registered=frozenset(int(each) for each in ids if each.isdecimal()),
        controller=_value(nodes.get(znodes.CONTROLLER), "brokerid", int),
        cluster_id=_value(nodes.get(znodes.CLUSTER_ID), "id", str),
    )


def clocks(connect: str) -> dict[int, int]:
    """Return by how much the clock of each broker was ahead of ZooKeeper's, in ms.

    A broker writes its time into its node, and ZooKeeper notes its own when it creates the node.
    """
    ahead: dict[int, int] = {}
    with contextlib.suppress(Exception), _session(connect) as client:
        ids = client.get_children_async(znodes.BROKER_IDS).get(timeout=PROBE_S)
        for each in ids:
            data, stat = client.get_async(f"{znodes.BROKER_IDS}/{each}").get(timeout=PROBE_S)
            ahead[int(each)] = int(json.loads(data)["timestamp"]) - stat.ctime
    return ahead


def _value(node: Any, key: str, kind: type[Any]) -> Any | None:
    found = node.get(key) if isinstance(node, dict) else None
    return found if isinstance(found, kind) else None


@contextlib.contextmanager
def _session(connect: str) -> Iterator[Any]:
    from odradek.metadata.store.zookeeper_client import ZooKeeperAddress, blocking_client

    hosts, slash, path = connect.partition("/")
    with blocking_client(ZooKeeperAddress(hosts, slash + path), PROBE_S) as client:
        yield client
