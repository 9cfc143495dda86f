"""The history: each client's requests and their results, as JSON lines.

A line is one event. `time` is CLOCK_MONOTONIC in ns, which all processes of a machine share.

The first line has the settings of the run.

    {"type": "test", "seed": 7, ...}

An operation has an `invoke` event and an event with its result.

    {"type": "invoke", "process": 3, "op": 12, "f": "txn", "time": ..., "sends": [[key, value]]}

The type of the result is `ok`, `fail` or `info`.

    {"type": "ok", "process": 3, "op": 12, "time": ..., ...}

A transaction has another event, written before it requests the commit.

    {"type": "committing", "process": 3, "op": 12, ...}

The nemesis and the end of the run write the other events. `replicas` has the brokers that are in
sync, and batches, bytes and hash of each broker's log of the partition. `final` means that all
records have been read.

    {"type": "fault", "f": "broker-kill", "time": ..., ...}
    {"type": "stuck", "key": 2, "last_stable_offset": 7, "high_watermark": 9}
    {"type": "replicas", "key": 2, "in_sync": [1, 2], "logs": {"1": [9, 812, "a3..."], ...}}
    {"type": "final", "time": ...}

A key is a partition. A value is a number that is sent only once. A process is one incarnation of a
client: after a crash the next incarnation has a new number. `info` means that the result is
unknown. An operation without a result was cut off by the death of its process. If it is a
transaction that had not requested the commit, it cannot have committed. Otherwise it is `info`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

OK, FAIL, INFO = "ok", "fail", "info"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
ENDS = (OK, FAIL, INFO)
# The process numbers of the final readers begin here.
FINAL_PROCESS = 1 << 30


class Send(NamedTuple):
    """One value sent to a key. `offset` is None if unknown. `status` is the status of this send."""

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
    """One operation of one process, with its result.

    `f` is the function: txn (sends, reads, or both, atomically), send (independent sends), poll,
    commit (of a group's offsets), assign, subscribe, open. `moved` holds the keys whose position a
    rebalance may have changed during the operation. `sought` holds the keys for which the client
    set the position, after its reads. `requeried` holds the keys for which the client library
    logged that it will query the start offset again (see `library_log`). `retried` holds the keys
    for which a producer's library logged a failed request. `positions` holds the offsets committed
    for `group`. `protocol` is 2 for transactions of the second protocol.
    `client` is the role of the client that sends.
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
    requeried: set[int] = field(default_factory=set)
    retried: set[int] = field(default_factory=set)
    group: str | None = None
    positions: dict[int, int] = field(default_factory=dict)
    isolation: str = READ_COMMITTED
    idempotent: bool = True
    client: str = ""
    protocol: int = 1
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.process}/{self.number}"

    def status_of(self, send: Send) -> str:
        """Return the status of one write. All writes of a transaction have the same status."""
        return self.status if self.f == "txn" else send.status


@dataclass(slots=True)
class History:
    """A parsed history.

    `ops` are in the order of invocation. `complete` means that the final reads succeeded. `unaware`
    has the times, in ns, in which a broker could be replaced as a coordinator and not notice it.
    """

    test: dict[str, Any] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    stuck: list[dict[str, Any]] = field(default_factory=list)
    replicas: list[dict[str, Any]] = field(default_factory=list)
    unaware: list[tuple[int, int]] = field(default_factory=list)
    complete: bool = False


def parse(lines: Iterable[str]) -> History:
    """Parse a history. The events are ordered by their times, not by the order of the lines."""
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
        elif kind == "replicas":
            history.replicas.append(event)
        elif kind == "unaware":
            history.unaware.append((event["began"], event["time"]))
        elif kind == "final":
            history.complete = True
        else:
            events.setdefault((event["process"], event["op"]), []).append(event)
    history.ops = sorted((_op(each) for each in events.values()), key=lambda op: op.invoked)
    return history


def _op(events: list[dict[str, Any]]) -> Op:
    """Return one operation from its two or three events."""
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
        requeried=set(merged.get("requeried", ())),
        retried=set(merged.get("retried", ())),
        group=merged.get("group"),
        positions={int(k): v for k, v in merged.get("positions", {}).items()},
        isolation=merged.get("isolation", READ_COMMITTED),
        idempotent=merged.get("idempotent", True),
        client=merged.get("client", ""),
        protocol=merged.get("protocol", 1),
        error=merged.get("error", "") or ("" if end else "the process died"),
    )


def without_keys(history: History, keys: Container[int]) -> History:
    """Return the history in which no operation sends to or reads from `keys`."""
    return replace(
        history,
        ops=[_op_without(op, keys) for op in history.ops],
        stuck=[event for event in history.stuck if event["key"] not in keys],
        replicas=[event for event in history.replicas if event["key"] not in keys],
    )


def _op_without(op: Op, keys: Container[int]) -> Op:
    return replace(
        op,
        sends=[send for send in op.sends if send.key not in keys],
        reads=[read for read in op.reads if read.key not in keys],
        moved={key for key in op.moved if key not in keys},
        sought={key: offset for key, offset in op.sought.items() if key not in keys},
        requeried={key for key in op.requeried if key not in keys},
        retried={key for key in op.retried if key not in keys},
        positions={key: offset for key, offset in op.positions.items() if key not in keys},
    )


NEVER = 1 << 62
