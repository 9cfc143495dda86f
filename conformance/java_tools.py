"""Apache Kafka's own command line tools, from its released jars."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from conformance.adapters.base import Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.adapters.java import JavaClient, produce_load, tool
from conformance.harness import Case, Context, main, patient_s
from testkit.topics import create_topic

AWAY_S = 120.0
# The stable version ranges of Kafka 4.1 as the tool prints them. Kafka 4.3 serves a few more.
RANGES = {
    "Produce(0)": (0, 13),
    "Fetch(1)": (4, 18),
    "ListOffsets(2)": (1, 10),
    "Metadata(3)": (0, 13),
    "OffsetCommit(8)": (2, 9),
    "OffsetFetch(9)": (1, 9),
    "FindCoordinator(10)": (0, 6),
    "JoinGroup(11)": (0, 9),
    "Heartbeat(12)": (0, 4),
    "LeaveGroup(13)": (0, 5),
    "SyncGroup(14)": (0, 5),
    "DescribeGroups(15)": (0, 6),
    "ListGroups(16)": (0, 5),
    "ApiVersions(18)": (0, 4),
    "CreateTopics(19)": (2, 7),
    "DeleteTopics(20)": (1, 6),
    "DeleteRecords(21)": (0, 2),
    "InitProducerId(22)": (0, 5),
    "OffsetForLeaderEpoch(23)": (2, 4),
    "AddPartitionsToTxn(24)": (0, 5),
    "AddOffsetsToTxn(25)": (0, 4),
    "EndTxn(26)": (0, 5),
    "WriteTxnMarkers(27)": (1, 1),
    "TxnOffsetCommit(28)": (0, 5),
    "DescribeAcls(29)": (1, 3),
    "CreateAcls(30)": (1, 3),
    "DeleteAcls(31)": (1, 3),
    "DescribeConfigs(32)": (1, 4),
    "AlterConfigs(33)": (0, 2),
    "AlterReplicaLogDirs(34)": (1, 2),
    "DescribeLogDirs(35)": (1, 4),
    "CreatePartitions(37)": (0, 3),
    "DeleteGroups(42)": (0, 2),
    "ElectLeaders(43)": (0, 2),
    "IncrementalAlterConfigs(44)": (0, 1),
    "AlterPartitionReassignments(45)": (0, 1),
    "ListPartitionReassignments(46)": (0, 0),
    "OffsetDelete(47)": (0, 0),
    "DescribeClientQuotas(48)": (0, 1),
    "AlterClientQuotas(49)": (0, 1),
    "DescribeUserScramCredentials(50)": (0, 0),
    "DescribeQuorum(55)": (0, 2),
    "UpdateFeatures(57)": (0, 2),
    "DescribeCluster(60)": (0, 2),
    "DescribeProducers(61)": (0, 0),
    "DescribeTransactions(65)": (0, 0),
    "ListTransactions(66)": (0, 2),
    "ConsumerGroupHeartbeat(68)": (0, 1),
    "ConsumerGroupDescribe(69)": (0, 1),
    "ListConfigResources(74)": (0, 1),
    "DescribeTopicPartitions(75)": (0, 0),
}


def _performance(context: Context) -> None:
    topic = context.topic("perf")
    create_topic(context.bootstrap, topic, partitions=2)
    for extra in (
        ["acks=1"],
        ["acks=all", "compression.type=lz4"],
        ["acks=all", "enable.idempotence=true", "compression.type=zstd"],
    ):
        produce_load(context, topic, 20_000, 200, "--command-property", *extra)
    consumed = tool(
        context,
        "ConsumerPerformance",
        "--topic",
        topic,
        "--num-records",
        "60000",
        "--timeout",
        "120000",
    )
    row = consumed.strip().splitlines()[-1].split(", ")
    assert row[4] == "60000", consumed


def _console(context: Context) -> None:
    topic, group = context.topic("console"), context.topic("group")
    create_topic(context.bootstrap, topic)
    java = JavaClient()
    sent = [Rec(f"line {n}".encode(), f"k{n}".encode()) for n in range(50)]
    java.produce(context.bootstrap, topic, sent, compression="gzip", idempotent=True)
    read = ["--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "120000"]
    first = tool(context, "consumer.ConsoleConsumer", *read, "--max-messages", "30")
    assert first.splitlines() == [f"line {n}" for n in range(30)], first
    rest = tool(context, "consumer.ConsoleConsumer", *read, "--max-messages", "20")
    assert rest.splitlines() == [f"line {n}" for n in range(30, 50)], rest


def _groups(context: Context) -> None:
    topic, group = context.topic("console"), context.topic("group")
    create_topic(context.bootstrap, topic)
    ConfluentClient().produce(context.bootstrap, topic, [Rec(b"x")] * 7)
    tool(
        context,
        "consumer.ConsoleConsumer",
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        "5",
        "--timeout-ms",
        "120000",
    )
    command = "consumer.group.ConsumerGroupCommand"
    assert group in tool(context, command, "--list").split()
    described = tool(context, command, "--describe", "--group", group)
    row = next(line.split() for line in described.splitlines() if line.startswith(group))
    assert row[1:6] == [topic, "0", "5", "7", "2"], described
    state = tool(context, command, "--describe", "--group", group, "--state")
    assert re.search(r"\bEmpty\b", state), state


def _topics(context: Context) -> None:
    topic = context.topic("topic-command")
    tool(
        context,
        "TopicCommand",
        "--create",
        "--topic",
        topic,
        "--partitions",
        "2",
        "--replication-factor",
        str(context.replicas),
        "--config",
        "retention.ms=7200000",
    )
    assert topic in tool(context, "TopicCommand", "--list").split()
    described = tool(context, "TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described, described
    assert f"ReplicationFactor: {context.replicas}" in described, described
    assert "retention.ms=7200000" in described, described
    first_id = re.findall(r"TopicId: (\S+)", described)[0]
    tool(context, "TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    described = tool(context, "TopicCommand", "--describe", "--topic", topic)
    assert described.count("Leader: ") == 5, described
    tool(context, "TopicCommand", "--delete", "--topic", topic)
    deadline = time.monotonic() + patient_s(AWAY_S)
    while topic in tool(context, "TopicCommand", "--list").split():
        assert time.monotonic() < deadline, "the topic is still listed"
    tool(context, "TopicCommand", "--create", "--topic", topic)
    described = tool(context, "TopicCommand", "--describe", "--topic", topic)
    assert re.findall(r"TopicId: (\S+)", described)[0] != first_id, described


def _configs(context: Context) -> None:
    topic = context.topic("config-command")
    create_topic(context.bootstrap, topic)
    command = ["kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", topic]
    tool(
        context,
        *command,
        "--alter",
        "--add-config",
        "retention.ms=3600000,max.message.bytes=2000000,cleanup.policy=[compact,delete]",
    )
    described = tool(context, *command, "--describe")
    for line in (
        "max.message.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "max.message.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588}",
        "cleanup.policy=compact,delete sensitive=false",
        "retention.ms=3600000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=3600000",
    ):
        assert line in described, described
    tool(context, *command, "--alter", "--delete-config", "retention.ms")
    everything = tool(context, *command, "--describe", "--all")
    assert "retention.ms=3600000" not in everything, everything
    for line in (
        "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:"
        "log.segment.bytes=1073741824}",
        "index.interval.bytes=4096",
        "preallocate=false",
    ):
        assert line in everything, everything
    try:
        tool(context, *command, "--alter", "--add-config", "retention.ms=never")
    except AssertionError as refused:
        assert "InvalidConfiguration" in str(refused) or "Invalid value" in str(refused), refused
    else:
        raise AssertionError("retention.ms=never was accepted")


def _offsets(context: Context) -> None:
    topic = context.topic("offsets")
    create_topic(context.bootstrap, topic, partitions=2, retention_ms="-1")
    stamped = [
        Rec(b"x", timestamp_ms=1_700_000_000_000 + (n if n != 4 else 100)) for n in range(10)
    ]
    ConfluentClient().produce(context.bootstrap, topic, stamped)

    def shell(when: str) -> list[str]:
        return tool(context, "GetOffsetShell", "--topic", topic, "--time", when).split()

    assert shell("latest") == [f"{topic}:0:10", f"{topic}:1:0"]
    assert shell("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert shell("max-timestamp") == [f"{topic}:0:4"], shell("max-timestamp")
    assert shell("1700000000003") == [f"{topic}:0:3"], shell("1700000000003")
    assert shell("earliest-local") == [f"{topic}:0:0", f"{topic}:1:0"]


def _delete_records(context: Context) -> None:
    topic = context.topic("delete-records")
    create_topic(context.bootstrap, topic)
    ConfluentClient().produce(context.bootstrap, topic, [Rec(b"x")] * 100)
    request = context.work / f"{topic}.json"
    request.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 40}]}),
        encoding="utf-8",
    )
    output = tool(context, "DeleteRecordsCommand", "--offset-json-file", str(request))
    assert "low_watermark: 40" in output, output
    shown = tool(context, "GetOffsetShell", "--topic", topic, "--time", "earliest")
    assert shown.split() == [f"{topic}:0:40"], shown


def _log_dirs(context: Context) -> None:
    topic = context.topic("log-dirs")
    create_topic(context.bootstrap, topic, partitions=2)
    ConfluentClient().produce(context.bootstrap, topic, [Rec(b"x" * 1000)] * 100)
    output = tool(context, "LogDirsCommand", "--describe", "--topic-list", topic)
    response = json.loads(output.strip().splitlines()[-1])
    assert context.kills or len(response["brokers"]) == context.brokers, response
    for broker in response["brokers"]:
        (directory,) = broker["logDirs"]
        sizes = {p["partition"]: p["size"] for p in directory["partitions"]}
        assert directory["error"] is None, directory
        assert sizes[f"{topic}-1"] == 0 and 100_000 < sizes[f"{topic}-0"] < 120_000, sizes
        if context.log_dirs:
            own = Path(directory["logDir"])
            assert any(own.samefile(each) for each in context.log_dirs), directory


def _api_versions(context: Context) -> None:
    output = tool(context, "BrokerApiVersionsCommand")
    served = {
        name: (int(low), int(high or low))
        for name, low, high in re.findall(r"(\w+\(\d+\)): (\d+)(?: to (\d+))? \[", output)
    }
    missing = {
        name: served.get(name)
        for name, (low, high) in RANGES.items()
        if name not in served or served[name][0] > low or served[name][1] < high
    }
    assert not missing, f"narrower than in Kafka 4.1: {missing}"


def _verifiable(context: Context) -> None:
    topic, group = context.topic("verifiable"), context.topic("group")
    create_topic(context.bootstrap, topic, partitions=3)
    produced = tool(
        context, "VerifiableProducer", "--topic", topic, "--max-messages", "1000", "--acks", "-1"
    )
    summary = json.loads(produced.strip().splitlines()[-1])
    assert summary["acked"] == 1000, summary
    consumed = tool(
        context,
        "VerifiableConsumer",
        "--topic",
        topic,
        "--group-id",
        group,
        "--max-messages",
        "1000",
        "--reset-policy",
        "earliest",
    )
    events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(e["count"] for e in events if e["name"] == "records_consumed") == 1000
    assert all(e["success"] for e in events if e["name"] == "offsets_committed")


CASES = (
    Case("ProducerPerformance and ConsumerPerformance", _performance, ci=True),
    Case("console producer and consumer, in a group", _console, ci=True),
    Case("ConsumerGroupCommand: list, describe, state", _groups),
    Case("TopicCommand: create, list, describe, alter, delete, create again", _topics, ci=True),
    Case("ConfigCommand for topics", _configs, ci=True),
    Case("GetOffsetShell: latest, earliest, max-timestamp, a time", _offsets, ci=True),
    Case("DeleteRecordsCommand", _delete_records, ci=True),
    Case("LogDirsCommand", _log_dirs, ci=True),
    Case("BrokerApiVersionsCommand: the ranges of Kafka", _api_versions, ci=True),
    Case("VerifiableProducer and VerifiableConsumer", _verifiable),
)

if __name__ == "__main__":
    main("java_tools", CASES)
