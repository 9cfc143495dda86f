"""The fold of a table's commits: the offsets that the table has of each partition.

A partition is identified by cluster id, topic name, topic id and number. A topic that was created
again under its name is therefore another topic, and so is a topic of that name in another cluster.
Commits of format 1 have no ids. Their partitions take the ids of the first later commit.

The fold is a pure function of the commits in their order. `LedgerState` is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange

FINDINGS_MAX = 100
"""Largest number of gaps, and of overlaps and losses, kept for each partition."""


class Source(NamedTuple):
    """The identity of a topic. A part is None if it is unknown."""

    cluster_id: str | None
    topic_id: str | None

    def agrees_with(self, other: Source) -> bool:
        """Return whether no part of both is known and different."""
        return all(
            mine is None or theirs is None or mine == theirs
            for mine, theirs in zip(self, other, strict=True)
        )

    def or_else(self, other: Source) -> Source:
        """Return this identity, with the parts of `other` where a part is unknown."""
        return Source(self.cluster_id or other.cluster_id, self.topic_id or other.topic_id)


UNKNOWN = Source(None, None)


class PartitionKey(NamedTuple):
    """One partition of one topic of one cluster."""

    cluster_id: str | None
    topic: str
    topic_id: str | None
    partition: int


class Span(NamedTuple):
    """Offsets from `start` to `end`, the end exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Findings:
    """The newest spans of one kind. `count` also counts older spans, which are not kept."""

    count: int = 0
    newest: tuple[Span, ...] = ()

    def add(self, start: int, end: int) -> Findings:
        return Findings(self.count + 1, (*self.newest, Span(start, end))[-FINDINGS_MAX:])

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> Findings:
        count, newest = fields["count"], fields["newest"]
        assert isinstance(count, int) and isinstance(newest, list | tuple)
        return cls(count, tuple(Span(start, end) for start, end in newest))


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The offsets of one partition in a table, from `start_offset` to before `next_offset`.

    `rows` counts the records in table and quarantine, and `rejected` the records in the quarantine.
    `rejected` is None if commits of format 1 do not say how many of them belong to this partition.
    `is_exact` is false if the newest batch had no planned range. The end of that batch may then lie
    behind `next_offset`, because transaction markers may follow on its last record.
    """

    start_offset: int
    next_offset: int
    batches: int = 0
    rows: int = 0
    rejected: int | None = 0
    gaps: Findings = Findings()
    overlaps: Findings = Findings()
    losses: Findings = Findings()
    is_exact: bool = True

    def take(self, start: int, end: int, is_exact: bool) -> PartitionState:
        """Return the state after a batch with offsets `start` to before `end`.

        A batch that is not exact has the range of its records, which may begin after transaction
        markers. Such a batch shows no gap.
        """
        gaps, overlaps = self.gaps, self.overlaps
        if start > self.next_offset and is_exact and self.is_exact:
            gaps = gaps.add(self.next_offset, start)
        elif start < self.next_offset:
            overlaps = overlaps.add(start, min(end, self.next_offset))
        return replace(
            self,
            start_offset=min(self.start_offset, start),
            next_offset=max(self.next_offset, end),
            batches=self.batches + 1,
            gaps=gaps,
            overlaps=overlaps,
            is_exact=is_exact,
        )

    def count(self, rows: int, rejected: int | None) -> PartitionState:
        known = None if self.rejected is None or rejected is None else self.rejected + rejected
        return replace(self, rows=self.rows + rows, rejected=known)

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> PartitionState:
        findings = {
            name: Findings.from_fields(fields[name])  # type: ignore[arg-type]
            for name in ("gaps", "overlaps", "losses")
        }
        return cls(**{**fields, **findings})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state after a number of commits.

    `sources` has the newest identity of each topic. `newest` has the newest batch of each query,
    and `query_id` is the query of the newest commit. `first_number` is that query's.
    `accepted_changes` has the newest `FINDINGS_MAX` changes by other programs that an operator
    accepted. `newest_rejected` is the query and batch of the newest commit with rejected records,
    which the quarantine also has.
    """

    partitions: Mapping[PartitionKey, PartitionState] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    query_id: str | None = None
    commits: int = 0
    epoch: int = 0
    first_number: int = 0
    accepted_changes: tuple[str, ...] = ()
    newest_rejected: tuple[str, int] | None = None

    def newest_batch(self, query_id: str) -> int | None:
        """Return the newest batch of a query, or None if the table has no commit of it."""
        return self.newest.get(query_id)

    def next_offsets(self) -> dict[str, dict[str, int]]:
        """Return the next offset by topic and partition, of the newest identity of each topic."""
        found: dict[str, dict[str, int]] = {}
        for key, partition in sorted(self.partitions.items(), key=_order):
            if self.sources.get(key.topic, UNKNOWN) == Source(key.cluster_id, key.topic_id):
                found.setdefault(key.topic, {})[str(key.partition)] = partition.next_offset
        return found

    def apply(self, commit: BatchCommit) -> LedgerState:
        """Return the state after one more commit."""
        sources = dict(self.sources)
        partitions = dict(self.partitions)
        topics = {one.topic for one in commit.ranges} | {one.topic for one in commit.planned or ()}
        for topic in sorted(topics):
            _identify(topic, commit, sources, partitions)

        def update(topic: str, partition: int, start: int) -> tuple[PartitionKey, PartitionState]:
            source = sources[topic]
            key = PartitionKey(source.cluster_id, topic, source.topic_id, partition)
            return key, partitions.get(key) or PartitionState(start, start)

        for topic, partition, start, end in _spans(commit):
            key, state = update(topic, partition, start)
            partitions[key] = state.take(start, end, is_exact=commit.planned is not None)
        for one, rejected in _rejected(commit):
            key, state = update(one.topic, one.partition, one.first_offset)
            partitions[key] = state.count(one.rows, rejected)
        for lost in commit.lost:
            key, state = update(lost.topic, lost.partition, lost.start_offset)
            losses = state.losses.add(lost.start_offset, lost.end_offset)
            partitions[key] = replace(state, losses=losses)
        newest = max(commit.batch_id, self.newest.get(commit.query_id, commit.batch_id))
        return LedgerState(
            partitions,
            sources,
            {**self.newest, commit.query_id: newest},
            commit.query_id,
            self.commits + 1,
            max(self.epoch, commit.epoch or 0),
            commit.first_number,
            (*self.accepted_changes, *commit.accepted_changes)[-FINDINGS_MAX:],
            (commit.query_id, commit.batch_id) if commit.rejected else self.newest_rejected,
        )

    def to_fields(self) -> dict[str, object]:
        """Return the state as JSON objects."""
        return {
            "partitions": [
                {**key._asdict(), "state": asdict(state)} for key, state in self.partitions.items()
            ],
            "sources": {topic: list(source) for topic, source in self.sources.items()},
            "newest": dict(self.newest),
            "query_id": self.query_id,
            "commits": self.commits,
            "epoch": self.epoch,
            "first_number": self.first_number,
            "accepted_changes": list(self.accepted_changes),
            "newest_rejected": self.newest_rejected,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> LedgerState:
        """Return the state that `to_fields` wrote.

        Raises:
            ValueError, KeyError, TypeError: The fields are not such a state.
        """
        partitions, sources, newest = fields["partitions"], fields["sources"], fields["newest"]
        rejected = fields["newest_rejected"]
        assert isinstance(partitions, list) and isinstance(sources, dict)
        assert isinstance(newest, dict)
        return cls(
            {
                PartitionKey(
                    one["cluster_id"], one["topic"], one["topic_id"], one["partition"]
                ): PartitionState.from_fields(one["state"])
                for one in partitions
            },
            {topic: Source(*ids) for topic, ids in sources.items()},
            dict(newest),
            fields["query_id"],  # type: ignore[arg-type]
            fields["commits"],  # type: ignore[arg-type]
            fields["epoch"],  # type: ignore[arg-type]
            fields["first_number"],  # type: ignore[arg-type]
            tuple(fields["accepted_changes"]),  # type: ignore[arg-type]
            None if rejected is None else tuple(rejected),  # type: ignore[arg-type]
        )


def fold(commits: Iterable[BatchCommit], state: LedgerState | None = None) -> LedgerState:
    """Return the state after all of `commits`, which follow on `state`."""
    state = LedgerState() if state is None else state
    for commit in commits:
        state = state.apply(commit)
    return state


def source_of(commit: BatchCommit, topic: str) -> Source:
    """Return the identity that a commit gives a topic."""
    return Source(commit.cluster_id, commit.topic_ids.get(topic))


def _identify(
    topic: str,
    commit: BatchCommit,
    sources: dict[str, Source],
    partitions: dict[PartitionKey, PartitionState],
) -> None:
    """Set the topic's identity. Ids that were unknown so far are also given to its partitions."""
    old, new = sources.get(topic), source_of(commit, topic)
    if old is None or not old.agrees_with(new):
        sources[topic] = new
        return
    completed = old.or_else(new)
    if completed != old:
        for key in [one for one in partitions if one.topic == topic]:
            if (key.cluster_id, key.topic_id) == old:
                identified = PartitionKey(
                    completed.cluster_id, topic, completed.topic_id, key.partition
                )
                partitions[identified] = partitions.pop(key)
    sources[topic] = completed


def _spans(commit: BatchCommit) -> list[tuple[str, int, int, int]]:
    """Return topic, partition, start and end of the offsets that the commit has loaded."""
    if commit.planned is not None:
        return [
            (one.topic, one.partition, one.start_offset, one.end_offset) for one in commit.planned
        ]
    return [
        (one.topic, one.partition, one.first_offset, one.last_offset + 1) for one in commit.ranges
    ]


def _rejected(commit: BatchCommit) -> list[tuple[ReadRange, int | None]]:
    """Return the rejected records of each range, None where a commit of format 1 has no number."""
    if commit.rejected == 0:
        return [(one, 0) for one in commit.ranges]
    if len(commit.ranges) == 1:
        return [(commit.ranges[0], commit.rejected)]
    return [(one, one.rejected) for one in commit.ranges]


def _order(item: tuple[PartitionKey, PartitionState]) -> tuple[str, int]:
    return item[0].topic, item[0].partition


def lost_ranges(
    planned: Iterable[PlannedRange],
    read: Iterable[ReadRange],
    earliest: Mapping[tuple[str, int], int],
) -> tuple[PlannedRange, ...]:
    """Return the planned offsets that the topics removed before the batch read them.

    Args:
        planned: The planned offsets of the batch.
        read: The records that the batch read.
        earliest: The earliest offsets of the partitions, requested after the batch was read. Until
            then the topic may have removed records that the batch did read.
    """
    first = {one.topic_partition: one.first_offset for one in read}
    found = []
    for one in planned:
        end = min(
            earliest.get(one.topic_partition, 0),
            first.get(one.topic_partition, one.end_offset),
            one.end_offset,
        )
        if end > one.start_offset:
            found.append(PlannedRange(one.topic, one.partition, one.start_offset, end))
    return tuple(found)
