"""Report of a ledger, by topic and partition, and compared with the topics of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.pipeline.ledger.state import (
    UNKNOWN,
    Findings,
    LedgerState,
    PartitionKey,
    PartitionState,
    Source,
    Span,
)

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """The topics of a cluster: identities, and earliest and end offset of each partition.

    `starts` has the offsets at which the ingest continues. It is empty if they are unknown.
    """

    sources: Mapping[str, Source]
    earliest: Offsets
    ends: Offsets
    starts: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """One partition of a ledger.

    `lag` is the number of offsets that are not loaded yet. `removed` are the offsets that the topic
    removed before they were loaded. Both are None without a cluster, and if the topic of the
    ledger is not the topic of the cluster. `problems` has one text for each finding.
    """

    key: PartitionKey
    state: PartitionState
    lag: int | None = None
    removed: Span | None = None
    problems: tuple[str, ...] = ()

    def row(self) -> dict[str, object]:
        """Return the columns of the table."""
        return {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "from": self.state.start_offset,
            "to": self.state.next_offset - 1,
            "batches": self.state.batches,
            "rows": self.state.rows,
            "quarantined": self.state.rejected,
            "lag": self.lag,
        }

    def fields(self) -> dict[str, object]:
        """Return the row with everything else, as JSON objects."""
        return {
            **self.row(),
            "cluster_id": self.key.cluster_id,
            "topic_id": self.key.topic_id,
            "gaps": _spans(self.state.gaps),
            "overlaps": _spans(self.state.overlaps),
            "accepted_losses": _spans(self.state.losses),
            "removed": None if self.removed is None else _span(self.removed),
            "problems": list(self.problems),
        }


COLUMNS = ("topic", "partition", "from", "to", "batches", "rows", "quarantined", "lag")


def report(state: LedgerState, bounds: TopicBounds | None = None) -> list[Line]:
    """Return a line for each partition of a ledger, in order.

    With `bounds` also return a line for each partition of the ledger's topics that has no batch.
    """
    lines = [_line(key, partition, state, bounds) for key, partition in state.partitions.items()]
    if bounds is not None:
        lines += _unread(state, bounds)
    return sorted(lines, key=lambda one: (one.key.topic, one.key.partition, str(one.key)))


def _line(
    key: PartitionKey, partition: PartitionState, state: LedgerState, bounds: TopicBounds | None
) -> Line:
    problems = [*_texts("gap", partition.gaps), *_texts("overlap", partition.overlaps)]
    if bounds is None:
        return Line(key, partition, problems=tuple(problems))
    mine = Source(key.cluster_id, key.topic_id)
    now = bounds.sources.get(key.topic)
    end = bounds.ends.get((key.topic, key.partition))
    if now is None or end is None:
        problems.append("the topic does not exist" if now is None else "no such partition")
        return Line(key, partition, problems=tuple(problems))
    if not mine.agrees_with(now):
        is_here = Source(mine.cluster_id, None).agrees_with(Source(now.cluster_id, None))
        if not is_here:
            problems.append(f"of cluster {mine.cluster_id}, and not of {now.cluster_id}")
        elif mine == state.sources.get(key.topic, UNKNOWN):
            problems.append(f"the topic was created again with the id {now.topic_id}")
        return Line(key, partition, problems=tuple(problems))
    removed = _removed(key, partition.next_offset, bounds)
    problems += _texts_of_removed(removed)
    if end < partition.next_offset:
        problems.append(f"the topic ends at offset {end}, before the table does")
    return Line(key, partition, max(0, end - partition.next_offset), removed, tuple(problems))


def _unread(state: LedgerState, bounds: TopicBounds) -> list[Line]:
    lines = []
    for (topic, partition), end in bounds.ends.items():
        source = bounds.sources.get(topic, UNKNOWN)
        known = state.sources.get(topic)
        if known is None or not known.agrees_with(source):
            continue
        key = PartitionKey(known.cluster_id, topic, known.topic_id, partition)
        if key not in state.partitions:
            start = bounds.starts.get((topic, partition))
            if start is None:
                start = bounds.earliest.get((topic, partition), 0)
            removed = _removed(key, start, bounds)
            nothing = PartitionState(start, start)
            texts = tuple(_texts_of_removed(removed))
            lines.append(Line(key, nothing, max(0, end - start), removed, texts))
    return lines


def _removed(key: PartitionKey, next_offset: int, bounds: TopicBounds) -> Span | None:
    """Return the offsets from `next_offset` on that the topic has removed."""
    earliest = bounds.earliest.get((key.topic, key.partition), 0)
    return Span(next_offset, earliest) if earliest > next_offset else None


def _texts_of_removed(removed: Span | None) -> list[str]:
    if removed is None:
        return []
    return [f"offsets {removed.start} to {removed.end - 1} removed before the load"]


def problem_texts(lines: Iterable[Line]) -> list[str]:
    """Return one text for each problem, with its topic partition."""
    return [
        f"{one.key.topic}-{one.key.partition}: {text}" for one in lines for text in one.problems
    ]


def _texts(kind: str, findings: Findings) -> list[str]:
    texts = [f"{kind} at offsets {one.start} to {one.end - 1}" for one in findings.newest]
    hidden = findings.count - len(findings.newest)
    return [*([f"{hidden:,} older {kind}s"] if hidden else []), *texts]


def _spans(findings: Findings) -> list[dict[str, int]]:
    return [_span(one) for one in findings.newest]


def _span(one: Span) -> dict[str, int]:
    return {"start_offset": one.start, "end_offset": one.end}
