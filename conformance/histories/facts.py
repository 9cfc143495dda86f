"""Facts from a history: the writer and the readers of each value, and each key's order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

from conformance.histories.history import FAIL, INFO, OK, READ_COMMITTED, History, Op, Send

Written = tuple[int, int]  # key and value


@dataclass(slots=True)
class KeyLog:
    """One key's log, combined from the observations of all clients.

    `at` holds the values seen at each offset, committed or not. `order` holds the committed values,
    one for each offset. `offsets` holds the offsets of `order`. `index` maps a value to its first
    index in `order`.
    """

    at: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    order: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    index: dict[int, int] = field(default_factory=dict)

    def index_from(self, offset: int) -> int:
        """Return the index of the first committed value at or after an offset.

        For a read this is the index of the value that was read.
        """
        return bisect_left(self.offsets, offset)


@dataclass(slots=True)
class Facts:
    history: History
    writer: dict[Written, tuple[Op, Send]] = field(default_factory=dict)
    readers: dict[Written, list[Op]] = field(default_factory=lambda: defaultdict(list))
    logs: dict[int, KeyLog] = field(default_factory=lambda: defaultdict(KeyLog))
    committed: set[Written] = field(default_factory=set)
    requeries: dict[int, list[Op]] = field(default_factory=lambda: defaultdict(list))

    def offset_of(self, key: int, value: int) -> int | None:
        log = self.logs[key]
        index = log.index.get(value)
        return None if index is None else log.offsets[index]


def gather(history: History) -> Facts:
    """Collect the facts.

    `readers` counts only reads with read_committed. `requeries` holds the operations in which the
    client library logged that it queries the start offset of the key again.
    """
    facts = Facts(history)
    for op in history.ops:
        for send in op.sends:
            facts.writer[send.key, send.value] = (op, send)
            if send.offset is not None:
                facts.logs[send.key].at[send.offset].add(send.value)
        for read in op.reads:
            facts.logs[read.key].at[read.offset].add(read.value)
            if op.isolation == READ_COMMITTED:
                facts.readers[read.key, read.value].append(op)
    _gather_requeries(facts)
    facts.committed = set(facts.readers) | _must_have_committed(facts)
    for key, log in facts.logs.items():
        for offset in sorted(log.at):
            values = [v for v in sorted(log.at[offset]) if (key, v) in facts.committed]
            for value in values:
                log.index.setdefault(value, len(log.order))
            if values:
                log.order.append(values[0])
                log.offsets.append(offset)
    return facts


def _gather_requeries(facts: Facts) -> None:
    for op in facts.history.ops:
        for key in op.requeried:
            facts.requeries[key].append(op)


def took_effect(facts: Facts, op: Op) -> bool:
    """Return whether an operation certainly took effect.

    It succeeded, or it is a transaction and a reader received one of its writes.
    """
    if op.status != INFO:
        return op.status == OK
    return op.f == "txn" and any((s.key, s.value) in facts.readers for s in op.sends)


def _must_have_committed(facts: Facts) -> set[Written]:
    found = set()
    for written, (op, send) in facts.writer.items():
        status = op.status_of(send)
        if status == OK or (status != FAIL and op.f == "txn" and took_effect(facts, op)):
            found.add(written)
    return found
