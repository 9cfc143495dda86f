"""The history: what each client asked for and what it was told, as JSON lines.

A line is one event. `time` is CLOCK_MONOTONIC in ns, which all processes of a machine share.

    {"type": "test", "seed": 7, ...}                        the first line: what was run
    {"type": "invoke", "process": 3, "op": 12, "f": "txn", "time": ..., "sends": [[key, value]]}
    {"type": "committing", "process": 3, "op": 12, ...}     before a transaction asks to commit
    {"type": "ok" | "fail" | "info", "process": 3, "op": 12, "time": ..., ...}
    {"type": "fault", "f": "broker-kill", "time": ..., ...}
    {"type": "stuck", "key": 2, "last_stable_offset": 7, "high_watermark": 9}
    {"type": "final", "time": ...}                          everything there was has been read

A key is a partition, a value a number that is sent once only. A process is one incarnation of a
client: whoever comes after a crash has a new number. `info` means that nobody can tell whether
it happened. An operation without an end was cut off by the death of its process: a transaction
that had not asked to commit yet cannot have committed, everything else is `info`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OK, FAIL, INFO = "ok", "fail", "info"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ENDS = (OK, FAIL, INFO)
# The readers at the end of a run have numbers from here on.
FINAL_PROCESS = 1 << 30


class Send(NamedTuple):
    """One value on its way to a key. `offset` None: not told. `status`: of this send alone."""

    key: int
    value: int
    offset: int | None = None
    status: str = INFO


class Read(NamedTuple):
    key: int
    offset: int
    value: int


@dataclass(slots=True)
class Op:
    """One operation of one process, with its end.

    f: txn (sends, reads, or both, atomically), send (each send on its own), poll, commit (of a
    group's offsets), assign, subscribe, open. `moved`: keys whose position a rebalance may have
    changed during the operation. `sought`: keys that the client itself placed at an offset, after
    what it read. `positions`: what was committed for `group`. `protocol`: 2 for
    transactions of the second one.
    """

    process: int
    number: int
    f: str
    status: str
    invoked: int
    ended: int
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)
    sought: dict[int, int] = field(default_factory=dict)
    group: str | None = None
    positions: dict[int, int] = field(default_factory=dict)
    isolation: str = READ_COMMITTED
    idempotent: bool = True
    protocol: int = 1
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.process}/{self.number}"

    def status_of(self, send: Send) -> str:
        """Of one write: a transaction's are all alike."""
        return self.status if self.f == "txn" else send.status


@dataclass(slots=True)
class History:
    """`ops` in the order in which they were invoked; `complete`: the final reads ended well."""

    test: dict[str, Any] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    stuck: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False


def parse(lines: Iterable[str]) -> History:
    """The history in these lines; their order does not matter, only their times do."""
    history = History()
    events: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in lines:
        event = json.loads(line)
        kind = event["type"]
        if kind == "test":
            history.test = event
        elif kind == "fault":
            history.faults.append(event)
        elif kind == "stuck":
            history.stuck.append(event)
        elif kind == "final":
            history.complete = True
        else:
            events.setdefault((event["process"], event["op"]), []).append(event)
    history.ops = sorted((_op(each) for each in events.values()), key=lambda op: op.invoked)
    return history


def _op(events: list[dict[str, Any]]) -> Op:
    """One operation from its two or three events."""
    merged: dict[str, Any] = {}
    for event in sorted(events, key=lambda event: event["time"]):
        merged.update(event)
    invoked = min(event["time"] for event in events)
    kinds = {event["type"] for event in events}
    end = next((kind for kind in ENDS if kind in kinds), None)
    cut_off = FAIL if merged["f"] == "txn" and "committing" not in kinds else INFO
    return Op(
        process=merged["process"],
        number=merged["op"],
        f=merged["f"],
        status=end or cut_off,
        invoked=invoked,
        ended=merged["time"] if end else NEVER,
        sends=[Send(*send) for send in merged.get("sends", ())],
        reads=[Read(*read) for read in merged.get("reads", ())],
        moved=set(merged.get("moved", ())),
        sought={int(k): v for k, v in merged.get("sought", {}).items()},
        group=merged.get("group"),
        positions={int(k): v for k, v in merged.get("positions", {}).items()},
        isolation=merged.get("isolation", READ_COMMITTED),
        idempotent=merged.get("idempotent", True),
        protocol=merged.get("protocol", 1),
        error=merged.get("error", "") or ("" if end else "the process died"),
    )


NEVER = 1 << 62
