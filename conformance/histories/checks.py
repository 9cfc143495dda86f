"""The anomalies that need no graph. Each check takes the facts and yields anomalies.

The names are from Jepsen's Kafka workload where it has a name. These anomalies are additional:

- `torn-transaction`: only a part of a transaction's writes took effect.
- `phantom`: a value was read that no client sent.
- `realtime-order`: the log contradicts the order of acknowledgements.
- `reprocessed`: two transactions of a group that took effect read the same record.
- `group-skip`: a group committed an offset past a record that no member read.
- `hanging-transaction`: the last stable offset stays although no transaction is open.
- `not-in-sync`, `replicas-differ`: the replicas of a partition at the end of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from conformance.histories.facts import Facts, took_effect
from conformance.histories.history import FAIL, OK, READ_COMMITTED, Op, Read

REQUERY_NS_MAX = 10_000_000_000
"""Maximum time from the library's log line to the jump: its timer, and a broker that is down."""
RETRIED = "a producer without idempotence may write in another order after a failed request"
NOTICED_NS_MAX = 1_000_000_000
"""Maximum time in which a broker notices its replacement when it reaches the controller again."""
UNAWARE = "a replaced coordinator that cannot notice it returned older offsets (docs/histories.md)"
REQUERIED = "librdkafka queried the start offset again (docs/histories.md)"


@dataclass(slots=True)
class Anomaly:
    """An anomaly. `allowed` is the reason why Kafka allows it by design, or empty."""

    kind: str
    allowed: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    """Two values at one offset."""
    for key, log in facts.logs.items():
        for offset, values in log.at.items():
            if len(values) > 1:
                yield _found("inconsistent-offsets", key=key, offset=offset, values=sorted(values))


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    """One value at two offsets. Kafka allows it for a producer that is not idempotent."""
    for key, log in facts.logs.items():
        offsets_of = defaultdict(list)
        for offset, values in log.at.items():
            for value in values:
                offsets_of[value].append(offset)
        for value, offsets in offsets_of.items():
            if len(offsets) > 1:
                writer = facts.writer.get((key, value))
                plain = writer is not None and not writer[0].idempotent
                allowed = "a producer without idempotence may write twice" if plain else ""
                yield Anomaly(
                    "duplicate", allowed, {"key": key, "value": value, "offsets": sorted(offsets)}
                )


def aborted_reads(facts: Facts) -> Iterator[Anomaly]:
    """G1a: a read of a value from an aborted transaction or from a send that certainly failed."""
    for (key, value), readers in facts.readers.items():
        writer = facts.writer.get((key, value))
        if writer is None:
            yield _found("phantom", key=key, value=value, reader=readers[0].name)
        elif writer[0].status_of(writer[1]) == FAIL:
            names = {"writer": writer[0].name, "reader": readers[0].name}
            yield _found("G1a", key=key, value=value, error=writer[0].error, **names)


def precommitted_reads(facts: Facts) -> Iterator[Anomaly]:
    """A transaction that read its own writes."""
    for op in facts.history.ops:
        if op.isolation != READ_COMMITTED or op.f != "txn":
            continue
        own = {(send.key, send.value) for send in op.sends}
        for read in op.reads:
            if (read.key, read.value) in own:
                yield _found("precommitted-read", key=read.key, value=read.value, op=op.name)


def lost_writes(facts: Facts) -> Iterator[Anomaly]:
    """A committed value that no reader received.

    It is a `lost-write` if a reader received a later value of the key. Otherwise it is `unseen`,
    which counts only if the final reads succeeded.
    """
    highest: dict[int, int] = {}
    for key, value in facts.readers:
        offset = facts.offset_of(key, value)
        if offset is not None:
            highest[key] = max(offset, highest.get(key, -1))
    for key, value in sorted(facts.committed - set(facts.readers)):
        op, _ = facts.writer[key, value]
        offset = facts.offset_of(key, value)
        detail = {"key": key, "value": value, "offset": offset, "writer": op.name}
        if offset is not None and offset <= highest.get(key, -1):
            yield Anomaly("lost-write", "", {**detail, "highest_read": highest[key]})
        elif facts.history.complete:
            yield Anomaly("unseen", "", detail)


def torn_transactions(facts: Facts) -> Iterator[Anomaly]:
    """A part of a transaction's writes was read, and no final read returned the other part."""
    if not facts.history.complete:
        return
    for op in facts.history.ops:
        if op.f != "txn":
            continue
        seen = [s.value for s in op.sends if (s.key, s.value) in facts.readers]
        if 0 < len(seen) < len(op.sends):
            missing = [s.value for s in op.sends if s.value not in seen]
            yield _found("torn-transaction", op=op.name, seen=seen, missing=missing)


def inside_one_operation(facts: Facts) -> Iterator[Anomaly]:
    """Reads or sends of one key inside one operation that contradict the order of the log."""
    between = "the writes of transactions interleave"
    for op in facts.history.ops:
        if op.isolation == READ_COMMITTED:
            for key, indexes in _read_indexes(facts, op).items():
                if key not in op.moved:
                    back_allowed = REQUERIED if _is_requeried(facts, op, key) else ""
                    yield from _steps(op, key, indexes, "poll", "", back_allowed)
        for key, indexes in _send_indexes(facts, op).items():
            back_allowed = RETRIED if not op.idempotent and key in op.retried else ""
            yield from _steps(op, key, indexes, "send", between, back_allowed)


def _steps(
    op: Op, key: int, indexes: list[int], what: str, skip_allowed: str, back_allowed: str
) -> Iterator[Anomaly]:
    for before, after in pairwise(indexes):
        detail = {"key": key, "indexes": [before, after], "op": op.name}
        if after > before + 1:
            yield Anomaly(f"int-{what}-skip", skip_allowed, detail)
        elif after <= before:
            yield Anomaly(f"int-nonmonotonic-{what}", back_allowed, detail)


def _is_requeried(facts: Facts, op: Op, key: int, *, by_group: bool = False) -> bool:
    """Return whether the library has queried the start offset of `key` again before these reads.

    With `by_group`, the library of any member counts: the member may have committed the offsets
    that it read again, and a rebalance passes them on.
    """
    return any(
        other.invoked <= op.invoked <= other.ended + REQUERY_NS_MAX
        and (other.group == op.group if by_group else other.process == op.process)
        for other in facts.requeries[key]
    )


def across_polls(facts: Facts) -> Iterator[Anomaly]:
    """Reads that skip or repeat values between consecutive operations of a process.

    The check applies while a process keeps a key. After a rebalance the key's position is unknown.
    After a seek the next read must be at the sought offset.
    """
    for ops in _by_process(facts).values():
        expected: dict[int, tuple[int, Op]] = {}
        for op in ops:
            if op.isolation != READ_COMMITTED:
                continue
            for key, indexes in _read_indexes(facts, op).items():
                if key in expected and key not in op.moved:
                    back_allowed = REQUERIED if _is_requeried(facts, op, key) else ""
                    yield from _index(key, expected[key], indexes[0], op, back_allowed)
                expected[key] = (indexes[-1] + 1, op)
            for key in op.moved:
                expected.pop(key, None)
            for key, offset in op.sought.items():
                expected[key] = (facts.logs[key].index_from(offset), op)


def _index(
    key: int, expected: tuple[int, Op], found: int, op: Op, back_allowed: str
) -> Iterator[Anomaly]:
    index, before = expected
    detail = {"key": key, "delta": found - index + 1, "ops": [before.name, op.name]}
    if found > index:
        yield Anomaly("poll-skip", "", detail)
    elif found < index:
        yield Anomaly("nonmonotonic-poll", back_allowed, detail)


def across_sends(facts: Facts) -> Iterator[Anomaly]:
    """Sends that go backwards between consecutive operations of a producer.

    An operation begins when all sends of the one before it have ended. The order therefore holds
    without idempotence, too.
    """
    for ops in _by_process(facts).values():
        last: dict[int, tuple[int, Op]] = {}
        for op in ops:
            for key, indexes in _send_indexes(facts, op).items():
                if key in last and min(indexes) <= last[key][0]:
                    detail = {"key": key, "indexes": [last[key][0], min(indexes)]}
                    yield _found("nonmonotonic-send", ops=[last[key][1].name, op.name], **detail)
                last[key] = (max(indexes), op)


def realtime_order(facts: Facts) -> Iterator[Anomaly]:
    """A send with a lower offset than another send that was acknowledged before it began."""
    acknowledged = defaultdict(list)
    for op in facts.history.ops:
        for send in op.sends:
            if send.offset is not None and send.status == OK:
                acknowledged[send.key].append((op, send.offset))
    for key, sends in acknowledged.items():
        by_end = sorted(sends, key=lambda pair: pair[0].ended)
        ended, highest = 0, (-1, "")
        for op, offset in sorted(sends, key=lambda pair: pair[0].invoked):
            while ended < len(by_end) and by_end[ended][0].ended < op.invoked:
                earlier, reached = by_end[ended]
                highest = max(highest, (reached, earlier.name))
                ended += 1
            if offset <= highest[0]:
                names = [highest[1], op.name]
                yield _found("realtime-order", key=key, offsets=[highest[0], offset], ops=names)


def reprocessed(facts: Facts) -> Iterator[Anomaly]:
    """Two transactions of a group that took effect read the same record."""
    taken: dict[tuple[str, int, int], Op] = {}
    for op in facts.history.ops:
        if op.group is None or op.f != "txn" or not took_effect(facts, op):
            continue
        for read in op.reads:
            first = taken.setdefault((op.group, read.key, read.offset), op)
            if first is not op:
                detail = {"group": op.group, "key": read.key, "offset": read.offset}
                allowed = REQUERIED if _is_requeried(facts, op, read.key, by_group=True) else ""
                allowed = allowed or (UNAWARE if _has_old_offset(facts, first, op, read) else "")
                yield Anomaly("reprocessed", allowed, {**detail, "ops": [first.name, op.name]})


def _has_old_offset(facts: Facts, first: Op, op: Op, read: Read) -> bool:
    """Return whether the process of `op` began at an offset of a replaced coordinator.

    It has assigned the key itself after `first`, at or before the offset that it read again. A
    member of a group does not begin so: a replaced coordinator cannot write its membership.
    """
    return any(
        each.f == "assign"
        and each.process == op.process
        and first.ended <= each.ended <= op.invoked
        and each.sought.get(read.key, read.offset + 1) <= read.offset
        and any(
            began <= each.ended and each.invoked <= ended + NOTICED_NS_MAX
            for began, ended in facts.history.unaware
        )
        for each in facts.history.ops
    )


def skipped_by_groups(facts: Facts) -> Iterator[Anomaly]:
    """A group's committed offset is behind a record that none of its members read.

    Reads of an aborted transaction do not count, because its work was undone.
    """
    read: dict[tuple[str, int], set[int]] = defaultdict(set)
    reached: dict[tuple[str, int], tuple[int, Op]] = {}
    for op in facts.history.ops:
        if op.group is None:
            continue
        for each in op.reads if op.status != FAIL else ():
            read[op.group, each.key].add(each.offset)
        for key, position in op.positions.items() if took_effect(facts, op) else ():
            if position > reached.get((op.group, key), (-1, op))[0]:
                reached[op.group, key] = (position, op)
    for (group, key), (position, op) in reached.items():
        log = facts.logs[key]
        below = log.offsets[: log.index_from(position)]
        skipped = [offset for offset in below if offset not in read[group, key]]
        if skipped:
            detail = {"group": group, "key": key, "position": position, "op": op.name}
            yield _found("group-skip", offsets=skipped[:20], **detail)


def stuck_partitions(facts: Facts) -> Iterator[Anomaly]:
    """The last stable offset stays below the high watermark when no transaction is open."""
    for event in facts.history.stuck:
        detail = {k: v for k, v in event.items() if k not in ("type", "time")}
        yield Anomaly("hanging-transaction", "", detail)


def replicas(facts: Facts) -> Iterator[Anomaly]:
    """At the end, a replica is not in sync, or has another log than the other replicas."""
    for event in facts.history.replicas:
        key, logs = event["key"], event["logs"]
        missing = sorted({int(broker) for broker in logs} - set(event["in_sync"]))
        if missing or not logs:
            yield _found("not-in-sync", key=key, brokers=missing)
        if len({tuple(log) for log in logs.values()}) > 1:
            yield _found("replicas-differ", key=key, logs=logs)


CHECKS: tuple[Callable[[Facts], Iterator[Anomaly]], ...] = (
    inconsistent_offsets,
    duplicates,
    aborted_reads,
    precommitted_reads,
    lost_writes,
    torn_transactions,
    inside_one_operation,
    across_polls,
    across_sends,
    realtime_order,
    reprocessed,
    skipped_by_groups,
    stuck_partitions,
    replicas,
)


def _found(kind: str, **detail: Any) -> Anomaly:
    return Anomaly(kind, "", detail)


def _read_indexes(facts: Facts, op: Op) -> dict[int, list[int]]:
    """Return the index of each read in its key's order, in the order of the reads."""
    found: dict[int, list[int]] = {}
    for read in op.reads:
        found.setdefault(read.key, []).append(facts.logs[read.key].index_from(read.offset))
    return found


def _send_indexes(facts: Facts, op: Op) -> dict[int, list[int]]:
    """Return the index of each committed send in its key's order, where it is known."""
    found: dict[int, list[int]] = {}
    for send in op.sends:
        index = facts.logs[send.key].index.get(send.value)
        if index is not None:
            found.setdefault(send.key, []).append(index)
    return found


def _by_process(facts: Facts) -> dict[int, list[Op]]:
    ordered = sorted(facts.history.ops, key=lambda op: (op.process, op.number))
    return {process: list(ops) for process, ops in groupby(ordered, key=lambda op: op.process)}
