"""Sends by the command line programs of other authors, one run of a program an operation.

- `kcat`: lines for one partition, with or without idempotence.
- `kafka-console`: Kafka's console producer, with a key for each line.
- `kafka-verifiable`: Kafka's verifiable producer, which reports each acknowledgement.

All of them use acks=all. Kafka's producers are idempotent and choose the partition by the key, so
the operation lists the partition that each key must get. A value of the verifiable producer is the
text `BLOCK.NUMBER`. `number_of` returns the value of any text.

A run that does not report success for each send has an unknown result. Its requests may still be in
flight, so the process ends, as after any unknown result.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from conformance.histories.history import INFO, OK
from conformance.histories.library_log import FAILED_BATCH, partition_in
from conformance.histories.settings import (
    BLOCK,
    CONSOLE,
    DEADLINE_S,
    KCAT,
    VERIFIABLE,
    Recorder,
    Settings,
    number_of,
)
from testkit.peer.artifacts import java_command

LINES_MAX = 30
KEYS = 16  # of Kafka's producers, several for each partition
VERIFIABLE_SENDS = 150
VERIFIABLE_RATE = 50
RUN_S = 90.0
DELIVERY_MS = int(DEADLINE_S * 800)
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
HEAP = "-Xmx96M"
RETRIES = 1_000_000


class ToolSender(ABC):
    """A client whose sends are runs of a program."""

    def __init__(self, settings: Settings, record: Recorder, random: Random) -> None:
        self.settings = settings
        self.record = record
        self.random = random
        self.next_value = next(settings.values())

    def open(self) -> None:  # noqa: B027 - not every client has something to do
        """Start nothing: each operation runs the program."""

    def close(self) -> None:  # noqa: B027
        """End nothing: the program of the last operation has ended."""

    @abstractmethod
    def step(self) -> None:
        """Perform one operation: plan its sends, run the program, record the result."""

    def take_values(self, count: int) -> list[int]:
        first, self.next_value = self.next_value, self.next_value + count
        return list(range(first, first + count))

    def begin(self, sends: Sequence[tuple[int, int]], *, idempotent: bool = True) -> None:
        self.record.begin("send", sends=sends, idempotent=idempotent, client=self.settings.role)

    def end(
        self, sends: Sequence[tuple[int, int]], offsets: dict[int, int | None], **fields: Any
    ) -> None:
        """Record the result. `offsets` has the values that the program reported as delivered."""
        listed = [
            [key, value, offsets.get(value), OK if value in offsets else INFO]
            for key, value in sends
        ]
        if len(offsets) < len(sends):
            error = f"{len(sends) - len(offsets)} sends are not reported as delivered"
            self.record.give_up(INFO, error, sends=listed, **fields)
        self.record.event(OK, sends=listed, **fields)

    def run(
        self, command: Sequence[str], lines: str = ""
    ) -> subprocess.CompletedProcess[str] | None:
        """Run the program. Return None if it does not end in time."""
        try:
            return subprocess.run(
                command, input=lines, capture_output=True, text=True, timeout=RUN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return None


class KcatSender(ToolSender):
    def step(self) -> None:
        key = self.random.randrange(self.settings.keys)
        idempotent = self.random.random() < 0.5
        sends = [(key, value) for value in self.take_values(self.random.randint(1, LINES_MAX))]
        topic, partition = self.settings.partition_of(key)
        config = {
            "acks": "all",
            "enable.idempotence": str(idempotent).lower(),
            "message.timeout.ms": str(DELIVERY_MS),
            "retry.backoff.ms": "30",
        }
        command = ["kcat", "-P", "-b", self.settings.bootstrap, "-t", topic, "-p", str(partition)]
        for name, value in config.items():
            command += ["-X", f"{name}={value}"]
        self.begin(sends, idempotent=idempotent)
        done = self.run([*command, "-d", "msg"], "".join(f"{value}\n" for _, value in sends))
        errors = "" if done is None else done.stderr
        failed = {partition_in(line, FAILED_BATCH) for line in errors.splitlines()} - {None}
        delivered = done is not None and done.returncode == 0 and "% Delivery failed" not in errors
        self.end(
            sends,
            {value: None for _, value in sends} if delivered else {},
            **({"retried": [key]} if failed else {}),
        )


class ConsoleSender(ToolSender):
    def step(self) -> None:
        topic_index = self.random.randrange(len(self.settings.topics))
        lines, sends = [], []
        for value in self.take_values(self.random.randint(1, LINES_MAX)):
            name = str(self.random.randrange(KEYS))
            lines.append(f"{name}|{value}\n")
            sends.append((self.settings.key_of_name(topic_index, name), value))
        command = java_command(
            "org.apache.kafka.tools.ConsoleProducer",
            "--bootstrap-server",
            self.settings.bootstrap,
            "--topic",
            self.settings.topics[topic_index],
            "--request-required-acks",
            "all",
            "--message-send-max-retries",
            str(RETRIES),
            "--request-timeout-ms",
            "5000",
            "--reader-property",
            "parse.key=true",
            "--reader-property",
            "key.separator=|",
            "--command-property",
            f"delivery.timeout.ms={DELIVERY_MS}",
            heap=HEAP,
            jvm=JVM,
        )
        self.begin(sends)
        done = self.run(command, "".join(lines))
        # The producer only logs a failed delivery.
        delivered = done is not None and done.returncode == 0 and "Error when" not in done.stderr
        self.end(sends, {value: None for _, value in sends} if delivered else {})


class VerifiableSender(ToolSender):
    def step(self) -> None:
        topic_index = self.random.randrange(len(self.settings.topics))
        (first, *_) = self.take_values(BLOCK)
        sends = [
            (self.settings.key_of_name(topic_index, str(number % KEYS)), first + number)
            for number in range(VERIFIABLE_SENDS)
        ]
        with tempfile.TemporaryDirectory(prefix="verifiable-") as directory:
            config = Path(directory) / "producer.properties"
            config.write_text(
                f"enable.idempotence=true\nretries={RETRIES}\nrequest.timeout.ms=5000\n"
                f"delivery.timeout.ms={DELIVERY_MS}\nmax.block.ms={DELIVERY_MS}\n",
                encoding="utf-8",
            )
            command = java_command(
                "org.apache.kafka.tools.VerifiableProducer",
                "--bootstrap-server",
                self.settings.bootstrap,
                "--topic",
                self.settings.topics[topic_index],
                "--max-messages",
                str(VERIFIABLE_SENDS),
                "--throughput",
                str(VERIFIABLE_RATE),
                "--acks",
                "-1",
                "--value-prefix",
                str(first // BLOCK),
                "--repeating-keys",
                str(KEYS),
                "--command-config",
                str(config),
                heap=HEAP,
                jvm=JVM,
            )
            self.begin(sends)
            done = self.run(command)
        self.end(sends, dict(acknowledged("" if done is None else done.stdout)))


def acknowledged(output: str) -> list[tuple[int, int]]:
    """Return value and offset of each acknowledgement in the verifiable producer's output."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [
        (number_of(event["value"]), event["offset"])
        for event in events
        if event["name"] == "producer_send_success"
    ]


SENDERS = {KCAT: KcatSender, CONSOLE: ConsoleSender, VERIFIABLE: VerifiableSender}
