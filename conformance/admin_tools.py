"""Apache Kafka's own administration tools, except those for topics.

The cases cover quotas, configs of groups and client metrics, features, leader election,
reassignment and ACLs.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from conformance.adapters.java import produce_load, tool
from conformance.harness import SESSION_KILLS_MS, Case, Context, main, patient_s
from testkit.topics import create_topic

CONFIGS = "kafka.admin.ConfigCommand"
AWAY_S = 120.0
UNKNOWN_BROKER = 99


def _refused(context: Context, name: str, *arguments: str) -> str:
    """Run a tool that must end with an error. Return its output."""
    try:
        said = tool(context, name, *arguments)
    except AssertionError as refused:
        return str(refused)
    raise AssertionError(f"accepted: {said}")


def _until(described: Callable[[], str], expected: Callable[[str], bool]) -> str:
    """Wait for a change: Kafka responds before all of its components have applied it."""
    deadline = time.monotonic() + patient_s(AWAY_S)
    while not expected(said := described()):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    return said


def _holds(expected: str, text: str) -> bool:
    return expected in text


def _quotas(context: Context) -> None:
    client = context.topic("client")
    entity = ["--entity-type", "clients", "--entity-name", client]
    users = ["--entity-type", "users", "--entity-default"]
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
    tool(context, CONFIGS, "--alter", *entity, "--add-config", rates)
    tool(context, CONFIGS, "--alter", *users, *entity, "--add-config", "consumer_byte_rate=4096")

    def described() -> str:
        return tool(context, CONFIGS, "--describe", *entity)

    said = _until(described, lambda text: "1024" in text)
    assert f"Quota configs for client-id '{client}' are" in said, said
    assert "producer_byte_rate=1024.0" in said and "consumer_byte_rate=2048.0" in said, said
    said = tool(context, CONFIGS, "--describe", *users, *entity)
    assert f"Quota configs for the default user-principal, client-id '{client}' are" in said, said
    assert "consumer_byte_rate=4096.0" in said and "producer" not in said, said
    for gone in (entity, [*users, *entity]):
        rates = "producer_byte_rate,consumer_byte_rate" if gone is entity else "consumer_byte_rate"
        tool(context, CONFIGS, "--alter", *gone, "--delete-config", rates)
    _until(described, lambda text: "1024" not in text)
    refused = _refused(context, CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=0")
    assert "must be greater than 0" in refused, refused


def _users(context: Context) -> None:
    """The tool also requests a user's SCRAM credentials when it describes quotas."""
    user = context.topic("user")
    entity = ["--entity-type", "users", "--entity-name", user]
    tool(context, CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1024")
    for asked in (entity, entity[:2]):
        said = _until(
            functools.partial(tool, context, CONFIGS, "--describe", *asked),
            lambda text: user in text,
        )
        line = f"Quota configs for user-principal '{user}' are producer_byte_rate=1024.0"
        assert line in said and "Error" not in said, said
    tool(context, CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate")


def _throttled(context: Context) -> None:
    topic, client = context.topic("throttled"), context.topic("client")
    create_topic(context.bootstrap, topic)
    entity = ["--entity-type", "clients", "--entity-name", client]
    tool(context, CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=200000")
    _until(lambda: tool(context, CONFIGS, "--describe", *entity), lambda text: "200000" in text)
    properties = ["--command-property", "acks=1", f"client.id={client}", "--print-metrics"]
    began = time.monotonic()
    produced = produce_load(context, topic, 3000, 1000, *properties)
    took = time.monotonic() - began
    tool(context, CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate")
    # The quota allows a burst of ten seconds. Three million bytes are fifteen seconds' worth.
    output = re.search(r"produce-throttle-time-max\S*\s*:?\s*\{?.*?(\d+\.\d+)", produced)
    assert output is not None and float(output[1]) > 0, produced
    assert took > 3, f"{took:.1f} s"


def _brokers(context: Context) -> None:
    """A value for one broker precedes the cluster-wide value, which precedes the default."""
    config, entity = "log.cleaner.threads", ["--entity-type", "brokers"]
    broker = str(min(AdminClient({"bootstrap.servers": context.bootstrap}).list_topics().brokers))
    one, every = [*entity, "--entity-name", broker], [*entity, "--entity-default"]
    tool(context, CONFIGS, "--alter", *every, "--add-config", f"{config}=2")
    tool(context, CONFIGS, "--alter", *one, "--add-config", f"{config}=1")
    of_one = f"{config}=1 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{config}=1, "
    of_every = f"DYNAMIC_DEFAULT_BROKER_CONFIG:{config}=2, DEFAULT_CONFIG:{config}=1}}"
    try:
        for where, expected in ((one, of_one + of_every), (every, f"{config}=2 sensitive=false")):
            described = functools.partial(tool, context, CONFIGS, "--describe", *where)
            _until(described, functools.partial(_holds, expected))
        static = "log.dirs=/elsewhere"
        refused = _refused(context, CONFIGS, "--alter", *one, "--add-config", static)
        assert "Cannot update these configs dynamically: " in refused, refused
        tool(context, CONFIGS, "--alter", *one, "--delete-config", config)
        described = functools.partial(tool, context, CONFIGS, "--describe", "--all", *one)
        _until(described, functools.partial(_holds, f"synonyms={{{of_every}"))
    finally:
        tool(context, CONFIGS, "--alter", *every, "--delete-config", config)


def _groups(context: Context) -> None:
    group = context.topic("group")
    entity = ["--entity-type", "groups", "--entity-name", group]
    tool(context, CONFIGS, "--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000")
    said = _until(
        lambda: tool(context, CONFIGS, "--describe", *entity), lambda text: "50000" in text
    )
    of_broker = (
        f"STATIC_BROKER_CONFIG:group.consumer.session.timeout.ms={SESSION_KILLS_MS}, "
        if context.kills
        else ""
    )
    for line in (
        f"Dynamic configs for group {group} are:",
        "consumer.session.timeout.ms=50000 sensitive=false synonyms="
        f"{{DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, {of_broker}"
        "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}",
    ):
        assert line in said, said
    everything = tool(context, CONFIGS, "--describe", "--all", *entity)
    line = (
        "consumer.heartbeat.interval.ms=5000 sensitive=false synonyms="
        "{DEFAULT_CONFIG:group.consumer.heartbeat.interval.ms=5000}"
    )
    assert line in everything, everything
    low = "consumer.session.timeout.ms=1000"
    refused = _refused(context, CONFIGS, "--alter", *entity, "--add-config", low)
    assert "must be greater than or equal to group.consumer.min.session" in refused, refused
    gone = "consumer.session.timeout.ms"
    tool(context, CONFIGS, "--alter", *entity, "--delete-config", gone)


def _client_metrics(context: Context) -> None:
    name = context.topic("metrics")
    entity = ["--entity-type", "client-metrics", "--entity-name", name]
    configs = "interval.ms=60000,metrics=org.apache.kafka.producer."
    tool(context, CONFIGS, "--alter", *entity, "--add-config", configs)
    said = _until(
        lambda: tool(context, CONFIGS, "--describe", *entity), lambda text: "60000" in text
    )
    assert "metrics=org.apache.kafka.producer. sensitive=false" in said, said
    gone = "interval.ms,metrics"
    tool(context, CONFIGS, "--alter", *entity, "--delete-config", gone)


def _features(context: Context) -> None:
    said = tool(context, "FeatureCommand", "describe")
    rows = dict(re.findall(r"Feature: (\S+)\s+(.*)", said))
    assert {"group.version", "metadata.version", "transaction.version"} <= set(rows), said
    assert re.search(
        r"SupportedMaxVersion: 2\s+FinalizedVersionLevel: \d", rows["transaction.version"]
    )
    level = re.findall(r"FinalizedVersionLevel: (\d)", rows["transaction.version"])[0]
    name = f"transaction.version={level}"
    tool(context, "FeatureCommand", "upgrade", "--dry-run", "--feature", name)
    refused = _refused(context, "FeatureCommand", "upgrade", "--feature", "transaction.version=3")
    assert "Could not upgrade transaction.version to 3" in refused, refused
    unknown = "nonsense.version=1"
    refused = _refused(context, "FeatureCommand", "upgrade", "--feature", unknown)
    assert "nonsense.version" in refused, refused


def _quorum(context: Context) -> None:
    command = "MetadataQuorumCommand"
    said = tool(context, command, "describe", "--status")
    rows = dict(re.findall(r"(\w+): +(.*)", said))
    assert rows["ClusterId"] and int(rows["LeaderEpoch"]) > 0, said
    assert int(rows["HighWatermark"]) > 0, said
    if context.brokers == 1:
        assert (rows["MaxFollowerLag"], rows["MaxFollowerLagTimeMs"]) == ("0", "0"), said
    leader = rows["LeaderId"]
    assert f'"id": {leader}' in rows["CurrentVoters"], said
    before = _leader_row(tool(context, command, "describe", "--replication"))
    assert (before[0], before[3], before[6]) == (leader, "0", "Leader"), before
    create_topic(context.bootstrap, context.topic("changed"))
    after = _leader_row(tool(context, command, "describe", "--replication"))
    assert int(after[2]) > int(before[2]) and int(after[5]) >= int(before[5]), (before, after)
    said = tool(context, command, "describe", "--replication", "--human-readable")
    assert re.search(r"\d+ ms ago", said), said


def _leader_row(said: str) -> list[str]:
    """Return the leader's row: node, directory, end offset, lag, two timestamps and status."""
    [row] = [line.split() for line in said.splitlines() if "Leader" in line.split()]
    return row


def _elections(context: Context) -> None:
    topic = context.topic("elected")
    create_topic(context.bootstrap, topic, partitions=2)
    one = ["--topic", topic, "--partition", "1"]
    for kind in ("PREFERRED", "UNCLEAN"):
        said = tool(context, "LeaderElectionCommand", "--election-type", kind, *one)
        assert f"Valid replica already elected for partitions {topic}-1" in said, said
    tool(context, "LeaderElectionCommand", "--election-type", "PREFERRED", "--all-topic-partitions")
    missing = ["--topic", topic, "--partition", "7"]
    refused = _refused(context, "LeaderElectionCommand", "--election-type", "PREFERRED", *missing)
    assert "UnknownTopicOrPartition" in refused, refused


def _reassignments(context: Context) -> None:
    command = "reassign.ReassignPartitionsCommand"
    topic = context.topic("reassigned")
    create_topic(context.bootstrap, topic, partitions=2)
    described = tool(context, "TopicCommand", "--describe", "--topic", topic)
    found = re.findall(r"Partition: (\d+)\s.*Replicas: ([\d,]+)", described)
    replicas = {int(number): list(map(int, ids.split(","))) for number, ids in found}
    assert len(replicas) == 2, described

    def plan(name: str, *more: int) -> str:
        path = context.work / f"{topic}-{name}.json"
        partitions = [
            {"topic": topic, "partition": number, "replicas": [*ids, *more]}
            for number, ids in replicas.items()
        ]
        text = json.dumps({"version": 1, "partitions": partitions})
        path.write_text(text, encoding="utf-8")
        return str(path)

    same = ["--reassignment-json-file", plan("same")]
    said = tool(context, command, "--execute", *same)
    assert "Successfully started partition reassignments" in said, said
    said = tool(context, command, "--verify", *same)
    assert said.count("is completed") == 2, said
    said = tool(context, command, "--list")
    assert "No partition reassignments found." in said, said
    refused = _refused(
        context, command, "--execute", "--reassignment-json-file", plan("more", UNKNOWN_BROKER)
    )
    assert "Unknown broker id" in refused, refused


def _acls(context: Context) -> None:
    said = _refused(context, "AclCommand", "--list")
    assert "SecurityDisabledException" in said and "No Authorizer is configured" in said, said


CASES = (
    Case("ConfigCommand for quotas of clients and users", _quotas, ci=True),
    Case("ConfigCommand for quotas of a user alone", _users),
    Case("a producer is throttled by its quota", _throttled),
    Case("ConfigCommand for brokers: one, all, the default", _brokers),
    Case("ConfigCommand for groups", _groups, ci=True),
    Case("ConfigCommand for client metrics", _client_metrics),
    Case("FeatureCommand", _features, ci=True),
    Case("MetadataQuorumCommand: status, replication", _quorum),
    Case("LeaderElectionCommand", _elections),
    Case("ReassignPartitionsCommand: execute, verify, list", _reassignments),
    Case("AclCommand without an authorizer", _acls),
)

if __name__ == "__main__":
    main("admin_tools", CASES)
