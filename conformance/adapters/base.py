"""The interface of client adapters."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from conformance.harness import KILLS_VARIABLE

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 240.0
SESSION_MS = 60_000  # longer than a stall of the machine: an accidental rebalance repeats records


def idempotence(requested: bool = False) -> bool:
    """Return whether a producer must be idempotent. All are while brokers are killed.

    Without idempotence a batch may be appended twice when its first response is lost.
    """
    return requested or KILLS_VARIABLE in os.environ


@dataclass(frozen=True, slots=True)
class Rec:
    """A sent or received record. Received records have an offset and a timestamp."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1

    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        return (self.key, self.value, self.headers)


class Client(Protocol):
    """A client library. All calls block and pass on the client's exceptions."""

    name: str
    null_headers: bool  # Whether it can send a header without a value.

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
        """Send all records with acks=all and wait. Return the acknowledged offsets in order."""

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
        """Read `count` records of one assigned partition, starting at an offset."""

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """Return the first offset of partition 0 with a timestamp of at least `timestamp_ms`."""

    def run_member(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        stop: threading.Event,
        on_record: Callable[[Rec], None],
        on_assignment: Callable[[set[int]], None],
    ) -> None:
        """Be a group member until `stop` is set, then leave. Commit the records seen."""
