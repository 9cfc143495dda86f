"""Rules about the committed records of coordinators, as pure functions over their logs.

A simulation follows the committed records of each partition of ``__transaction_state`` and
``__consumer_offsets``. `TransactionLog` and `OffsetsLog` replay them by code of their own. The
state of a coordinator must equal the replay, and each response must agree with it:

- A decided outcome never changes. Complete follows the Prepare of the same outcome.
- The outcome that a broker has sent to a producer was committed in that step.
- A marker is committed only while its own transaction is being ended.
- A commit of offsets that a broker has answered was committed in that step. A response to
  OffsetFetch has committed offsets only, and none older than an answered commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.protocol import record_codec
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.records.batch import BatchHeader
from odradek.records.control import read_marker
from odradek.records.record import body_of, records_of

NO_PRODUCER = -1
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETE_OF = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
DURABLE_STATES = (GroupState.STABLE, GroupState.EMPTY)
OUTCOMES = {True: (PREPARE_COMMIT, COMPLETE_COMMIT), False: (PREPARE_ABORT, COMPLETE_ABORT)}


class LogRecord(NamedTuple):
    """One record of a coordinator's log.

    Attributes:
        leader_epoch: The epoch of the leader that has appended it.
        producer_id: The producer in whose transaction it was written, or -1.
        committed: The outcome that a marker has, or None for another record.
    """

    offset: int
    leader_epoch: int
    producer_id: int
    committed: bool | None
    key: Any
    value: Any


def records_in(family: str, header: BatchHeader, batch: bytes) -> Iterator[LogRecord]:
    """Decode the records of a batch. `family` is that of `record_codec`."""
    epoch = header.partition_leader_epoch
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
    if header.is_control:
        marker = read_marker(batch)
        if marker is not None:
            yield LogRecord(header.base_offset, epoch, producer_id, marker.committed, None, None)
        return
    for record in records_of(body_of(batch, header), header):
        key = record_codec.decode_key(family, record.key or b"")
        value = None
        if record.value is not None:
            value = record_codec.decode_value(record_codec.value_class(family, key), record.value)
        yield LogRecord(record.offset, epoch, producer_id, None, key, value)


class Entry(NamedTuple):
    """The metadata of a transactional id in one record."""

    offset: int
    leader_epoch: int
    state: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[tuple[str, int]]


@dataclass(slots=True)
class TransactionLog:
    """The records of one partition of ``__transaction_state``.

    Attributes:
        end: The records below it are included.
        entries: The records of each transactional id, oldest first.
        begun_by: The leader epoch in which its open transaction has begun.
    """

    end: int = 0
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    begun_by: dict[str, int] = field(default_factory=dict)

    def add(self, record: LogRecord) -> Iterator[str]:
        """Add one record. Yield a problem if it changes a decided outcome."""
        assert isinstance(record.key, TransactionLogKey)
        name, value = record.key.transactional_id, record.value
        if value is None:
            self.entries.pop(name, None)
            return
        entry = Entry(
            record.offset,
            record.leader_epoch,
            value.transaction_status,
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            frozenset(
                (topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
        )
        entries = self.entries.setdefault(name, [])
        before = entries[-1].state if entries else EMPTY
        entries.append(entry)
        if before in PREPARED and entry.state != COMPLETE_OF[before]:
            yield f"transaction {name}: state {entry.state} at {entry.offset} follows {before}"
        if entry.state in COMPLETE_OF.values() and before not in PREPARED:
            yield f"transaction {name}: Complete at {entry.offset} follows state {before}"
        if entry.state == ONGOING and before != ONGOING:
            self.begun_by[name] = record.leader_epoch

    def current(self, name: str) -> Entry | None:
        """Return the newest record of a transactional id."""
        entries = self.entries.get(name)
        return entries[-1] if entries else None

    def has_outcome(
        self, name: str, producer: tuple[int, int], committed: bool, since: int, end: int
    ) -> bool:
        """Return whether the outcome of a transaction is in the records from `since` to `end`.

        `producer` is the producer id and epoch of the request. With transaction.version 2 the
        record has the next epoch.
        """
        producer_id, epoch = producer
        return any(
            since <= entry.offset < end
            and entry.state in OUTCOMES[committed]
            and entry.producer_id == producer_id
            and entry.producer_epoch in (epoch, epoch + 1)
            for entry in self.entries.get(name, ())
        )

    def open(self) -> list[str]:
        """Return the transactional ids whose transaction has not ended."""
        unfinished = (ONGOING, *PREPARED)
        return [name for name, entries in self.entries.items() if entries[-1].state in unfinished]

    def check(self, actual: Mapping[str, Any], later: Iterable[LogRecord]) -> Iterator[str]:
        """The transactions of a coordinator equal a replay of its log.

        Args:
            actual: The `TransactionMetadata` of each transactional id.
            later: The records that the log of this leader has above `end`.
        """
        newest = {name: entries[-1] for name, entries in self.entries.items()}
        replay = TransactionLog()
        for record in later:
            for _ in replay.add(record):
                pass  # the rules apply when the record is committed
            name = record.key.transactional_id
            newest.pop(name, None)
        newest |= {name: entries[-1] for name, entries in replay.entries.items()}
        for name in sorted({*newest, *actual}):
            expected, found = newest.get(name), actual.get(name)
            if expected is None or found is None or expected[2:] != _fields_of(found):
                yield f"transaction {name} is {found}, a replay of the log has {expected}"


def _fields_of(metadata: Any) -> tuple[Any, ...]:
    """Return the fields that `Entry` has, too."""
    return (
        int(metadata.state),
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        frozenset((each.topic, each.partition) for each in metadata.partitions),
    )


def ends_another(
    entry: Entry | None, producer: tuple[int, int], partition: tuple[str, int]
) -> bool:
    """Return whether a marker of this producer id and epoch ends an undecided transaction.

    `entry` is the newest committed record of the transactional id.
    """
    return (
        entry is not None
        and entry.state == ONGOING
        and (entry.producer_id, entry.producer_epoch) == producer
        and partition in entry.partitions
    )


OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""


class Commit(NamedTuple):
    """One committed offset. `record_offset` is the offset of its record."""

    record_offset: int
    offset: int
    metadata: str


@dataclass(slots=True)
class OffsetsLog:
    """The committed offsets of one partition of ``__consumer_offsets``.

    Attributes:
        end: The records below it are included.
        written: Every commit of each key, also of transactions that are open or were aborted.
        newest: The effective commit of each key.
        pending: The commits of open transactions by producer id.
        answered: The record of the newest commit of each key that a broker has answered.
    """

    end: int = 0
    written: dict[OffsetKey, list[Commit]] = field(default_factory=dict)
    newest: dict[OffsetKey, Commit] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, Commit]] = field(default_factory=dict)
    answered: dict[OffsetKey, int] = field(default_factory=dict)

    def add(self, record: LogRecord) -> None:
        """Add one record. A later record wins, also over an earlier one of a transaction."""
        if record.committed is not None:
            ended = self.pending.pop(record.producer_id, {})
            for key, commit in ended.items() if record.committed else ():
                known = self.newest.get(key)
                if known is None or known.record_offset < commit.record_offset:
                    self.newest[key] = commit
            return
        if not isinstance(record.key, OffsetCommitKey):
            return
        key = (record.key.group, record.key.topic, record.key.partition)
        if record.value is None:
            self.newest.pop(key, None)
            for commits in self.pending.values():
                commits.pop(key, None)
            return
        commit = Commit(record.offset, record.value.offset, record.value.metadata)
        self.written.setdefault(key, []).append(commit)
        if record.producer_id == NO_PRODUCER:
            self.newest[key] = commit
        else:
            self.pending.setdefault(record.producer_id, {})[key] = commit

    def find(self, key: OffsetKey, offset: int, metadata: str, end: int) -> Commit | None:
        """Return the newest commit below `end` with this offset and metadata."""
        for commit in reversed(self.written.get(key, ())):
            if commit.record_offset < end and commit[1:] == (offset, metadata):
                return commit
        return None

    def note_answer(self, key: OffsetKey, commit: Commit) -> None:
        """Note that a broker has answered this commit, or has returned it as the committed one."""
        self.answered[key] = max(self.answered.get(key, -1), commit.record_offset)

    def check(self, actual: Mapping[OffsetKey, Commit]) -> Iterator[str]:
        """The committed offsets of a coordinator equal a replay of its log."""
        for key in sorted({*self.newest, *actual}):
            expected, found = self.newest.get(key), actual.get(key)
            if expected != found:
                yield f"the offset of {key} is {found}, a replay of the log has {expected}"


def check_groups(replayed: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[str]:
    """The groups of a coordinator equal a replay of their records.

    The offsets of a group without members create it in memory only. While the members of a classic
    group join, its next generation is in no record.
    """
    for group_id in sorted({*replayed, *actual}):
        found = actual.get(group_id)
        if isinstance(found, ClassicGroup) and found.state not in DURABLE_STATES:
            continue
        expected, fields = _durable(replayed.get(group_id)), _durable(found)
        if expected != fields:
            yield f"group {group_id} has {fields}, a replay of the log has {expected}"


def _durable(group: Any) -> tuple[Any, ...]:
    """Return the fields of a group that are in records. A group without members may have none."""
    if isinstance(group, ConsumerGroup):
        state = (group.epoch, group.target_epoch, group.members, group.targets)
        return state if any(state) else ()
    if group is None or not group.generation_id:
        return ()
    members = {name: member.assignment for name, member in group.members.items()}
    return (group.generation_id, group.protocol_type, group.protocol_name, group.leader_id, members)
