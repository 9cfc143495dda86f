"""Kafka's own console producer and consumer, each as a process. Records are text lines."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from conformance import stacks
from conformance.adapters.base import DEADLINE_S, Rec, idempotence
from conformance.harness import Context, Skip
from testkit.peer import PeerUnavailable, java_command

SEPARATOR = "|"
TOOLS = "org.apache.kafka.tools"


def kafka_tool(
    main_class: str, *arguments: str, stdin: str | None = None, timeout_s: float = DEADLINE_S
) -> str:
    """Run a tool of Apache Kafka. Return its output; raise if it ends with an error."""
    try:
        command = java_command(main_class, *arguments)
    except PeerUnavailable as reason:
        raise Skip(str(reason)) from None
    done = stacks.run(command, stdin=stdin, timeout_s=timeout_s)
    shown = f"{main_class.rsplit('.', 1)[-1]} {' '.join(arguments)}"
    assert done.returncode == 0, f"{shown}: ended with {done.returncode}: " + _tail(done)
    return done.stdout


def tool(context: Context, name: str, *arguments: str) -> str:
    """Run a tool of Apache Kafka, by its name without the package, on the broker."""
    main_class = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
    return kafka_tool(main_class, "--bootstrap-server", context.bootstrap, *arguments)


def produce_load(
    context: Context, topic: str, records: int, size: int, *arguments: str, per_second: int = -1
) -> str:
    """Run ProducerPerformance with records of `size` bytes. Return its output."""
    output = tool(
        context,
        "ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(size),
        "--throughput",
        str(per_second),
        *arguments,
    )
    assert f"{records} records sent" in output, output
    return output


def _tail(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout + done.stderr)[-1500:]


class JavaClient:
    """The operations of a client that the console tools support."""

    name = "Kafka's console tools"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> list[int]:
        lines = "".join(
            f"{(r.key or b'').decode()}{SEPARATOR}{(r.value or b'').decode()}\n" for r in records
        )
        kafka_tool(
            f"{TOOLS}.ConsoleProducer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--compression-codec",
            compression,
            "--request-required-acks",
            "all",
            "--command-property",
            f"enable.idempotence={str(idempotence(idempotent)).lower()}",
            "--reader-property",
            "parse.key=true",
            "--reader-property",
            f"key.separator={SEPARATOR}",
            stdin=lines,
        )
        return []

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        partition: int = 0,
        offset: int = 0,
        max_bytes: int = 1_048_576,
    ) -> list[Rec]:
        output = kafka_tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--partition",
            str(partition),
            "--offset",
            str(offset),
            "--max-messages",
            str(count),
            "--timeout-ms",
            "120000",
            "--formatter-property",
            "print.key=true",
            "--formatter-property",
            f"key.separator={SEPARATOR}",
        )
        rows = [line.partition(SEPARATOR) for line in output.splitlines()]
        return [Rec(value.encode(), key.encode()) for key, _, value in rows]
