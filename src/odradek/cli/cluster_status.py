"""`odradek cluster status`: what a cluster lacks, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from odradek.cli.cluster_diagnosis import (
    ClusterFacts,
    Finding,
    PartitionFacts,
    ZooKeeperFacts,
    diagnose,
    diagnose_zookeeper,
)
from odradek.cli.cluster_facts import collect, zookeeper_facts
from odradek.cli.output import CommandError, print_json

PARTITIONS_SHOWN_MAX = 20
"""Most findings of partitions in the text. JSON has all of them."""


def print_status(bootstrap_server: str, zookeeper: str | None, as_json: bool) -> None:
    """Print the state of a cluster. Without a broker that responds: of the ZooKeeper that is named.

    Raises:
        CommandError: No broker responds. With a ZooKeeper, its state is printed before.
    """
    try:
        facts = collect(bootstrap_server, zookeeper)
    except CommandError:
        if zookeeper is not None:
            found = zookeeper_facts(zookeeper)
            _print_zookeeper(found, diagnose_zookeeper(found), as_json)
        raise
    findings = diagnose(facts)
    if as_json:
        print_json(_as_json(facts, findings))
        return
    for line in summary(facts):
        print(line)
    _print_findings(findings)


def summary(facts: ClusterFacts) -> list[str]:
    """Return the lines above the findings."""
    live = [each for each in facts.brokers.values() if not each.is_fenced]
    lines = [
        f"Cluster {facts.cluster_id}: {len(live)} of {len(facts.brokers)} brokers are live,"
        f" controller {facts.controller_id if facts.controller_id >= 0 else 'unknown'}",
        _partitions(facts.partitions),
    ]
    if facts.zookeeper is None:
        lines.append("ZooKeeper: none in the configs of the brokers")
    else:
        serving = sum(each is None for each in facts.zookeeper.servers.values())
        lines.append(
            f"ZooKeeper {facts.zookeeper.connect}: {serving} of {len(facts.zookeeper.servers)}"
            " servers respond"
        )
    return lines


def _partitions(partitions: Sequence[PartitionFacts] | None) -> str:
    if partitions is None:
        return "Partitions: unknown, because no broker responds to requests for metadata"
    leaderless = _leaderless(partitions)
    short = sum(len(each.isr) < len(each.replicas) for each in partitions)
    return (
        f"Partitions: {len(partitions)}, without a leader {leaderless}, with a replica that is not"
        f" in sync {short}"
    )


def _leaderless(partitions: Sequence[PartitionFacts]) -> int:
    return sum(each.leader < 0 for each in partitions)


def _print_findings(findings: list[Finding]) -> None:
    if not findings:
        print("Nothing is missing.")
        return
    shown = [each for each in findings if each.kind != "partition"]
    partitions = [each for each in findings if each.kind == "partition"]
    shown += partitions[:PARTITIONS_SHOWN_MAX]
    for each in shown:
        print(f"{each.name} lacks {each.lacks}: {each.why}. {each.remedy}")
    if len(shown) < len(findings):
        print(f"{len(findings) - len(shown)} further partitions lack something. --json has all.")


def _print_zookeeper(facts: ZooKeeperFacts, findings: list[Finding], as_json: bool) -> None:
    if as_json:
        print_json(
            {"zookeeper": _zookeeper(facts), "findings": [asdict(each) for each in findings]}
        )
        return
    _print_findings(findings)


def _zookeeper(facts: ZooKeeperFacts) -> dict[str, object]:
    return {**asdict(facts), "registered": sorted(facts.registered)}


def _as_json(facts: ClusterFacts, findings: list[Finding]) -> dict[str, object]:
    partitions = facts.partitions
    return {
        "cluster_id": facts.cluster_id,
        "controller": facts.controller_id if facts.controller_id >= 0 else None,
        "metadata_offset": facts.controller_offset,
        "brokers": [asdict(each) for each in facts.brokers.values()],
        "zookeeper": None if facts.zookeeper is None else _zookeeper(facts.zookeeper),
        "partitions": None if partitions is None else len(partitions),
        "partitions_without_leader": None if partitions is None else _leaderless(partitions),
        "findings": [asdict(each) for each in findings],
    }
