"""The settings of a client, and the recorder of its events."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

DEADLINE_S = 25.0
GAVE_UP = 3
VALUES_PER_PROCESS = 1_000_000
# The verifiable producer numbers the values of a block itself.
BLOCK = 1_000
TXN, TXN_V2 = "txn", "txn-v2"
# Programs of other authors that produce: see tool_senders.
KCAT, CONSOLE, VERIFIABLE = "kcat", "kafka-console", "kafka-verifiable"
TOOLS = (KCAT, CONSOLE, VERIFIABLE)
# The next incarnation aborts the transaction of a client that died, or this time-out does.
TRANSACTION_TIMEOUT_MS = 15_000
COMMON = {
    "reconnect.backoff.ms": 30,
    "reconnect.backoff.max.ms": 300,
    "retry.backoff.ms": 30,
    "retry.backoff.max.ms": 300,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
# The log lines that `library_log` reads are in these debug contexts.
CONSUMER_LOG = {"log_level": 7, "debug": "topic"}
PRODUCER_LOG = {"log_level": 7, "debug": "msg"}


@dataclass(slots=True)
class Settings:
    """The settings of a client.

    `slot` identifies the client. `process` identifies its incarnation and is unique in the history.
    """

    bootstrap: str
    process: int
    slot: int
    role: str
    mode: str
    seed: int
    topics: list[str]
    partitions: int
    group: str
    transactional_id: str
    group_protocol: str = "classic"
    assignor: str = "range"
    abort_share: float = 0.2
    acks: str = "all"

    @property
    def transacts(self) -> bool:
        return self.role in (TXN, TXN_V2)

    @property
    def keys(self) -> int:
        return len(self.topics) * self.partitions

    def partition_of(self, key: int) -> tuple[str, int]:
        """Return a key's topic and partition."""
        return self.topics[key // self.partitions], key % self.partitions

    def key(self, topic: str, partition: int) -> int:
        return self.topics.index(topic) * self.partitions + partition

    def key_of_name(self, topic_index: int, name: str) -> int:
        """Return the key of a record whose own key is `name`, by Kafka's default partitioner."""
        return topic_index * self.partitions + partition_for(name.encode(), self.partitions)

    def values(self) -> itertools.count[int]:
        return itertools.count(self.process * VALUES_PER_PROCESS)

    @property
    def common(self) -> dict[str, Any]:
        """Return the configuration of all Kafka clients of this process."""
        address = {"bootstrap.servers": self.bootstrap, "client.id": f"process-{self.process}"}
        return {**COMMON, **address}

    def to_argument(self) -> str:
        return json.dumps(asdict(self))


class Recorder:
    """The writer of this process's events, one operation at a time."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.number = -1
        self.fields: dict[str, Any] = {}

    def begin(self, f: str, **fields: Any) -> None:
        self.number += 1
        self.fields = {"process": self.process, "op": self.number, "f": f}
        self.event("invoke", **fields)

    def event(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, **self.fields, "time": time.monotonic_ns(), **fields}
        os.write(1, json.dumps(event).encode() + b"\n")

    def give_up(self, kind: str, error: object, **fields: Any) -> None:
        """Write the result of the operation and end the process."""
        self.event(kind, error=str(error), **fields)
        sys.stdout.flush()
        os._exit(GAVE_UP)


def number_of(text: str) -> int:
    """Return the value in a record: a number, or `BLOCK.NUMBER` by the verifiable producer."""
    block, dot, number = text.partition(".")
    return int(block) * BLOCK + int(number) if dot else int(block)


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key by Kafka's default partitioner (murmur2)."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    hashed = (0x9747B28C ^ len(key)) & mask
    whole = len(key) - len(key) % 4
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        hashed = hashed * factor & mask ^ word
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions


def kafka_error(error: KafkaException) -> KafkaError:
    return error.args[0]


def attempt(call: Callable[[float], Any], deadline_s: float = DEADLINE_S) -> Any:
    """Repeat `call(timeout_s)` while the library reports a retriable error."""
    deadline = time.monotonic() + deadline_s
    while True:
        left = deadline - time.monotonic()
        try:
            return call(max(left, 0.1))
        except KafkaException as error:
            if not kafka_error(error).retriable() or left < 0.1:
                raise
            time.sleep(0.03)
