"""Cases that run a client library as a separate process.

They cover group members that are killed, transactions that abort at random, and fencing. Each
library is in a small program, and a case gets its command. The program has three verbs:

- ``consume BOOTSTRAP TOPIC GROUP INSTANCE`` is a group member until SIGTERM. Its session timeout is
  that of `harness.SESSION_VARIABLE`. It is static if INSTANCE is not empty. It commits the records
  that it has seen and prints ``PARTITION OFFSET`` for each record.
- ``transact BOOTSTRAP SINK ID COUNT SEED SOURCE GROUP`` runs COUNT transactions. Each of them sends
  ``N-0`` to ``N-4`` and the offset N + 1. It prints ``commit N`` or ``abort N``.
- ``fence BOOTSTRAP TOPIC ID`` begins a transaction and runs another transaction with a second
  producer. It prints ``fenced`` when the first transaction cannot be committed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from conformance import stacks
from conformance.adapters.base import Rec
from conformance.adapters.confluent import ConfluentClient
from conformance.go_programs import PROGRAMS
from conformance.harness import Case, Context, patient_s
from testkit.topics import create_topic

Command = Callable[[], list[str]]
T = TypeVar("T")
PARTITIONS, RECORDS, TRANSACTIONS = 4, 400, 40
# With the KIP-848 protocol the broker sets the session timeout: 45 s.
AWAY_S = 90.0
RETRIED = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR, -137)
"""Errors of requests to a broker that was killed. -137 is librdkafka's _DESTROY_BROKER, for which
its Python binding has no name: the broker left the metadata before it responded."""
RETRY_S = 0.5
RESTARTS_MAX = 30
RESTART_PAUSE_S = 1.0
ERRORS_SHOWN = 1000
SEED = 5
MEMBERS = "members join, leave and are killed"
STATIC = "a static member killed and back"
ABORTS = "transactions with offsets, aborted at random"
FENCED = "a second producer fences the first"


def member_case(name: str, command: Command) -> Case:
    return Case(name + MEMBERS, lambda context: members(context, command))


def static_case(name: str, command: Command) -> Case:
    return Case(name + STATIC, lambda context: static(context, command))


def python_program(name: str, *options: str) -> Command:
    """Return the command of a Python program. This interpreter has the client libraries."""
    return lambda: [sys.executable, str(PROGRAMS / "python" / f"{name}.py"), *options]


def transaction_cases(name: str, command: Command) -> tuple[Case, ...]:
    return (
        Case(name + ABORTS, lambda context: transactions(context, command)),
        Case(name + FENCED, lambda context: fenced(context, command)),
    )


@dataclass(slots=True)
class Member:
    """A consumer process and the file to which it writes the records that it sees."""

    command: list[str]
    output: Path
    process: subprocess.Popen[bytes]
    restarts: int = 0

    @classmethod
    def start(cls, command: list[str], output: Path) -> Member:
        return cls(command, output, _started(command, output))

    @property
    def errors(self) -> str:
        return _errors(self.output).read_text(encoding="utf-8", errors="replace")

    @property
    def has_failed(self) -> bool:
        """Whether the process ended with an error. A killed one did not."""
        return (self.process.poll() or 0) > 0

    def restart(self) -> None:
        """Start a failed process again, as a supervisor does."""
        print(f"--- a member ended: {self.errors[-ERRORS_SHOWN:]}", file=sys.stderr)
        self.restarts += 1
        self.process = _started(self.command, self.output)

    def seen(self) -> list[tuple[int, int]]:
        lines = self.output.read_text(encoding="utf-8").splitlines(keepends=True)
        words = [line.split() for line in lines if line.endswith("\n")]
        return [(int(p), int(o)) for p, o in words]

    def partitions(self) -> set[int]:
        """The partitions from which the member has seen records."""
        return {partition for partition, _ in self.seen()}

    def leave(self) -> None:
        self.process.terminate()
        try:
            assert self.process.wait(patient_s(AWAY_S)) in (0, -signal.SIGTERM)
        except subprocess.TimeoutExpired:
            raise stacks.hung("the member does not leave") from None


def _errors(output: Path) -> Path:
    return output.with_suffix(".err")


def _started(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a process. Its output is added to the file, and its errors to a file beside."""
    with output.open("ab") as out, _errors(output).open("ab") as err:
        return subprocess.Popen(command, stdout=out, stderr=err)


@dataclass(slots=True)
class Group:
    """The members of a group. While brokers are killed, members that end with an error are started
    again: not every client survives the loss of a broker at its own start.
    """

    context: Context
    command: list[str]
    topic: str
    name: str
    members: list[Member] = field(default_factory=list)

    def join(self, instance: str = "") -> Member:
        output = self.context.work / self.context.topic("member")
        words = [*self.command, "consume", self.context.bootstrap, self.topic, self.name, instance]
        self.members.append(Member.start(words, output))
        return self.members[-1]

    def until_seen(self, total: int) -> None:
        """Wait until all members, including dead members, have seen `total` records together."""
        self.until(lambda: len({x for m in self.members for x in m.seen()}) >= total, f"{total}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + patient_s(AWAY_S)
        while not condition():
            if time.monotonic() > deadline:
                raise stacks.hung(f"never {what}: {self._counts()}")
            for member in self.members:
                if member.has_failed:
                    self._failed(member)
            time.sleep(0.1)

    def _failed(self, member: Member) -> None:
        limit = RESTARTS_MAX if self.context.kills else 0
        assert member.restarts < limit, f"a member ended: {member.errors[-ERRORS_SHOWN:]}"
        time.sleep(RESTART_PAUSE_S)
        member.restart()

    def _counts(self) -> list[Any]:
        return [(len(m.seen()), m.restarts, m.errors[-300:]) for m in self.members]

    def end(self) -> None:
        for member in self.members:
            member.process.kill()
            member.process.wait()


def _send(context: Context, topic: str) -> None:
    """Send RECORDS records, spread evenly over the partitions."""
    records = [Rec(b"x", partition=n % PARTITIONS) for n in range(RECORDS)]
    ConfluentClient().produce(context.bootstrap, topic, records)


def _retried(call: Callable[[], T]) -> T:
    """Return the result of a request. Repeat it when its broker was killed."""
    deadline = time.monotonic() + patient_s(AWAY_S)
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() not in RETRIED or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def _committed(context: Context, group: str, topic: str, partitions: int) -> list[int]:
    asked = [TopicPartition(topic, p) for p in range(partitions)]

    def request() -> list[int]:
        admin = AdminClient({"bootstrap.servers": context.bootstrap})
        [future] = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, asked)]
        ).values()
        return [tp.offset for tp in future.result(AWAY_S).topic_partitions]

    return _retried(request)


def _group_of(context: Context, command: list[str]) -> Group:
    topic = context.topic("members")
    create_topic(context.bootstrap, topic, partitions=PARTITIONS)
    return Group(context, command, topic, context.topic("group"))


def members(context: Context, command: Command) -> None:
    """Two members join, then a third. One is killed and another leaves.

    The members must see all records and commit all offsets. A member commits what it has seen when
    it leaves, but its coordinator may be killed at that moment. While brokers are killed, the last
    member leaves when its periodic commits have reached the ends.
    """
    group = _group_of(context, command())
    try:
        first, second = group.join(), group.join()
        _send(context, group.topic)
        group.until_seen(RECORDS)
        third = group.join()
        group.until(lambda: _fed(context, group, third), "third member fed")
        first.process.kill()
        total = _ends(context, group)
        _send(context, group.topic)
        group.until_seen(total + RECORDS)
        second.leave()
        _send(context, group.topic)
        group.until_seen(total + 2 * RECORDS)
        ends = [_ends(context, group) // PARTITIONS] * PARTITIONS
        if context.kills:
            group.until(lambda: _commits(context, group) == ends, f"committed {ends}")
        third.leave()
        assert _commits(context, group) == ends, (_commits(context, group), ends)
    finally:
        group.end()


def _commits(context: Context, group: Group) -> list[int]:
    return _committed(context, group.name, group.topic, PARTITIONS)


def _fed(context: Context, group: Group, member: Member) -> bool:
    """Return whether a new member receives records. If it does not, send another round."""
    _send_round(context, group)
    return bool(member.seen())


def _send_round(context: Context, group: Group) -> None:
    records = [Rec(b"x", partition=p) for p in range(PARTITIONS)]
    ConfluentClient().produce(context.bootstrap, group.topic, records)


def _held(context: Context, group: Group, member: Member) -> set[int]:
    """Return the partitions of a member. Records are sent first, because it may not yet have seen
    a record from each of its partitions.
    """
    _send_round(context, group)
    group.until_seen(_ends(context, group))
    return member.partitions()


def _ends(context: Context, group: Group) -> int:
    """Return the number of records in the topic."""

    def request() -> int:
        consumer = Consumer({"bootstrap.servers": context.bootstrap, "group.id": "unused"})
        try:
            marks = [
                consumer.get_watermark_offsets(TopicPartition(group.topic, p), AWAY_S)
                for p in range(PARTITIONS)
            ]
        finally:
            consumer.close()
        return sum(high for _, high in marks)

    return _retried(request)


def static(context: Context, command: Command) -> None:
    """Kill a static member and start it again with the same instance id, without a rebalance."""
    group = _group_of(context, command())
    try:
        group.join("a")
        _send(context, group.topic)
        group.until_seen(RECORDS)
        killed = group.join("b")
        group.until(lambda: _fed(context, group, killed), "second member fed")
        held = _held(context, group, killed)
        killed.process.kill()
        again = group.join("b")
        group.until(lambda: _fed(context, group, again), "member back")
        assert again.partitions() <= held, (again.partitions(), held)
        total = _ends(context, group)
        _send(context, group.topic)
        group.until_seen(total + RECORDS)
        assert again.partitions() == held, (again.partitions(), held)
    finally:
        group.end()


def _run(context: Context, command: list[str], *words: str) -> list[list[str]]:
    done = stacks.run(
        [*command, words[0], context.bootstrap, *words[1:]], timeout_s=patient_s(AWAY_S) * 2
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-800:]
    return [line.split() for line in done.stdout.splitlines()]


def _read(context: Context, topic: str) -> list[str]:
    """Return all committed values of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": context.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + patient_s(AWAY_S)
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is not None:
                break
            if message is not None:
                values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def transactions(context: Context, command: Command) -> None:
    source, sink, group = context.topic("source"), context.topic("sink"), context.topic("group")
    for topic in (source, sink):
        create_topic(context.bootstrap, topic)
    words = [sink, context.topic("tx"), str(TRANSACTIONS), str(SEED), source, group]
    ended = _run(context, command(), "transact", *words)
    assert len(ended) == TRANSACTIONS and {how for how, _ in ended} == {"commit", "abort"}, ended
    kept = [int(n) for how, n in ended if how == "commit"]
    assert _read(context, sink) == [f"{n}-{i}" for n in kept for i in range(5)]
    assert _committed(context, group, source, 1) == [kept[-1] + 1]


def fenced(context: Context, command: Command) -> None:
    topic = context.topic("fence")
    create_topic(context.bootstrap, topic)
    output = _run(context, command(), "fence", topic, context.topic("tx"))
    assert output and output[0][0] == "fenced", output
    assert _read(context, topic) == [f"1-{i}" for i in range(5)]
