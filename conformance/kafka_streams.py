"""Kafka Streams with exactly_once_v2: a program that sums by key, while it or brokers are killed.

Without a cache, each input record gives one sum. The expected output of a key is therefore known
exactly: a read_committed consumer must receive each running sum once and in order.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from conformance import stacks
from conformance.adapters.base import idempotence
from conformance.harness import Case, Context, Skip, main, patient_s
from testkit.peer import PeerUnavailable, java_command
from testkit.peer.artifacts import program_class_path
from testkit.topics import create_topic

SOURCE = Path(__file__).parent / "programs" / "KeySums.java"
PARTITIONS, KEYS, KILLS, EACH = 2, 10, 3, 400
FED_S, FED_EACH = 90.0, 20
AWAY_S = 150.0
SEED = 11


class _Sums:
    """The numbers sent and the committed sums received, by key."""

    def __init__(self, context: Context) -> None:
        self.source, self.sink = context.topic("numbers"), context.topic("sums")
        for topic in (self.source, self.sink):
            create_topic(context.bootstrap, topic, partitions=PARTITIONS)
        self.expected: dict[str, list[int]] = defaultdict(list)
        self.read: dict[str, list[int]] = defaultdict(list)
        self._producer = Producer(
            {"bootstrap.servers": context.bootstrap, "enable.idempotence": idempotence()}
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": context.bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(self.sink, p, 0) for p in range(PARTITIONS)])

    def send(self, numbers: random.Random, count: int) -> None:
        for _ in range(count):
            key, number = f"k{numbers.randrange(KEYS)}", numbers.randrange(1, 100)
            # Each key has its own partition, so the order of its sums is defined.
            partition = int(key[1:]) % PARTITIONS
            self._producer.produce(self.source, str(number), key, partition)
            sums = self.expected[f"sum-{key}"]
            sums.append((sums[-1] if sums else 0) + number)
        assert self._producer.flush(60) == 0

    def count(self) -> int:
        return sum(len(sums) for sums in self.read.values())

    def poll(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            self.read[(message.key() or b"").decode()].append(int(message.value() or b""))

    def close(self) -> None:
        self._consumer.close()


def _compiled(context: Context) -> str:
    """Compile the program. Return its class path."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise Skip("the program is compiled by javac: it is not on the PATH")
    try:
        path = program_class_path()
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None
    command = [compiler, "-cp", path, "-d", str(context.work), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return f"{context.work}{os.pathsep}{path}"


def _killed(context: Context) -> None:
    path, sums, numbers = _compiled(context), _Sums(context), random.Random(SEED)
    words = [context.bootstrap, context.topic("sums-app"), sums.source, sums.sink]
    command = java_command(
        "KeySums", *words, str(context.work / "state"), level="ERROR", extra_class_path=path
    )
    log = (context.work / "streams.log").open("w+", encoding="utf-8")
    try:
        for kill in range(KILLS + 1):
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            try:
                _run(sums, numbers, process, log.name, last=kill == KILLS)
            finally:
                process.kill()
                process.wait()
        assert sums.read == sums.expected
    finally:
        sums.close()


def _run(
    sums: _Sums, numbers: random.Random, process: subprocess.Popen[bytes], log: str, *, last: bool
) -> None:
    """Run the program once, to the end of its input or until some of its sums are committed."""
    began = sum(len(each) for each in sums.expected.values())
    half = EACH // 2 + numbers.randrange(EACH // 4)
    sums.send(numbers, EACH)
    expected = began + EACH if last else began + half
    deadline = time.monotonic() + patient_s(AWAY_S)
    while sums.count() < expected:
        assert process.poll() is None, Path(log).read_text(encoding="utf-8")[-1500:]
        if time.monotonic() > deadline:
            said = Path(log).read_text(encoding="utf-8")[-1500:]
            raise stacks.hung(f"{sums.count()} of {expected} sums: {said}")
        sums.poll()
        if not last and sums.count() >= began + half // 2:
            sums.send(numbers, 20)  # The program is then killed while it has input.
    if last:
        for _ in range(10):
            sums.poll()  # A duplicate would arrive now.
        total = sum(len(each) for each in sums.expected.values())
        while sums.count() < total:
            if time.monotonic() > deadline:
                raise stacks.hung(f"{sums.count()} of {total} sums")
            sums.poll()


def _brokers_killed(context: Context) -> None:
    """Run the program without an end while brokers are killed, for FED_S seconds."""
    if not context.kills:
        raise Skip("needs brokers that are killed (--kills)")
    path, sums, numbers = _compiled(context), _Sums(context), random.Random(SEED)
    words = [context.bootstrap, context.topic("sums-app"), sums.source, sums.sink]
    command = java_command(
        "KeySums", *words, str(context.work / "state"), level="ERROR", extra_class_path=path
    )
    log = (context.work / "streams-fed.log").open("w+", encoding="utf-8")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + FED_S
        while time.monotonic() < end:
            sums.send(numbers, FED_EACH)
            sums.poll()
            assert process.poll() is None, Path(log.name).read_text(encoding="utf-8")[-1500:]
        _run(sums, numbers, process, log.name, last=True)
        assert sums.read == sums.expected
    finally:
        process.kill()
        process.wait()
        sums.close()


CASES = (
    Case("exactly_once_v2, killed and restarted: every sum once", _killed, timeout_s=600.0),
    Case("exactly_once_v2 while brokers are killed: every sum once", _brokers_killed),
)

if __name__ == "__main__":
    main("kafka_streams", CASES)
