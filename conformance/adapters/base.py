"""What a case may ask of a client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 240.0
SESSION_MS = 60_000  # longer than a machine stands still: a rebalance by chance repeats records


@dataclass(frozen=True, slots=True)
class Rec:
    """A record as sent, or as received (then offset and timestamp are set)."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1

    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        return (self.key, self.value, self.headers)


class Client(Protocol):
    """A client under its own name. All calls block and raise what the client raises."""

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
        """Send all with acks=all and wait; the offsets that were acknowledged, in order."""

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
        """Read `count` records of one assigned partition from an offset on."""

    def offset_for_time(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """The first offset of partition 0 whose timestamp is not before the one given."""

    def run_member(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        stop: threading.Event,
        on_record: Callable[[Rec], None],
        on_assignment: Callable[[set[int]], None],
    ) -> None:
        """Be a member of the group until `stop` is set, then leave; commit what is seen."""
