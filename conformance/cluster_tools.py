"""Apache Kafka's tools for clusters, on three brokers that the suite kills and starts again.

The steps share the brokers and run in the order of the list: a later one begins where the earlier
one ended. Kafka 4 has no ReplicaVerificationTool. The one of Kafka 3.9 runs instead. It reads all
replicas with the replica id -2 and compares the batches.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.adapters.base import Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.adapters.java import TOOLS, kafka_tool, tool
from conformance.harness import Case, Context, Outcome, Skip, main
from odradek.launcher.programs import ZooKeeperUnavailable
from testkit.peer import PeerUnavailable, java_command
from testkit.peer.artifacts import tools_39_class_path
from testkit.peer.cluster import CLUSTER_STARTERS, ClusterProcesses
from testkit.topics import create_topic, leader

BROKERS = [1, 2, 3]
PARTITIONS, RECORDS = 3, 300
AWAY_S = 120.0
VERIFIED_S = 90.0
TIMEOUT_S = 1800.0
TOPICS, CONFIGS = "TopicCommand", "kafka.admin.ConfigCommand"
CLEANERS = "log.cleaner.threads"


class Cluster:
    """Three brokers, and a topic whose partitions have a replica on each."""

    def __init__(self, context: Context, processes: ClusterProcesses) -> None:
        self.processes = processes
        self.context = replace(context, bootstrap=processes.bootstrap)
        self.topic = context.topic("pages")
        create_topic(processes.bootstrap, self.topic, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            sent = [Rec(b"x" * 100, partition=partition)] * (RECORDS // PARTITIONS)
            ConfluentClient().produce(processes.bootstrap, self.topic, sent)

    def tool(self, name: str, *arguments: str) -> str:
        return tool(self.context, name, *arguments)

    def cluster(self, verb: str, *arguments: str) -> str:
        """Run ClusterTool, whose verb precedes the options."""
        bootstrap = ("--bootstrap-server", self.processes.bootstrap)
        return kafka_tool(f"{TOOLS}.ClusterTool", verb, *bootstrap, *arguments)

    def leader(self, topic: str) -> int:
        """Return the leader of the first partition."""
        address = leader(self.processes.bootstrap, topic)
        return next(
            number for number, each in self.processes.brokers.items() if each.bootstrap == address
        )

    def selected(self, topic: str, option: str) -> list[int]:
        """Return the partitions that TopicCommand shows with an option."""
        said = self.tool(TOPICS, "--describe", "--topic", topic, option)
        return [int(each) for each in re.findall(rf"Topic: {topic}\s+Partition: (\d+)", said)]

    def described(self, topic: str) -> dict[str, Any]:
        """Return leader, replicas and ISR of the first partition."""
        said = self.tool(TOPICS, "--describe", "--topic", topic)
        found = re.search(r"Partition: 0\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr:[ ]?(\S*)", said)
        assert found, said
        ids = [sorted(map(int, filter(None, found[group].split(",")))) for group in (2, 3)]
        return {"leader": found[1], "replicas": ids[0], "isr": ids[1]}

    def until_in_sync(self, topic: str) -> None:
        _until(lambda: self.selected(topic, "--under-replicated-partitions"), lambda got: not got)


def _until(described: Callable[[], Any], expected: Callable[[Any], bool]) -> Any:
    """Wait for a change that the cluster makes by itself."""
    deadline = time.monotonic() + AWAY_S
    while not expected(said := described()):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    return said


# --- all brokers run ---


def _nothing_lacks(on: Cluster) -> None:
    on.until_in_sync(on.topic)
    for option in ("--at-min-isr-partitions", "--under-min-isr-partitions"):
        assert on.selected(on.topic, option) == [], option
    assert on.selected(on.topic, "--unavailable-partitions") == []
    assert on.described(on.topic)["isr"] == BROKERS


def _identity(on: Cluster) -> None:
    said = on.cluster("cluster-id")
    assert re.search(r"Cluster ID: \S+", said), said
    said = on.cluster("list-endpoints")
    rows = [line.split() for line in said.splitlines()[1:] if line.strip()]
    assert sorted(int(row[0]) for row in rows) == BROKERS, said
    addresses = sorted(f"{row[1]}:{row[2]}" for row in rows)
    assert addresses == sorted(on.processes.bootstrap.split(",")), said


def _quorum(on: Cluster) -> None:
    def rows() -> list[list[str]]:
        said = on.tool("MetadataQuorumCommand", "describe", "--replication")
        return [line.split() for line in said.splitlines() if line[:1].isdigit()]

    found = _until(rows, lambda got: len(got) == 3 and {row[3] for row in got} == {"0"})
    assert sorted(int(row[0]) for row in found) == BROKERS, found
    (leads,) = (row[0] for row in found if row[-1] == "Leader")
    status = on.tool("MetadataQuorumCommand", "describe", "--status")
    assert re.search(rf"LeaderId: +{leads}\b", status), status


def _sizes(on: Cluster) -> None:
    def described() -> list[dict[str, Any]]:
        said = on.tool("LogDirsCommand", "--describe", "--topic-list", on.topic)
        brokers = json.loads(said.strip().splitlines()[-1])["brokers"]
        assert sorted(each["broker"] for each in brokers) == BROKERS, said
        return [
            part for each in brokers for (log,) in [each["logDirs"]] for part in log["partitions"]
        ]

    found = _until(described, lambda got: all(each["offsetLag"] == 0 for each in got))
    assert len(found) == 3 * PARTITIONS and not any(each["isFuture"] for each in found), found
    for number in range(PARTITIONS):
        sizes = {each["size"] for each in found if each["partition"] == f"{on.topic}-{number}"}
        assert len(sizes) == 1 and sizes.pop() > 10_000, found


def _configs(on: Cluster) -> None:
    """A config of one broker is changed through any broker, and the others keep theirs."""
    entity = ["--entity-type", "brokers", "--entity-name"]
    on.tool(CONFIGS, "--alter", *entity, "2", "--add-config", f"{CLEANERS}=2")
    for broker, threads in (("2", 2), ("1", 1), ("3", 1)):
        described = functools.partial(on.tool, CONFIGS, "--describe", "--all", *entity, broker)
        line = f"{CLEANERS}={threads} sensitive=false"
        _until(described, lambda said, line=line: line in said)  # type: ignore[misc]
    on.tool(CONFIGS, "--alter", *entity, "2", "--delete-config", CLEANERS)


def _verified(on: Cluster) -> None:
    try:
        command = java_command(
            f"{TOOLS}.ReplicaVerificationTool",
            "--broker-list",
            on.processes.bootstrap,
            "--topics-include",
            on.topic,
            "--time",
            "-2",
            "--max-wait-ms",
            "200",
            "--report-interval-ms",
            "500",
            class_path=tools_39_class_path(),
        )
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None
    each = RECORDS // PARTITIONS
    expected = f"max lag is 0 for partition {on.topic}-"
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        limit = threading.Timer(VERIFIED_S, process.kill)  # the tool runs until it is killed
        limit.start()
        try:
            for line in process.stdout:
                said.append(line)
                assert "match" not in line, said
                if expected in line:
                    assert f"at offset {each} among {PARTITIONS} partitions" in line, said
                    return
        finally:
            limit.cancel()
            process.kill()
    raise AssertionError(f"the replicas were not verified: {said}")


# --- a broker is killed ---


def _lost(on: Cluster) -> None:
    killed = on.leader(on.topic)
    single = f"{on.topic}-single"
    on.tool(TOPICS, "--create", "--topic", single, "--replica-assignment", str(killed))
    on.processes.kill(killed)
    every = list(range(PARTITIONS))
    short = functools.partial(on.selected, on.topic, "--under-replicated-partitions")
    _until(short, lambda got: got == every)
    assert on.selected(on.topic, "--at-min-isr-partitions") == every
    assert on.selected(on.topic, "--under-min-isr-partitions") == []
    gone = functools.partial(on.selected, single, "--unavailable-partitions")
    _until(gone, lambda got: got == [0])
    available = functools.partial(on.selected, on.topic, "--unavailable-partitions")
    _until(available, lambda got: got == [])
    said = on.cluster("list-endpoints", "--include-fenced-brokers")
    assert re.search(rf"(?m)^{killed}\s.*\bfenced\b", said), said
    on.processes.restart(killed)
    on.until_in_sync(on.topic)
    assert on.selected(on.topic, "--at-min-isr-partitions") == []
    _until(gone, lambda got: got == [])


def _preferred(on: Cluster) -> None:
    """The first replica leads again. The automatic balance may have been faster."""
    command = ["LeaderElectionCommand", "--election-type", "PREFERRED"]
    said = on.tool(*command, "--topic", on.topic, "--partition", "0")
    elected = f"for partitions {on.topic}-0"
    assert elected in said, said
    described = on.tool(TOPICS, "--describe", "--topic", on.topic)
    found = re.search(r"Partition: 0\s+Leader: (\d+)\s+Replicas: (\d+)", described)
    assert found and found[1] == found[2], described
    on.tool(*command, "--all-topic-partitions")


def _unclean(on: Cluster) -> None:
    topic = f"{on.topic}-two"
    behind, last = 2, 3
    on.tool(
        TOPICS,
        *("--create", "--topic", topic, "--replica-assignment", f"{behind}:{last}"),
        *("--config", "min.insync.replicas=1"),
    )
    on.processes.kill(behind)
    described = functools.partial(on.described, topic)
    _until(described, lambda got: got["leader"] == str(last) and got["isr"] == [last])
    on.processes.kill(last)
    on.processes.restart(behind)
    _until(described, lambda got: got["leader"] == "none")
    command = ["LeaderElectionCommand", "--election-type", "UNCLEAN"]
    said = on.tool(*command, "--topic", topic, "--partition", "0")
    assert "Successfully completed leader election (UNCLEAN)" in said, said
    _until(described, lambda got: got["leader"] == str(behind))


def _unregistered(on: Cluster) -> None:
    """The last broker that the step before has killed is unregistered, and then starts again."""
    said = on.cluster("unregister", "--id", "3")
    assert "Broker 3 is no longer registered." in said, said
    fenced = functools.partial(on.cluster, "list-endpoints", "--include-fenced-brokers")
    _until(fenced, lambda text: not re.search(r"(?m)^3\s", text))
    on.processes.restart(3)
    on.until_in_sync(on.topic)


STEPS: tuple[tuple[str, Callable[[Cluster], None]], ...] = (
    ("TopicCommand: no partition lacks a replica", _nothing_lacks),
    ("ClusterTool: cluster-id, list-endpoints", _identity),
    ("MetadataQuorumCommand: all brokers follow", _quorum),
    ("LogDirsCommand: equal sizes on all brokers", _sizes),
    ("ConfigCommand for one broker", _configs),
    ("ReplicaVerificationTool of Kafka 3.9", _verified),
    ("TopicCommand after a SIGKILL: under-replicated, at-min-isr, unavailable", _lost),
    ("LeaderElectionCommand: preferred", _preferred),
    ("LeaderElectionCommand: unclean", _unclean),
    ("ClusterTool: unregister", _unregistered),
)


def _run(context: Context) -> list[Outcome]:
    if context.broker is None:
        raise Skip("needs --broker: it starts three of them")
    try:
        processes = CLUSTER_STARTERS[context.broker](context.work / "cluster")
    except (PeerUnavailable, ZooKeeperUnavailable) as reason:
        raise Skip(str(reason)) from None
    with processes:
        cluster = Cluster(context, processes)
        return [_outcome(name, functools.partial(step, cluster)) for name, step in STEPS]


def _outcome(name: str, step: Callable[[], None]) -> Outcome:
    began = time.monotonic()
    how, reason = "passed", ""
    try:
        step()
    except Skip as skip:
        how, reason = "skipped", str(skip)
    except Exception as error:  # noqa: BLE001 - each failure is a result
        print(f"=== {name}\n{traceback.format_exc()}", file=sys.stderr)
        how, reason = "failed", f"{type(error).__name__}: {error}"
    return Outcome(name, how, time.monotonic() - began, reason)


CASES = (Case("Kafka's tools on three brokers", _run, timeout_s=TIMEOUT_S),)

if __name__ == "__main__":
    main("cluster_tools", CASES)
