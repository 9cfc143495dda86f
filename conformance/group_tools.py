"""Apache Kafka's tools for groups.

The cases cover all of ConsumerGroupCommand, VerifiableProducer and VerifiableConsumer with members
that are killed, and EndToEndLatency.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from conformance import stacks
from conformance.adapters.base import Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.adapters.java import TOOLS, tool
from conformance.harness import SESSION_VARIABLE, Case, Context, Skip, main, patient_s
from testkit.peer import PeerUnavailable, java_command
from testkit.topics import create_topic

GROUPS = "consumer.group.ConsumerGroupCommand"
AWAY_S = 60.0
BASE_MS = 1_700_000_000_000
TIMEOUT_S = 300.0
UNSUPPORTED = "UnsupportedVersionException"


def _groups(context: Context, *arguments: str) -> str:
    return tool(context, GROUPS, *arguments)


def _refused(context: Context, *arguments: str) -> str:
    """Run a tool whose request the broker must refuse. Return its output; ignore its exit code."""
    try:
        return _groups(context, *arguments)
    except AssertionError as refused:
        return str(refused)


def _rows(output: str, group: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith(group)]


def _filled(context: Context, partitions: int = 2, each: int = 10) -> str:
    """Create a topic with timestamps BASE_MS, BASE_MS + 1000, ... in each partition."""
    topic = context.topic("groups")
    create_topic(context.bootstrap, topic, partitions=partitions, retention_ms="-1")
    records = [
        Rec(b"x", timestamp_ms=BASE_MS + 1000 * n, partition=p)
        for p in range(partitions)
        for n in range(each)
    ]
    ConfluentClient().produce(context.bootstrap, topic, records)
    return topic


def _commit(context: Context, group: str, offsets: dict[TopicPartition, int]) -> None:
    expected = [TopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
    asked = ConsumerGroupTopicPartitions(group, expected)
    admin = AdminClient({"bootstrap.servers": context.bootstrap})
    for future in admin.alter_consumer_group_offsets([asked]).values():
        future.result(patient_s(AWAY_S))


@contextmanager
def _members(
    context: Context, group: str, topic: str, count: int, protocol: str = "classic"
) -> Iterator[list[Consumer]]:
    """Run consumers of librdkafka that share the partitions."""
    members = [
        Consumer(
            {
                "bootstrap.servers": context.bootstrap,
                "group.id": group,
                "client.id": f"member-{n}",
                "group.instance.id": f"static-{n}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        for n in range(count)
    ]
    try:
        for member in members:
            member.subscribe([topic])
        deadline = time.monotonic() + patient_s(AWAY_S)
        while not all(member.assignment() for member in members):
            assert time.monotonic() < deadline, "no assignment"
            for member in members:
                member.poll(0.1)
        yield members
    finally:
        for member in members:
            member.close()


def _eventually(context: Context, check: Callable[[], object]) -> None:
    """Check a list of groups. While brokers are killed, repeat a check that fails.

    A group is in the list of no broker while its partition of ``__consumer_offsets`` moves to
    another leader: brokers leave out the partitions that they do not lead. Apache Kafka does so,
    too, and its list lacks the same groups under the same kills.
    """
    deadline = time.monotonic() + patient_s(AWAY_S)
    while True:
        try:
            check()
        except AssertionError:
            if not context.kills or time.monotonic() > deadline:
                raise
        else:
            return


def _described(context: Context) -> None:
    topic, group = _filled(context), context.topic("group")
    with _members(context, group, topic, 2) as members:
        for member in members:
            [held] = member.assignment()
            member.commit(offsets=[TopicPartition(topic, held.partition, 4)], asynchronous=False)
        of = ["--describe", "--group", group]
        offsets = sorted(_rows(_groups(context, *of), group), key=lambda row: row[2])
        assert [row[1:6] for row in offsets] == [
            [topic, str(p), "4", "10", "6"] for p in range(2)
        ], offsets
        assert {row[8] for row in offsets} == {"member-0", "member-1"}, offsets
        shown = _groups(context, *of, "--members", "--verbose")
        rows = sorted(_rows(shown, group), key=lambda row: row[2])
        assert [row[2] for row in rows] == ["static-0", "static-1"], shown
        assert sorted(row[7] for row in rows) == [f"{topic}:0", f"{topic}:1"], shown
        state = _rows(_groups(context, *of, "--state"), group)[0]
        assert state[-2:] == ["Stable", "2"] and "range" in state, state
    # Static members stay in the group until their session times out.
    described = _groups(context, "--describe", "--all-groups")
    assert group in described, described


def _listed(context: Context) -> None:
    topic, group = _filled(context, 1), context.topic("group")
    empty = context.topic("empty")
    _commit(context, empty, {TopicPartition(topic, 0): 1})

    def states() -> None:
        found = dict(row[:2] for row in _rows(_groups(context, "--list", "--state"), "group-"))
        assert found.get(group) == "Stable", found

    def stable() -> None:
        found = _groups(context, "--list", "--state", "stable").split()
        assert group in found and empty not in found, found

    def without_members() -> None:
        found = _groups(context, "--list", "--state", "Empty").split()
        assert empty in found, found

    def kinds() -> None:
        found = _groups(context, "--list", "--type")
        assert [row[1] for row in _rows(found, group)] == ["Classic"], found

    def classic() -> None:
        found = _groups(context, "--list", "--type", "classic").split()
        assert empty in found, found

    with _members(context, group, topic, 1):
        for check in (states, stable, without_members, kinds, classic):
            _eventually(context, check)


def _consumer_protocol(context: Context) -> None:
    """Describe groups of KIP-848 with the same tool."""
    topic, group = _filled(context), context.topic("group")
    with _members(context, group, topic, 2, protocol="consumer") as members:
        for member in members:
            [held] = member.assignment()
            member.commit(offsets=[TopicPartition(topic, held.partition, 4)], asynchronous=False)
        _eventually(context, functools.partial(_listed_as_consumer, context, group))
        of = ["--describe", "--group", group]
        offsets = sorted(_rows(_groups(context, *of), group), key=lambda row: row[2])
        assert [row[1:6] for row in offsets] == [
            [topic, str(p), "4", "10", "6"] for p in range(2)
        ], offsets
        shown = _groups(context, *of, "--members", "--verbose")
        assert "CURRENT-EPOCH" in shown and "TARGET-EPOCH" in shown, shown
        assert sorted(re.findall(rf"{topic}:(\d)", shown)) == ["0", "0", "1", "1"], shown
        state = _rows(_groups(context, *of, "--state", "--verbose"), group)[0]
        assert {"Stable", "uniform", "2"} <= set(state), state
        refused = _refused(context, "--delete", "--group", group)
        assert "is not empty" in refused, refused


def _listed_as_consumer(context: Context, group: str) -> None:
    kinds = _groups(context, "--list", "--type", "consumer", "--state", "Stable")
    assert [row[1:3] for row in _rows(kinds, group)] == [["Consumer", "Stable"]], kinds


def _reset(context: Context, group: str, *how: str, apply: bool = True) -> dict[str, int]:
    """Reset offsets. Return the new offset of each partition from the tool's output."""
    act = "--execute" if apply else "--dry-run"
    output = _groups(context, "--reset-offsets", "--group", group, *how, act)
    return {row[2]: int(row[3]) for row in _rows(output, group)}


def _resets(context: Context) -> None:
    topic, group = _filled(context), context.topic("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    _commit(context, group, {first: 4, second: 5})
    of = ["--topic", topic]
    resets: list[tuple[list[str], list[int]]] = [
        ([*of, "--to-current"], [4, 5]),
        ([*of, "--shift-by", "3"], [7, 8]),
        ([*of, "--shift-by", "-100"], [0, 0]),
        ([*of, "--to-latest"], [10, 10]),
        ([*of, "--to-offset", "6"], [6, 6]),
        ([*of, "--to-datetime", "2023-11-14T22:13:23.000+00:00"], [3, 3]),
        ([*of, "--by-duration", "PT1S"], [10, 10]),
        (["--all-topics", "--to-earliest"], [0, 0]),
    ]
    for how, expected in resets:
        got = _reset(context, group, *how)
        assert got == dict(zip("01", expected, strict=True)), (how, got)
    assert _reset(context, group, *of, "--to-latest", apply=False) == {"0": 10, "1": 10}
    assert _reset(context, group, "--topic", f"{topic}:1", "--to-offset", "2") == {"1": 2}
    plan = context.work / f"{group}.csv"
    plan.write_text(f"{topic},0,7\n{topic},1,8\n", encoding="utf-8")
    assert _reset(context, group, "--from-file", str(plan)) == {"0": 7, "1": 8}
    kept = _rows(_groups(context, "--describe", "--group", group), group)
    assert sorted(row[2:6] for row in kept) == [["0", "7", "10", "3"], ["1", "8", "10", "2"]]


def _deleted(context: Context) -> None:
    topic, group = _filled(context), context.topic("group")
    with _members(context, group, topic, 1) as [member]:
        offsets = [TopicPartition(topic, p, 3) for p in range(2)]
        member.commit(offsets=offsets, asynchronous=False)
        assert "is not empty" in _refused(context, "--delete", "--group", group)
        refused = _refused(context, "--delete-offsets", "--group", group, "--topic", topic)
        assert "subscribed" in refused, refused
        refused = _refused(
            context, "--reset-offsets", "--group", group, "--all-topics", "--to-earliest"
        )
        assert "inactive" in refused, refused
    gone = context.topic("group")
    _commit(context, gone, {TopicPartition(topic, p): 3 for p in range(2)})
    output = _groups(context, "--delete-offsets", "--group", gone, "--topic", f"{topic}:0")
    assert "Successful" in output or "success" in output.lower(), output
    assert [row[2] for row in _rows(_groups(context, "--describe", "--group", gone), gone)] == ["1"]
    output = _groups(context, "--delete", "--group", gone)
    assert "was successful" in output, output
    assert gone not in _groups(context, "--list").split()
    assert "GroupIdNotFound" in _refused(context, "--delete", "--group", gone)


def _start(context: Context, name: str, *arguments: str) -> subprocess.Popen[str]:
    words = ["--bootstrap-server", context.bootstrap, *arguments]
    try:
        command = java_command(f"{TOOLS}.{name}", *words, level="ERROR")
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None
    out = (context.work / f"{context.topic(name)}.out").open("w+")
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)


def _events(context: Context, name: str) -> list[dict[str, Any]]:
    """Return the events that all processes of a tool have written, without an incomplete line."""
    events = []
    for path in sorted(context.work.glob(f"{name}-*.out")):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                events.append(json.loads(line))
    return events


def _consumed(context: Context, topic: str) -> set[tuple[int, int]]:
    """Return partition and offset of each consumed record."""
    return {
        (part["partition"], offset)
        for event in _events(context, "VerifiableConsumer")
        if event.get("name") == "records_consumed"
        for part in event["partitions"]
        if part["topic"] == topic
        for offset in range(part["minOffset"], part["maxOffset"] + 1)
    }


def _until(what: str, condition: Any) -> None:
    deadline = time.monotonic() + patient_s(AWAY_S)
    while not condition():
        if time.monotonic() > deadline:
            raise stacks.hung(f"no {what} within {patient_s(AWAY_S):g} s")
        time.sleep(0.2)


def _verifiable(context: Context, protocol: str) -> None:
    """Kill one of two members and start another. No produced record may be missed."""
    topic, group = context.topic(f"verifiable-{protocol}"), context.topic("group")
    create_topic(context.bootstrap, topic, partitions=4)
    words = ["--topic", topic, "--group-id", group, "--group-protocol", protocol]
    words += ["--reset-policy", "earliest"]
    words += ["--session-timeout", os.environ[SESSION_VARIABLE]] if protocol == "classic" else []
    start = functools.partial(_start, context, "VerifiableConsumer", *words)
    running = [start(), start()]
    try:
        produced = json.loads(_produced(context, topic, 1000).strip().splitlines()[-1])
        assert produced["acked"] == 1000, produced
        _until(
            "first half",
            lambda: len(_consumed(context, topic)) == 1000 or _check_consumers(context),
        )
        running[0].kill()
        running.append(start())
        _produced(context, topic, 1000)
        _until("second half", lambda: len(_consumed(context, topic)) == 2000)
        running[1].terminate()
        running[2].terminate()
        for process in running:
            process.wait(patient_s(AWAY_S))
    finally:
        for process in running:
            process.kill()
    committed = [e for e in _events(context, "VerifiableConsumer") if e["name"].endswith("ted")]
    assert any(e["name"] == "offsets_committed" and e["success"] for e in committed), committed


def _produced(context: Context, topic: str, count: int) -> str:
    return tool(
        context,
        "VerifiableProducer",
        "--topic",
        topic,
        "--max-messages",
        str(count),
        "--acks",
        "-1",
        "--repeating-keys",
        "50",
    )


def _check_consumers(context: Context) -> bool:
    """Return False. Raise if a consumer reported an unsupported version of an API."""
    for path in context.work.glob("VerifiableConsumer-*.out"):
        output = path.read_text(encoding="utf-8")
        assert UNSUPPORTED not in output, output[-600:]
    return False


def _latency(context: Context) -> None:
    topic = context.topic("latency")
    create_topic(context.bootstrap, topic)
    for acks in ("1", "all"):
        output = tool(
            context,
            "EndToEndLatency",
            "--topic",
            topic,
            "--num-records",
            "500",
            "--producer-acks",
            acks,
            "--record-size",
            "100",
        )
        assert "Avg latency" in output and "Percentiles" in output, output


CASES = (
    Case("ConsumerGroupCommand --describe: offsets, members, state", _described),
    Case("ConsumerGroupCommand --list: by state, by type", _listed),
    Case("ConsumerGroupCommand on a group of KIP-848", _consumer_protocol),
    Case("ConsumerGroupCommand --reset-offsets: every way", _resets, timeout_s=TIMEOUT_S),
    Case("ConsumerGroupCommand --delete, --delete-offsets", _deleted),
    Case(
        "VerifiableConsumer, classic: members killed and joining",
        functools.partial(_verifiable, protocol="classic"),
    ),
    Case(
        "VerifiableConsumer, KIP-848: members killed and joining",
        functools.partial(_verifiable, protocol="consumer"),
    ),
    Case("EndToEndLatency, acks 1 and all", _latency),
)

if __name__ == "__main__":
    main("group_tools", CASES)
