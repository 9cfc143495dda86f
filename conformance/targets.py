"""The brokers that suites run against, by the name of the target.

- ``broker``: one broker.
- ``cluster``: three brokers. Each topic has three replicas unless a case asks for fewer.
- ``kills``: the same, and `BrokerKills` kills one broker after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conformance.harness import SESSION_KILLS_MS
from testkit.peer.cluster import CLUSTER_STARTERS, ClusterProcesses
from testkit.peer.server import STARTERS

BROKER, CLUSTER, KILLS = "broker", "cluster", "kills"
TARGETS = (BROKER, CLUSTER, KILLS)
FIRST_ID = 1
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": str(SESSION_KILLS_MS),
    "group.consumer.session.timeout.ms": str(SESSION_KILLS_MS),
}
"""Configs of `KILLS`. Each new coordinator restarts the sessions of its groups, in Odradek and in
Kafka. With the default of 45 s a dead member of KIP-848 keeps its partitions while one coordinator
after the other is killed."""


def start(
    target: str, name: str, directory: Path, properties: Mapping[str, str]
) -> ClusterProcesses:
    """Start the brokers of a target.

    Args:
        target: One of `TARGETS`.
        name: "odradek" or "kafka".
        directory: The place of their files.
        properties: Further broker configs.
    """
    if target == BROKER:
        broker = STARTERS[name](directory, properties)
        return ClusterProcesses(name, {FIRST_ID: broker})
    sessions = SHORT_SESSIONS if target == KILLS else {}
    return CLUSTER_STARTERS[name](directory, {**sessions, **properties})
