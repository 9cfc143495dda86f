"""What ZooKeeper, the controller, the brokers and the partitions of a cluster lack, and why. Pure.

`odradek.cli.cluster_facts` collects the facts. `diagnose` returns the findings. Each of them names
the object, what it lacks, the reason, and the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from odradek.controller.clock_check import CLOCK_DIFFERENCE_MAX_MS, duration

NONE = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is missing.

    Attributes:
        kind: "zookeeper", "controller", "broker" or "partition".
        name: The object, such as "pages-0".
        lacks: What it lacks.
        why: The reason.
        remedy: The next step.
    """

    kind: str
    name: str
    lacks: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker in the metadata of the cluster.

    Attributes:
        failure: Why this host cannot connect to its advertised address. None: it can.
        applied_offset: The metadata offset that the controller knows of it. None: it does not poll.
        clock_ahead_ms: By how much its clock was ahead of ZooKeeper's when it registered.
        drained: Whether an administrator has moved its leaderships away.
        silent: Why it sent no response to a request, although it accepts connections.
    """

    broker_id: int
    address: str
    is_fenced: bool
    failure: str | None = None
    applied_offset: int | None = None
    clock_ahead_ms: int | None = None
    drained: bool = False
    silent: str | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperFacts:
    """A ZooKeeper, as this host sees it.

    Attributes:
        connect: ``HOST:PORT,HOST:PORT/PATH``.
        servers: Why each server does not serve. None: it serves.
        failure: Why no session could begin. None: one began.
        registered: The brokers with a node of their own.
        controller: The broker in ``/controller``.
        cluster_id: The id in ``/cluster/id``.
    """

    connect: str
    servers: Mapping[str, str | None]
    failure: str | None = None
    registered: frozenset[int] = frozenset()
    controller: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition in the metadata of the cluster.

    Attributes:
        leader: -1: there is none.
        elr: The eligible leader replicas (KIP-966).
        last_known: The last known leader, if no in-sync replica is left.
        behind: The number of records that replicas lack, as far as it is known.
    """

    name: str
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    min_isr: int = 1
    behind: Mapping[int, int] = field(default_factory=dict)

    @property
    def out_of_sync(self) -> list[int]:
        return [each for each in self.replicas if each not in self.isr]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All facts of one moment.

    Attributes:
        controller_id: -1: the brokers know none.
        controller_offset: The metadata offset of the controller. None: it does not respond.
        zookeeper: None: the brokers have none.
        partitions: None: no broker responds to requests for metadata.
    """

    cluster_id: str
    controller_id: int
    controller_offset: int | None
    brokers: Mapping[int, BrokerFacts]
    zookeeper: ZooKeeperFacts | None
    partitions: tuple[PartitionFacts, ...] | None


def diagnose(facts: ClusterFacts) -> list[Finding]:
    """Return everything that is missing, with the causes before their effects."""
    findings: list[Finding] = []
    if facts.zookeeper is not None:
        findings += _zookeeper(facts.zookeeper, facts)
    findings += _controller(facts)
    for broker in facts.brokers.values():
        findings += _broker(broker, facts)
    for partition in facts.partitions or ():
        findings += _partition(partition, facts)
    return findings


def diagnose_zookeeper(zookeeper: ZooKeeperFacts) -> list[Finding]:
    """Return the findings of a ZooKeeper alone, if no broker responds."""
    findings = list(_servers(zookeeper))
    if zookeeper.failure is None and not zookeeper.registered:
        findings.append(
            Finding(
                "zookeeper",
                f"ZooKeeper {zookeeper.connect}",
                "registered brokers",
                "no broker has a session",
                "Start the brokers. If they run, check their `--zookeeper`, with the path.",
            )
        )
    return findings


# --- ZooKeeper ---


def _servers(zookeeper: ZooKeeperFacts) -> Iterator[Finding]:
    missing = {name: why for name, why in zookeeper.servers.items() if why is not None}
    quorum = len(zookeeper.servers) // 2 + 1
    if len(zookeeper.servers) - len(missing) < quorum:
        yield Finding(
            "zookeeper",
            f"ZooKeeper {zookeeper.connect}",
            "a quorum",
            "; ".join(f"{name}: {why}" for name, why in missing.items()),
            f"Start at least {quorum} of {len(zookeeper.servers)} servers, and check that this host"
            " reaches them. Brokers serve in the meantime, but elect no leaders.",
        )
        return
    for name, why in missing.items():
        yield Finding(
            "zookeeper",
            f"ZooKeeper {name}",
            "a response",
            why,
            "Start this server before another one fails.",
        )
    if zookeeper.failure is not None:
        yield Finding(
            "zookeeper",
            f"ZooKeeper {zookeeper.connect}",
            "a session for this command",
            zookeeper.failure,
            "Check that the servers form an ensemble.",
        )


def _zookeeper(zookeeper: ZooKeeperFacts, facts: ClusterFacts) -> Iterator[Finding]:
    yield from _servers(zookeeper)
    if zookeeper.failure is not None:
        return
    name = f"ZooKeeper {zookeeper.connect}"
    if zookeeper.cluster_id is None:
        yield Finding(
            "zookeeper",
            name,
            "the id of the cluster",
            "its path is empty",
            "Name the ZooKeeper of the brokers, with its path. If it was emptied, restore it.",
        )
    elif zookeeper.cluster_id != facts.cluster_id:
        yield Finding(
            "zookeeper",
            name,
            f"cluster {facts.cluster_id}",
            f"it has cluster {zookeeper.cluster_id}",
            "Give each cluster a path of its own: --zookeeper HOST:PORT/PATH.",
        )
    else:
        for broker in facts.brokers.values():
            if not broker.is_fenced and broker.broker_id not in zookeeper.registered:
                yield Finding(
                    "zookeeper",
                    name,
                    f"the node of broker {broker.broker_id}",
                    "the broker has lost its session and has not begun another one",
                    f"Wait for a moment. Then read the log of broker {broker.broker_id}.",
                )


# --- controller and brokers ---


def _controller(facts: ClusterFacts) -> Iterator[Finding]:
    elected = facts.zookeeper.controller if facts.zookeeper is not None else None
    if facts.controller_id == NONE:
        why = "the brokers wait for ZooKeeper or for an election"
        if elected is not None:
            why = f"the brokers do not know broker {elected} yet, which ZooKeeper names"
        yield Finding(
            "controller",
            "the cluster",
            "a controller",
            why,
            "Correct ZooKeeper first, then wait a moment.",
        )
        return
    name = f"broker {facts.controller_id}"
    if facts.controller_offset is None:
        why = "it does not respond to DescribeQuorum"
        if facts.zookeeper is not None and facts.zookeeper.failure is not None:
            why += ". Without ZooKeeper no broker is the controller"
        yield Finding(
            "controller",
            name,
            "a response",
            why,
            f"Read the log of broker {facts.controller_id}. Another broker replaces it when its"
            " session has ended.",
        )
    if elected is not None and elected != facts.controller_id:
        yield Finding(
            "controller",
            name,
            "the node /controller",
            f"it belongs to broker {elected}",
            "Wait for a moment: the brokers follow the new controller.",
        )


def _broker(broker: BrokerFacts, facts: ClusterFacts) -> Iterator[Finding]:
    name = f"broker {broker.broker_id}"
    if broker.is_fenced:
        yield Finding("broker", name, "leadership", _fenced_reason(broker, facts), _start(broker))
    elif broker.failure is not None:
        yield Finding(
            "broker",
            name,
            f"connections from this host to its advertised address {broker.address}",
            broker.failure,
            f"Start broker {broker.broker_id} if it does not run. If it runs and other hosts cannot"
            " connect either, correct its `advertised.listeners`, name service or firewall.",
        )
    elif broker.silent is not None:
        yield Finding(
            "broker",
            name,
            "a response to this command",
            f"it accepts connections, but {broker.silent}",
            "Read its log. It may be suspended, or its machine overloaded.",
        )
    if broker.drained:
        yield Finding(
            "broker",
            name,
            "leaderships that another in-sync replica can have",
            "it is drained",
            f"`odradek cluster drain {broker.broker_id} --undo` returns them.",
        )
    ahead_ms = broker.clock_ahead_ms
    if ahead_ms is not None and abs(ahead_ms) > CLOCK_DIFFERENCE_MAX_MS:
        yield Finding(
            "broker",
            name,
            "the right time",
            f"its clock was {duration(ahead_ms)} {'ahead of' if ahead_ms > 0 else 'behind'}"
            " ZooKeeper's when it registered",
            "Synchronize the clocks of both machines (NTP). Retention and timestamps depend on it.",
        )
    if (
        not broker.is_fenced
        and facts.controller_offset is not None
        and broker.broker_id != facts.controller_id
        and broker.applied_offset is None
    ):
        yield Finding(
            "broker",
            name,
            "the newest metadata",
            "it does not poll the controller",
            f"Check that it reaches broker {facts.controller_id}, and read its log.",
        )


def _fenced_reason(broker: BrokerFacts, facts: ClusterFacts) -> str:
    zookeeper = facts.zookeeper
    if zookeeper is not None and zookeeper.failure is None:
        if broker.broker_id not in zookeeper.registered:
            return "it has no session in ZooKeeper: it does not run, or cannot reach ZooKeeper"
        if broker.failure is not None:
            return f"it does not respond ({broker.failure}), and its session has not ended yet"
        return "it has not caught up with the metadata, or cannot reach the controller"
    if broker.failure is not None:
        return f"it does not run, or is cut off ({broker.failure})"
    return "it has not caught up with the metadata, or cannot reach the controller"


def _start(broker: BrokerFacts) -> str:
    return f"Start broker {broker.broker_id}. If it runs, read its log."


# --- partitions ---


def _partition(partition: PartitionFacts, facts: ClusterFacts) -> Iterator[Finding]:
    if partition.leader == NONE:
        yield _leaderless(partition, facts)
    elif len(partition.isr) < min(partition.min_isr, len(partition.replicas)):
        yield Finding(
            "partition",
            partition.name,
            f"{_count(min(partition.min_isr, len(partition.replicas)), 'in-sync replica')}: it has"
            f" {len(partition.isr)}",
            _missing(partition, facts),
            "Producers with acks=all get NOT_ENOUGH_REPLICAS until the replicas return.",
        )
    elif partition.out_of_sync:
        yield Finding(
            "partition",
            partition.name,
            "in-sync replicas on " + _brokers(partition.out_of_sync),
            _missing(partition, facts),
            "It serves. " + _return_of(partition.out_of_sync, facts),
        )


def _leaderless(partition: PartitionFacts, facts: ClusterFacts) -> Finding:
    complete = partition.isr or partition.elr
    candidates = complete or partition.last_known or partition.replicas
    live = [each for each in candidates if _is_live(each, facts)]
    if live:
        why = f"{_brokers(live)} can lead it, and an election has not run yet"
        remedy = "Wait for a moment. Then read the log of the controller."
    else:
        which = "all replicas with its newest records" if complete else "the last known leader"
        why = f"{which} are on brokers that are not live ({_brokers(candidates)})"
        if not complete:
            why = f"no replica is known to be complete. Not live: {_brokers(candidates)}"
        remedy = (
            f"Start {_brokers(candidates)}. If they are lost, `odradek cluster elect TOPIC"
            " --unclean` takes another replica and loses records."
        )
    return Finding("partition", partition.name, "a leader", why, remedy)


def _missing(partition: PartitionFacts, facts: ClusterFacts) -> str:
    return "; ".join(_reason(each, partition, facts) for each in partition.out_of_sync)


def _reason(broker_id: int, partition: PartitionFacts, facts: ClusterFacts) -> str:
    """Return why a replica is not in sync."""
    broker = facts.brokers.get(broker_id)
    if broker is None:
        return f"broker {broker_id} was unregistered"
    if broker.is_fenced:
        return f"broker {broker_id} is not live"
    behind = partition.behind.get(broker_id)
    lag = "" if behind is None else f", {_count(behind, 'record')} behind"
    return f"broker {broker_id} is catching up, or is too slow{lag}"


def _return_of(brokers: list[int], facts: ClusterFacts) -> str:
    down = [each for each in brokers if not _is_live(each, facts)]
    return f"Start {_brokers(down)}." if down else "The replicas return by themselves."


def _is_live(broker_id: int, facts: ClusterFacts) -> bool:
    broker = facts.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced


def _brokers(ids: tuple[int, ...] | list[int]) -> str:
    word = "broker" if len(ids) == 1 else "brokers"
    return f"{word} {', '.join(map(str, ids))}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
